"""Tests of screens scaled to their data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from textual.pilot import Pilot

from annotate.evidence import Column, Process, ProcessList, Trace
from gpuwatch.tui.data_interfaces import ScreenContent
from gpuwatch.tui.gpu_timeline import GpuTimeline
from gpuwatch.tui.overview_history import RANGE_NS, HistoryAnswer, HistoryQuery, OverviewHistory, draw_lines
from gpuwatch.tui.screens.overview_screen import WindowList
from gpuwatch.tui.text import chart_panels, gpu_facts, gpu_words, words
from gpuwatch.tui.text.overview_tables import Arrangement
from gpuwatch.tui.text.plot import Span
from gpuwatch.tui.time_range import TimeRange, Viewport
from gpuwatch.tui.widgets.gpu_list import GpuList
from gpuwatch.tui.widgets.status_line import StatusLine
from gpuwatch.view.history import Recorded
from gpuwatch.view.live import Live
from tests.gpuwatch.tui.detail import Still
from tests.gpuwatch.tui.frozen import EIGHT, NOW_NS, S, gpu, top, window
from tests.gpuwatch.tui.test_app import shown, until, used
from tests.gpuwatch.tui.test_overview_history import DEVICE, history

LOG = Path(__file__).parents[2] / "traces" / "h200-nvidia-smi.csv"
THREE = (window("a", "valid"), window("b", "rejected", ago_s=60.0), window("c", "flagged", ago_s=90.0))


def test_clock_strip_spans_and_names_the_seen_clocks() -> None:
    """Clocks between 1400 and 1500 MHz use the whole height; single steps of the driver do not."""
    trace = history(0, 10, mhz=1500.0)
    values = trace.columns["sm_clock_mhz"].values
    values[20:23] = 1400.0
    found = draw_lines(trace, DEVICE, Span(0, 10 * S, 10))
    assert "".join(piece.text for piece in found.clock) == "█████▁████"
    assert found.clock_range == "1400–1500 MHz"
    values[20:23] = 1485.0
    stepped = draw_lines(trace, DEVICE, Span(0, 10 * S, 10))
    assert "▁" not in "".join(piece.text for piece in stepped.clock)
    assert draw_lines(history(0, 10), DEVICE, Span(0, 10 * S, 10)).clock_range == "1575 MHz"


def test_short_recording_fills_its_strip() -> None:
    """The strip of a recording of 13 s shows 13 s, in a file and in a store; a moment two minutes later shows two minutes."""
    recorded = Live(at_ns=13 * S, source="replay:x.capsule", gpus=(gpu(),))
    histories = OverviewHistory()
    query = HistoryQuery(DEVICE.uuid, -RANGE_NS, 13 * S, 13 * S, is_past=True)
    histories.add_answer(query, HistoryAnswer(history(0, 13), 13 * S, 13 * S))
    assert histories.range_ns(recorded) == 13 * S
    clock = histories.lines(DEVICE, 13 * S, 26, histories.range_ns(recorded)).clock
    assert "".join(piece.text for piece in clock).count("█") == 26
    assert histories.range_ns(replace(recorded, source="nvml")) == 13 * S
    assert histories.range_ns(replace(recorded, at_ns=140 * S)) == RANGE_NS


def test_named_clock_range_includes_every_reading() -> None:
    """The range includes the extremes inside the cells and the readings after the last whole cell."""
    histories = OverviewHistory()
    trace = history(-120, 10, mhz=1500.0)
    trace.columns["sm_clock_mhz"].values[[-21, -15]] = 1650.0, 1290.0
    histories.add_answer(
        HistoryQuery(DEVICE.uuid, -120 * S, 10 * S, 10 * S, is_past=False), HistoryAnswer(trace, 10 * S, 10 * S)
    )
    assert histories.lines(DEVICE, 10 * S, 12).clock_range == "1290–1650 MHz"
    newest = gpu(sm_clock_mhz=1695, age_s=(NOW_NS - 11 * S) / S)
    histories.add_live(Live(at_ns=11 * S, source="nvml", gpus=(newest,)))
    assert histories.lines(DEVICE, 11 * S, 12).clock_range == "1290–1695 MHz"


def test_first_seconds_of_a_daemon_fill_the_axis() -> None:
    """The range begins at the first reading until the user moves it, and queries older readings after a zoom."""
    store, timeline = Still(history(88, 100), span=(88 * S, 100 * S)), GpuTimeline(DEVICE.uuid, None)
    now = Live(at_ns=100 * S, source="nvml", gpus=(gpu(),))
    content = ScreenContent(live=now, format_time=str)
    assert timeline.range.edges(timeline.viewport(content, 60)) == (-20 * S, 100 * S), "before the first answer"
    timeline.history.add_answer(store.trace(DEVICE.uuid, -20 * S, 100 * S), -20 * S, 100 * S, now_ns=100 * S)
    view = timeline.viewport(content, 60)
    assert timeline.range.edges(view) == (88 * S, 100 * S)
    timeline.range.move(-60, view)
    timeline.range.move(-5, view)
    assert timeline.range.edges(view) == (88 * S, 100 * S), "nothing was read before the first cell"
    timeline.range.zoom(1, view)
    assert timeline.range.edges(replace(view, first_ns=timeline.history.first_ns))[0] < 0


def test_short_recording_fills_the_axis_of_its_gpu() -> None:
    whole = Viewport(13 * S, 5 * S, 60, (0, 13 * S))
    assert TimeRange().edges(whole) == (0, 13 * S)
    begin_ns, end_ns = TimeRange().edges(replace(whole, newest_ns=500 * S, past_ns=500 * S, whole_ns=(0, 500 * S)))
    assert end_ns - begin_ns == 120 * S


def test_windows_are_sorted_and_filtered_by_key() -> None:
    """The key o puts the worst window first, f filters by each verdict in turn, and the heading shows both."""
    app = top(replace(EIGHT, windows=THREE))

    def rows() -> list[str]:
        return [line.split()[0] for line in shown(app, WindowList).splitlines()[1:]]

    async def use(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: rows() == ["V", "R", "F"])
        await pilot.press("o")
        await until(pilot, lambda: rows() == ["R", "F", "V"])
        await pilot.press("f")
        await until(pilot, lambda: rows() == ["R"])
        assert "found: worst first, rejected" in shown(app, WindowList)
        await pilot.press("f", "f", "f")
        await until(pilot, lambda: rows() == ["R", "F", "V"])

    used(app, use)


def test_arrangement_keeps_open_windows_first() -> None:
    opened = window("d", "open", ago_s=None)
    assert [each.run for each in Arrangement(is_worst_first=True).of((*THREE, opened))] == ["d", "b", "c", "a"]
    assert Arrangement(status="unproven").of(THREE) == ()
    assert Arrangement(status="unproven").next_status(THREE) is None


def test_disturbing_process_is_named_with_its_window() -> None:
    listed = ProcessList(
        uuid=DEVICE.uuid, at_ns=NOW_NS, took_ns=0, processes=(Process(pid=7, name="bench"), Process(pid=8, name="neighbour"))
    )
    mine = window("0a", "open", ago_s=None, label="gemm", pids=[7])
    lines = words.text(gpu_facts.process_lines(replace(gpu(), process_list=listed), replace(EIGHT, windows=(mine,)), 120, 4))
    assert "neighbour, disturbs gemm" in lines
    assert "bench, works for gemm" in lines
    alone = words.text(gpu_facts.process_lines(replace(gpu(), process_list=listed), replace(EIGHT, windows=()), 120, 4))
    assert "disturbs" not in alone


@pytest.mark.parametrize(("size", "is_small"), [((80, 24), False), ((120, 40), False), ((79, 24), True), ((80, 23), True)])
def test_small_terminal_shows_a_notice(size: tuple[int, int], is_small: bool) -> None:
    app = top(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "LIVE" in shown(app, StatusLine))
        assert ("enlarge to 80×24" in shown(app, StatusLine)) is is_small
        assert "GPU" in shown(app, GpuList)

    used(app, use, size)


def test_power_of_a_log_is_shown() -> None:
    """A log of nvidia-smi has only the mean of a second, which serves as power in table and curve."""
    recorded = Recorded(LOG)
    (first,) = recorded.live(recorded.span_ns()[1]).gpus
    assert gpu_words.power(first).text.strip() == "208/700"
    at_ns = np.arange(0, 4 * S, S, dtype=np.int64)
    trace = Trace(columns={"power_average_w": Column(at_ns, np.full(4, 208.0))})
    assert chart_panels.value_at(chart_panels.POWER, trace, 2 * S) == (208.0, False)
