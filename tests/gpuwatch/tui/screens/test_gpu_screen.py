"""Tests of the screen of one GPU in use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot
from textual.strip import Strip

from annotate.evidence import Trace
from gpuwatch.tui.data_interfaces import HistorySource, ScreenContent
from gpuwatch.tui.gpu_history import SLICE_NS
from gpuwatch.tui.screens.gpu_screen import GpuScreen
from gpuwatch.tui.text.plot import GUTTER_COUNT
from gpuwatch.tui.widgets.curves import Curves
from gpuwatch.tui.widgets.text_lines import TextLines
from gpuwatch.view.history import Recorded
from tests.gpuwatch.tui.detail import Host, Still, format_time, lived
from tests.gpuwatch.tui.frozen import EIGHT, NOW_NS, S, gpu, window
from tests.waiting import wait_until_async

RECORDING = Path(__file__).parents[3] / "traces" / "h200-windows.capsule"
TRACE = lived()
WINDOWS = (
    window("5", "open", ago_s=None, label="gemm-4096", pids=[7]),
    window("4", "flagged", ago_s=60.0, label="attention", pids=[7]),
)
LIVE = replace(
    EIGHT,
    gpus=(gpu(0, pids=[7, 8], sm_clock_mhz=1980, power_w=640.0, temperature_c=84, event_reasons_mask=0), *EIGHT.gpus[1:]),
    windows=WINDOWS,
)
NOW = ScreenContent(live=LIVE, format_time=format_time)


class Seen:
    """The screen of one GPU and the actions of a user."""

    def __init__(self, host: Host, pilot: Pilot[None]) -> None:
        self.host, self._pilot = host, pilot

    @property
    def curves(self) -> str:
        return self.host.detail.query_one(Curves).text

    def words(self, name: str) -> str:
        return self.host.detail.query_one(name, TextLines).text

    def line(self, beginning: str) -> str:
        return next((line for line in self.curves.split("\n") if line.strip().startswith(beginning)), "")

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)
        await self._pilot.pause()

    async def click(self, column: int) -> None:
        await self._pilot.click(Curves, offset=(column, 3))
        await self._pilot.pause()

    async def resize(self, width: int, height: int) -> None:
        await self._pilot.resize_terminal(width, height)
        await self._pilot.pause()

    async def until(self, holds: Callable[[], bool]) -> None:
        await wait_until_async(holds, what=lambda: str(self.curves), pause=self._pilot.pause)


def used(
    use: Callable[[Seen], Awaitable[None]], past: HistorySource | None, *, content: ScreenContent = NOW, size: tuple[int, int] = (120, 40),
    uuid: str = "GPU-00000000",
) -> None:  # fmt: skip
    async def lived() -> None:
        host = Host(content, past, uuid)
        async with host.run_test(size=size) as pilot:
            await pilot.pause()
            await use(Seen(host, pilot))

    asyncio.run(lived())


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (40, 12), (20, 6), (9, 3)])
def test_gpu_screen_fits_any_size(size: tuple[int, int]) -> None:
    """At any size no line is wider than the screen, and the least important curve disappears first."""

    async def use(seen: Seen) -> None:
        await seen.until(lambda: "P" in seen.line("reason") or size[1] < 12)
        assert all(len(line) <= size[0] for line in seen.curves.split("\n"))
        shown = [title for title in ("SM clock", "power", "temperature", "utilisation") if seen.line(title)]
        assert shown == ["SM clock", "power", "temperature", "utilisation"][: len(shown)], "the least important goes first"
        assert len(shown) == {60: 4, 40: 4, 24: 3}.get(size[1], len(shown))

    used(use, Still(TRACE), size=size)


def test_missing_history_is_fetched_once() -> None:
    """The screen queries the unknown part of the range once, and draws the answer."""
    past = Still(TRACE)

    async def use(seen: Seen) -> None:
        await seen.until(lambda: "345–1980 in view" in seen.line("SM clock"))
        assert "20 ms record" in seen.line("power")
        assert "X hw thermal 8" in seen.line("in view")
        assert "FFFFF" in seen.line("procs"), "a neighbour while a window was open"
        assert "FFFF" in seen.line("window")
        assert seen.curves.split("\n")[-2].count("x") == 1, "the axis shows an Xid"
        assert len(past.asked) == 1
        for _ in range(8):
            seen.host.show_content(NOW)
        await seen.until(lambda: len(past.asked) == 1)

    used(use, past)


def test_cursor_shows_values_and_processes_of_a_moment() -> None:
    """The cursor shows the values, processes and windows of a moment; the key End removes the cursor."""

    async def use(seen: Seen) -> None:
        await seen.until(lambda: "in view" in seen.line("SM clock"))
        await seen.press("left")
        assert "▲ 00:16:39" in seen.line("▲")
        assert "2 processes, 1 foreign  o open gemm-4096" in seen.line("▲")
        await seen.click(GUTTER_COUNT + 79)  # 35 s ago
        assert "X hw thermal  H hw slowdown  P power cap  xid 63  1 process" in seen.line("▲")
        assert "MHz 5" in seen.line("SM clock") or "MHz 6" in seen.line("SM clock")
        before = seen.line("▲")
        await seen.press("right", "left")
        assert seen.line("▲") == before
        await seen.press("end")
        assert not seen.line("▲")

    used(use, Still(TRACE))


def test_cursor_in_a_gap_shows_no_values() -> None:
    async def use(seen: Seen) -> None:
        await seen.until(lambda: "in view" in seen.line("SM clock"))
        await seen.click(GUTTER_COUNT + 62)  # 53 s ago, in the silence
        assert "– not observed" in seen.line("▲")
        assert all(seen.line(title).split()[-5:][0] != "0" for title in ("power", "temperature"))
        assert " – " in seen.line("SM clock")
        assert " – " in seen.line("power")

    used(use, Still(TRACE))


def test_zoom_and_pan_fetch_missing_data() -> None:
    past = Still(TRACE)

    async def use(seen: Seen) -> None:
        await seen.until(lambda: "00:14:40" in seen.curves)
        await seen.press("plus")
        await seen.until(lambda: "00:16:10" in seen.curves)
        await seen.press("minus", "minus")
        await seen.until(lambda: "00:06:40" in seen.curves and "345–" in seen.line("SM clock"))
        await seen.until(lambda: len(past.asked) == 5)
        assert all(end_ns - begin_ns <= SLICE_NS for begin_ns, end_ns in past.asked)
        await seen.press("shift+left")
        await seen.until(lambda: "00:11:40" in seen.curves)
        await seen.press("shift+right", "shift+right")
        await seen.until(lambda: "00:06:40" in seen.curves)

    used(use, past)


def test_zoom_keeps_the_cursor_in_place() -> None:
    async def use(seen: Seen) -> None:
        await seen.until(lambda: "in view" in seen.line("SM clock"))
        await seen.click(GUTTER_COUNT + 56)
        place = axis(seen).index("▲")
        said = seen.line("▲")
        await seen.press("plus")
        assert abs(axis(seen).index("▲") - place) <= 1
        assert said.split(")")[0] == seen.line("▲").split(")")[0]

    def axis(seen: Seen) -> str:
        return next(line for line in seen.curves.split("\n") if "▲" in line and not line.strip().startswith("▲"))

    used(use, Still(TRACE))


def test_cursor_at_an_edge_moves_the_range() -> None:
    async def use(seen: Seen) -> None:
        await seen.until(lambda: "00:14:40" in seen.curves)
        await seen.click(GUTTER_COUNT)
        await seen.press("left")
        assert "00:14:10" in seen.curves
        assert "▲ 00:14:39" in seen.curves

    used(use, Still(TRACE))


def test_past_moment_is_centred_and_marked() -> None:
    then_ns = NOW_NS - 80 * S
    content = replace(NOW, live=replace(LIVE, at_ns=then_ns), past_ns=then_ns)

    async def use(seen: Seen) -> None:
        await seen.until(lambda: "P power cap" in seen.line("▲") or "· none" in seen.line("▲"))
        assert "▲ 00:15:20" in seen.line("▲")
        await seen.until(lambda: "00:16:20" in seen.curves)
        seen.host.show_content(replace(content, live=replace(LIVE, at_ns=then_ns + S), past_ns=then_ns + S))
        assert "▲ 00:15:21" in seen.line("▲")
        seen.host.show_content(NOW)
        assert not seen.line("▲")
        await seen.until(lambda: "FFFFF" in seen.line("procs"))

    used(use, Still(TRACE), content=content)


def test_past_open_window_has_its_later_verdict() -> None:
    then_ns = NOW_NS - 80 * S
    opened = msgspec.structs.replace(WINDOWS[0], begin_ns=then_ns, end_ns=None)
    content = replace(NOW, live=replace(LIVE, at_ns=then_ns, windows=(opened,)), past_ns=then_ns)
    became = msgspec.structs.replace(opened, status="rejected", end_ns=then_ns + 20 * S)

    async def use(seen: Seen) -> None:
        await seen.until(lambda: seen.line("window").count("R") > 10)
        assert "o" not in seen.line("window").partition("│")[2]

    used(use, Still(TRACE, later=(became,)), content=content)


def test_past_range_ends_at_the_newest_moment() -> None:
    then_ns = NOW_NS - 10 * S
    content = replace(NOW, live=replace(LIVE, at_ns=then_ns), past_ns=then_ns)

    async def use(seen: Seen) -> None:
        await seen.until(lambda: "00:14:40" in seen.curves and "00:16:40" in seen.curves)

    used(use, Still(TRACE), content=content)


def test_curves_without_a_store_hold_live_answers_only() -> None:
    """Without a store the curves grow from live answers, and the screen shows a notice."""

    async def use(seen: Seen) -> None:
        assert "curves hold only the live answers to this screen" in seen.curves
        for step in range(1, 9):
            at_ns = NOW_NS + step * S // 2
            later = gpu(0, age_s=-step / 2, pids=[7], sm_clock_mhz=1000)
            seen.host.show_content(replace(NOW, live=replace(LIVE, at_ns=at_ns, gpus=(later, *LIVE.gpus[1:]))))
        assert "1000 MHz" in seen.line("SM clock")
        assert "1000–1980 in view" in seen.line("SM clock")

    used(use, None)


def test_refusing_store_is_shown_and_queried_again() -> None:
    """The screen shows a store's refusal without control characters, and queries the store again later."""
    past = Still(TRACE, refusal="gpuwatch.db: \x1b[31mlocked")

    async def use(seen: Seen) -> None:
        await seen.until(lambda: "locked; curves hold only" in seen.curves)
        assert "\x1b" not in seen.curves
        asked_count, past.refusal = len(past.asked), None
        seen.host.show_content(replace(NOW, live=replace(LIVE, at_ns=NOW_NS + S)))
        assert len(past.asked) == asked_count
        seen.host.show_content(replace(NOW, live=replace(LIVE, at_ns=NOW_NS + 6 * S)))
        await seen.until(lambda: "locked" not in seen.curves and "345–1980 in view" in seen.line("SM clock"))

    used(use, past)


def test_n_and_tab_turn_to_the_next_gpu() -> None:
    """The keys n and Tab turn to the next GPU, N and Shift+Tab to the previous one."""

    async def use(seen: Seen) -> None:
        await seen.press("n")
        assert "GPU 1 of 0–7" in seen.words("#head")
        await seen.press("shift+tab", "N")
        assert "GPU 7 of 0–7" in seen.words("#head")
        assert "× LOST  GPU is lost (Xid 79)" in seen.words("#head")
        await seen.press("tab")
        assert "GPU 0 of 0–7" in seen.words("#head")
        assert seen.host.detail.uuid == "GPU-00000000"

    used(use, Still(TRACE))


@pytest.mark.parametrize(
    ("content", "uuid", "said"),
    [
        (NOW, "GPU-00000006", "! STALE 7 s"), (NOW, "GPU-none", "× no such GPU at this time"),
        (NOW, "GPU-00000000", "GPU-00000000"), (NOW, "GPU-00000005", "MIG"),
    ],
)  # fmt: skip
def test_head_shows_the_state_of_the_gpu(content: ScreenContent, uuid: str, said: str) -> None:
    async def use(seen: Seen) -> None:
        await seen.until(lambda: said in seen.words("#head"))

    used(use, Still(), content=content, uuid=uuid)


def test_processes_have_owners_while_a_window_is_open() -> None:
    """Processes are own or foreign while a window is open, and unknown otherwise."""

    async def use(seen: Seen) -> None:
        lines = seen.words("#processes").split("\n")
        assert [line.split()[:2] for line in lines] == [["FOREIGN", "8"], ["own", "7"]]
        seen.host.show_content(replace(NOW, live=replace(LIVE, windows=())))
        assert "FOREIGN" not in seen.words("#processes")
        assert seen.words("#processes").count("unknown") == 2
        crowd = replace(LIVE, gpus=(gpu(0, pids=list(range(10, 30))),))
        seen.host.show_content(replace(NOW, live=crowd))
        assert "and 17 more" in seen.words("#processes")

    used(use, Still())


def test_escape_leaves_the_gpu_screen() -> None:
    async def use(seen: Seen) -> None:
        await seen.press("escape")
        assert not isinstance(seen.host.screen, GpuScreen)

    used(use, Still())


def test_only_changed_lines_are_redrawn() -> None:
    drawn: list[int] = []

    class Counted(Curves):
        def render_line(self, y: int) -> Strip:
            drawn.append(y)
            return super().render_line(y)

    async def use(seen: Seen) -> None:
        await seen.until(lambda: "345–1980 in view" in seen.line("SM clock"))
        seen.host.detail.query_one(Curves).__class__ = Counted
        seen.host.show_content(replace(NOW, live=replace(LIVE, at_ns=NOW_NS + S // 1000)))
        await seen.press("end")
        assert not drawn, "no line changed"
        await seen.click(GUTTER_COUNT + 3)
        assert drawn
        drawn.clear()
        await seen.press("right")
        assert len(set(drawn)) < 34, "the strips stayed"

    used(use, Still(TRACE))


def test_power_line_is_the_limit_in_force() -> None:
    async def use(seen: Seen) -> None:
        assert "limit 700" in seen.line("power")
        lowered = replace(LIVE, at_ns=NOW_NS + S, gpus=(gpu(0, power_limit_w=450.0),))
        seen.host.show_content(replace(NOW, live=lowered))
        assert "limit 450" in seen.line("power")
        assert "limit 450 W" in seen.words("#limits")

    used(use, Still())


def test_recording_shows_its_neighbour_and_reasons() -> None:
    past = Recorded(RECORDING)
    begin_ns = past.span_ns()[0]
    moment_ns = begin_ns + 235 * S
    live = past.live(moment_ns)

    async def use(seen: Seen) -> None:
        await seen.until(lambda: "20 ms record" in seen.line("power"))
        assert "RRRRR" in seen.line("window"), "the window with a neighbour was rejected"
        assert "FFFFF" in seen.line("procs")
        assert "PPPPP" in seen.line("reason")
        assert "–––" in seen.line("reason"), "between two windows nothing was recorded"

    used(use, past, content=ScreenContent(live=live, format_time=format_time, past_ns=moment_ns), uuid=live.gpus[0].device.uuid)


def test_unread_gpu_has_no_values() -> None:
    async def use(seen: Seen) -> None:
        await seen.until(lambda: "– reasons were not observed" in seen.curves)
        assert " – " in seen.line("power") + " "
        assert "0 W" not in seen.curves

    lost = replace(LIVE, gpus=(replace(gpu(0), rows={}, process_list=None),))
    used(use, Still(Trace()), content=replace(NOW, live=lost))
