"""Tests of a screen's words."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from annotate.evidence import Lane, Reason, Visibility
from annotate.verdict import Status
from gpuwatch.tui.text import gpu_words, overview_tables, words
from gpuwatch.tui.text.words import Tone
from gpuwatch.view.live import Live, LiveGpu
from gpuwatch.wire.shown import Shown
from tests.gpuwatch.tui.frozen import EIGHT, NO_GPU, NOW_NS, WINDOWS, gpu, window


def line(gpu: LiveGpu, width: int = 120, windows: tuple[Shown, ...] = ()) -> str:
    return words.text(overview_tables.gpu_lines(Live(at_ns=NOW_NS, source="nvml", gpus=(gpu,), windows=windows), width)).split(
        "\n"
    )[1]


@pytest.mark.parametrize("width", [79, 119, 199])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    for lines in (
        overview_tables.gpu_lines(EIGHT, width),
        overview_tables.window_lines(EIGHT, width),
        overview_tables.absence_lines(NO_GPU),
    ):
        assert max(map(len, words.text(lines).split("\n"))) <= width


def test_reasons_have_letters_and_unknown_bits_have_numbers() -> None:
    every = words.chips(sum(reason.value for reason in Reason))
    assert len({chip.letter for chip in every}) == len(Reason)
    assert [chip.name for chip in words.chips(0x1200)] == ["bits 0x1200"]
    assert [chip.name for chip in words.chips(0)] == ["none"]
    assert [chip.name for chip in words.chips(None)] == ["not observed"]


def test_every_status_has_its_own_word() -> None:
    for status in Status:
        assert words.STATUSES[status.value].name == status.value.upper()


def test_loud_colours_come_with_letters() -> None:
    for seen in overview_tables.gpu_lines(EIGHT, 120):
        loud = [piece for piece in seen if piece.tone in (Tone.WARN, Tone.BAD)]
        if loud:
            text = words.text([seen])
            assert any(mark in text for mark in ("!", "P ", "X ", "? ", "F ", "STALE", "LOST")), text


def test_unobserved_signal_is_a_dash_and_never_zero() -> None:
    nothing = gpu(sm_clock_mhz=None, power_w=None, temperature_c=None, utilization_ratio=None, memory_used_bytes=None)
    said = line(replace(nothing, process_list=None))
    assert said.count(words.NOTHING) == 6
    assert " 0" not in said[4:]


def test_reason_names_fall_back_to_letters() -> None:
    held = gpu(event_reasons_mask=0x44)
    assert "X hw thermal P power cap" in line(held, 120)
    assert line(held, 79).endswith("X P")


def test_process_counts_by_owner_while_a_window_is_open() -> None:
    """Processes are counted as own and foreign while a window is open on their GPU."""
    opened = window("1", "open", ago_s=None, pids=[7], gpus=())
    shared = gpu(pids=[7, 8, 9])
    assert gpu_words.processes(shared, ()).text == "3"
    assert gpu_words.processes(shared, (opened,)) == words.Piece("1o 2F", Tone.WARN)
    assert gpu_words.processes(gpu(pids=[7]), (opened,)) == words.Piece("1o 0F", Tone.PLAIN)
    assert gpu_words.processes(gpu(pids=[8]), (opened,)).text == "1", "another GPU than the window's"
    process_list = shared.process_list
    assert process_list is not None
    unseen = replace(shared, process_list=replace(process_list, visibility=Visibility.NAMESPACE))
    assert gpu_words.processes(unseen, (opened,)).text == "1o ≥2F"


def test_only_a_silent_sampler_is_stale() -> None:
    assert gpu_words.stale_s(gpu(age_s=1.9), NOW_NS) is None
    assert gpu_words.stale_s(gpu(age_s=7.0), NOW_NS) == pytest.approx(7.0)
    assert gpu_words.stale_s(replace(gpu(age_s=7.0), period_ns={Lane.FAST: 5_000_000_000}), NOW_NS) is None


def test_unproven_window_shows_its_reason_and_no_hazards() -> None:
    unproven = msgspec.structs.replace(
        window("1", "unproven"), hazards=("power-limited",), why="books: utilisation over a second"
    )
    shown = words.text(overview_tables.window_lines(Live(at_ns=NOW_NS, source="nvml", windows=(unproven,)), 199))
    assert "books: utilisation over a second" in shown
    assert "power-limited" not in shown


def test_user_text_reaches_no_terminal_unescaped() -> None:
    shown = words.text(overview_tables.window_lines(Live(at_ns=NOW_NS, source="nvml", windows=WINDOWS), 199))
    assert "\x1b" not in shown
    assert "[bold]not" in shown


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0, "0.0 s"), (0.04, "0.04 s"), (99.9, "99.9 s"), (100, "2 min"), (5960, "99 min"), (7200, "2 h"), (9e5, "10 d")],
)
def test_span_takes_at_most_six_characters(seconds: float, said: str) -> None:
    assert words.span(seconds) == said
