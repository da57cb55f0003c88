"""Tests of the last two minutes of every GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from textual.pilot import Pilot

from annotate.evidence import Column, Device, Gap, Trace
from gpuwatch.tui.overview_history import KEPT_NS, RANGE_NS, HistoryLines, OverviewHistory, draw_lines
from gpuwatch.tui.text.plot import Span
from gpuwatch.tui.text.words import Tone
from gpuwatch.tui.widgets.gpu_list import GpuList, HistoryPlacement, place_history
from gpuwatch.view.live import Live
from tests.gpuwatch.tui.detail import Still
from tests.gpuwatch.tui.frozen import EIGHT, NOW_NS, S, gpu, travelling
from tests.gpuwatch.tui.test_app import shown, until, used

DEVICE = Device(uuid="GPU-00000000", name="NVIDIA H200", sm_clock_max_mhz=1980)


def history(begin_s: int, end_s: int, *, mask: int = 0x4, mhz: float = 1575.0) -> Trace:
    at_ns = np.arange(begin_s * S, end_s * S + 1, S // 4, dtype=np.int64)
    values = {"event_reasons_mask": np.full(len(at_ns), float(mask)), "sm_clock_mhz": np.full(len(at_ns), mhz)}
    return Trace(columns={name: Column(at_ns, column) for name, column in values.items()})


def text(pieces: HistoryLines) -> tuple[str, str]:
    return "".join(piece.text for piece in pieces.clock), "".join(piece.text for piece in pieces.reasons)


def test_cells_hold_gravest_reason_and_lowest_clock() -> None:
    trace = history(1, 11)
    masks = trace.columns["event_reasons_mask"].values.copy()
    masks[10] = 0x44  # a quarter of a second of heat
    dip = trace.columns["sm_clock_mhz"].values.copy()
    dip[10] = 345.0
    at_ns = trace.columns["event_reasons_mask"].at_ns
    trace = Trace(columns={"event_reasons_mask": Column(at_ns, masks), "sm_clock_mhz": Column(at_ns, dip)})
    found = draw_lines(trace, DEVICE, Span(0, 11 * S, 11))
    assert text(found) == (" ██▁███████", " PPXPPPPPPP"), "nothing before the first reading"
    assert {piece.tone for piece in found.reasons} == {Tone.DIM, Tone.WARN, Tone.BAD}


def test_gap_shows_neither_clock_nor_reason() -> None:
    trace = replace(history(0, 10), gaps=(Gap(begin_ns=3 * S, end_ns=6 * S),))
    clock, reasons = text(draw_lines(trace, DEVICE, Span(0, 10 * S, 10)))
    assert reasons == "PPP––" + reasons[5:]
    assert clock[4] == " "
    assert reasons[6:] == "PPPP"


def test_live_answers_grow_into_a_bounded_strip() -> None:
    """Live answers four times a second grow into a strip of bounded memory."""
    histories = OverviewHistory()
    for step in range(4 * 1000):
        told = gpu(age_s=-step / 4, event_reasons_mask=0x4 if step % 80 < 40 else 0)
        histories.add_live(Live(at_ns=NOW_NS + step * S // 4, source="nvml", gpus=(told,)))
    clock, reasons = text(histories.lines(told.device, NOW_NS + 1000 * S, 60))
    assert reasons.count("P") == pytest.approx(30, abs=3)
    assert set(clock) == {"█"}
    kept = histories.history(DEVICE.uuid).trace.column("sm_clock_mhz").at_ns
    assert kept[-1] - kept[0] <= KEPT_NS + 300 * S
    histories.add_live(Live(at_ns=NOW_NS, source="nvml"))
    assert not histories.history(DEVICE.uuid).trace.columns, "the history of a missing GPU is dropped"


@pytest.mark.parametrize("past", [False, True])
def test_store_is_queried_until_the_strip_is_known(past: bool) -> None:
    """The overview queries the store until the visible range is complete, and then stops."""
    histories, store = OverviewHistory(), Still(history(0, 900), span=(0, 900 * S))
    for end_s in (850, 851, 840, 700, 300, 900):
        live = replace(EIGHT, at_ns=end_s * S, gpus=(gpu(),))
        for _ in range(20):
            if (question := histories.next_query(live, is_past=past)) is None:
                break
            histories.add_answer(question, question.run(store))
        else:
            raise AssertionError("20 queries are not enough")
        assert set(text(histories.lines(DEVICE, end_s * S, 60))[1]) == {"P"}
    asked = len(store.asked)
    assert histories.next_query(live, is_past=past) is None
    assert len(store.asked) == asked


def test_line_changes_once_per_cell() -> None:
    histories = OverviewHistory()
    cell_ns = RANGE_NS // 60
    first = histories.lines(DEVICE, 10 * cell_ns, 60)
    assert histories.lines(DEVICE, 11 * cell_ns - 1, 60) is first
    assert histories.lines(DEVICE, 11 * cell_ns, 60) is not first


@pytest.mark.parametrize(
    ("count", "size", "where"),
    [
        (8, (80, 24), HistoryPlacement.NOWHERE), (8, (120, 40), HistoryPlacement.BELOW), (8, (200, 60), HistoryPlacement.BELOW_WITH_CLOCK),
        (8, (200, 24), HistoryPlacement.BESIDE), (3, (80, 24), HistoryPlacement.BELOW_WITH_CLOCK), (2, (20, 5), HistoryPlacement.NOWHERE),
    ],
)  # fmt: skip
def test_history_placement_follows_the_room(count: int, size: tuple[int, int], where: HistoryPlacement) -> None:
    assert place_history(count, *size) is where


def test_overview_shows_stored_readings() -> None:
    app = travelling(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "PPPPPPXXXXX" in shown(app, GpuList))
        assert max(map(len, shown(app, GpuList).splitlines())) <= 119

    used(app, use, (120, 40))
