"""Tests of the monitor's past."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from gpuwatch.tui.app import TopApp
from gpuwatch.tui.screens.events_screen import EventsScreen
from gpuwatch.tui.screens.goto_screen import GoToScreen
from gpuwatch.tui.screens.gpu_screen import GpuScreen
from gpuwatch.tui.screens.overview_screen import WindowList
from gpuwatch.tui.screens.window_screen import WindowScreen
from gpuwatch.tui.widgets.gpu_list import GpuList
from gpuwatch.tui.widgets.line_view import LineView
from gpuwatch.tui.widgets.row_list import RowList
from gpuwatch.tui.widgets.status_line import StatusLine
from gpuwatch.tui.widgets.text_lines import TextLines
from tests.gpuwatch.tui.frozen import EIGHT, GONE, NOW_NS, FrozenPast, S, travelling
from tests.gpuwatch.tui.test_app import until

Use: TypeAlias = Callable[[Pilot[None]], Awaitable[None]]


def shown(app: TopApp, kind: type[TextLines | LineView]) -> str:
    return app.screen.query_one(kind).text


def used(app: TopApp, use: Use, size: tuple[int, int] = (100, 40)) -> TopApp:
    async def lived() -> None:
        async with app.run_test(size=size) as pilot:
            await until(
                pilot,
                lambda: (
                    "LIVE" in shown(app, StatusLine) or "PAST" in shown(app, StatusLine) or "GONE" in shown(app, StatusLine)
                ),
            )
            await use(pilot)

    asyncio.run(lived())
    return app


def test_arrows_step_through_time_up_to_now() -> None:
    """Left, right and the brackets step through time, and a step to now returns to live."""
    app = travelling(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await pilot.press("left")
        await until(pilot, lambda: "◂ PAST  14:02:30, 1 s ago" in shown(app, StatusLine))
        assert "1001/1980" in shown(app, GpuList)
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: "14:02:20, 11 s ago" in shown(app, StatusLine))
        await pilot.press("shift+left", "shift+right", "right")
        await until(pilot, lambda: "14:02:21, 10 s ago" in shown(app, StatusLine))
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: "● LIVE" in shown(app, StatusLine))
        assert "1575/1980" in shown(app, GpuList)

    used(app, use)


def test_l_returns_to_live_and_is_offered_only_in_the_past() -> None:
    app = travelling(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        assert "l" not in app.screen.active_bindings
        await pilot.press("left")
        await until(pilot, lambda: "PAST" in shown(app, StatusLine))
        assert "l" in app.screen.active_bindings
        await pilot.press("l")
        await until(pilot, lambda: "LIVE" in shown(app, StatusLine))

    used(app, use)


def test_fast_keys_query_only_the_last_moment() -> None:
    past = FrozenPast()
    app = travelling(EIGHT, past=past)

    async def use(pilot: Pilot[None]) -> None:
        for _ in range(20):
            app.action_step(-1)
        await until(pilot, lambda: "20 s ago" in shown(app, StatusLine))
        assert past.asked_ns == [NOW_NS - 20 * S]

    used(app, use)


def test_step_before_the_first_moment_is_reported() -> None:
    """A step before the first moment shows the first moment and a message."""
    app = travelling(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        app.travel_to(NOW_NS - 5000 * S)
        await until(pilot, lambda: "14:00:51, 1 min 40 s ago" in shown(app, StatusLine))
        await until(pilot, lambda: bool(app._notifications))
        assert [str(each.message) for each in app._notifications] == ["the store holds nothing before 14:00:51"]

    used(app, use)


def test_refusing_store_is_reported() -> None:
    """The monitor reports a store's refusal, and stays live."""
    app = travelling(EIGHT, past=FrozenPast(refuses="/state/gpuwatch.db: expected a database, found [none]"))

    async def use(pilot: Pilot[None]) -> None:
        await pilot.press("left")
        await until(pilot, lambda: len(app._notifications) > 0)
        assert "expected a database, found [none]" in next(iter(app._notifications)).message
        assert "LIVE" in shown(app, StatusLine)

    used(app, use)


def test_gone_daemon_leaves_the_past_open() -> None:
    app = travelling(EIGHT, GONE)

    async def use(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "GONE" in shown(app, StatusLine))
        await pilot.press("left")
        await until(pilot, lambda: "PAST" in shown(app, StatusLine))
        assert not app.screen.has_class("old")
        await pilot.press("l")
        await until(pilot, lambda: "GONE" in shown(app, StatusLine))

    used(app, use)


@pytest.mark.parametrize(("typed", "ago"), [("-30s", "30 s ago"), ("-1m", "1 min 00 s ago")])
def test_g_goes_to_a_typed_time(typed: str, ago: str) -> None:
    app = travelling(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await pilot.press("g")
        await until(pilot, lambda: isinstance(app.screen, GoToScreen))
        app.screen.query_one(Input).value = typed
        await pilot.press("enter")
        await until(pilot, lambda: ago in shown(app, StatusLine))

    used(app, use)


def test_bad_time_is_explained_and_input_stays_open() -> None:
    app = travelling(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await pilot.press("g")
        await until(pilot, lambda: isinstance(app.screen, GoToScreen))
        app.screen.query_one(Input).value = "yesterdayish"
        await pilot.press("enter")
        await until(pilot, lambda: "expected 14:02:31, -5m" in shown(app, TextLines))
        assert "found 'yesterdayish'" in shown(app, TextLines)
        await pilot.press("escape")
        assert not isinstance(app.screen, GoToScreen)
        assert "LIVE" in shown(app, StatusLine)

    used(app, use)


def test_space_plays_and_stops_the_past() -> None:
    past = FrozenPast()
    app = travelling(EIGHT, past=past)

    async def use(pilot: Pilot[None]) -> None:
        app.travel_to(NOW_NS - 50 * S)
        await until(pilot, lambda: "50 s ago" in shown(app, StatusLine))
        await pilot.press("space")
        await until(pilot, lambda: "49 s ago" in shown(app, StatusLine))
        await pilot.press("space")
        asked = len(past.asked_ns)
        await pilot.pause(0.2)
        assert len(past.asked_ns) <= asked + 1

    used(app, use)


def test_recording_opens_at_its_end_and_has_no_live_mode() -> None:
    app = travelling()

    async def use(pilot: Pilot[None]) -> None:
        assert "◂ PAST  14:02:31" in shown(app, StatusLine)
        assert "ago" not in shown(app, StatusLine)
        await pilot.press("right")
        await until(pilot, lambda: any("the recording ends at 14:02:31" in each.message for each in app._notifications))
        await pilot.press("l", "left")
        await until(pilot, lambda: "14:02:30" in shown(app, StatusLine))

    used(app, use)


def test_enter_jumps_to_a_finding_and_escape_returns() -> None:
    app = travelling(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await pilot.press("up", "up", "up", "up", "enter")  # the window with findings is the fourth from below
        await until(pilot, lambda: isinstance(app.screen, WindowScreen) and "contention-process" in shown(app, RowList))
        text = shown(app, RowList)
        for words in ("R REJECTED  gemm-4096  NVIDIA H200  12.0 s", "reads 12.0% too long", "14:02:11 for 2.0 s", "busy_ratio 0.2013",
                      "→ Stop process 8", "n power-limited  note"):  # fmt: skip
            assert words in text
        assert "None" not in text
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, GpuScreen) and "20 s ago" in shown(app, StatusLine))
        assert isinstance(app.screen, GpuScreen)
        assert app.screen.uuid == "GPU-00000001"
        await pilot.press("escape")
        assert isinstance(app.screen, WindowScreen)
        await pilot.press("escape")
        await until(pilot, lambda: "1020/1980" in shown(app, GpuList))
        assert "3 more" not in shown(app, WindowList)

    used(app, use)


def test_enter_jumps_to_an_event() -> None:
    app = travelling(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, EventsScreen) and "Xid 79" in shown(app, RowList))
        text = shown(app, RowList)
        assert "window gemm-4096, REJECTED: contention-process, power-limited" in text
        assert "copy" not in text, "that window ended a day before"
        await pilot.press("down", "down", "down", "down", "enter")
        await until(pilot, lambda: not isinstance(app.screen, EventsScreen) and "PAST" in shown(app, StatusLine))

    used(app, use)


def test_footer_names_the_present_action_of_space() -> None:
    app = travelling(EIGHT)

    def offered() -> str:
        return app.screen.active_bindings["space"].binding.description

    async def use(pilot: Pilot[None]) -> None:
        assert offered() == "pause"
        await pilot.press("space")
        assert offered() == "play"
        assert "PAUSED" in shown(app, StatusLine)
        await pilot.press("space", "left")
        await until(pilot, lambda: "PAST" in shown(app, StatusLine))
        assert offered() == "play"
        await pilot.press("space")
        assert offered() == "pause"

    used(app, use)
