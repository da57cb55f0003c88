"""Tests of the monitor in use: states and keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from textual.pilot import Pilot
from textual.widget import Widget

from gpuwatch.errors import DaemonError
from gpuwatch.tui.app import TopApp
from gpuwatch.tui.screens.help_screen import HelpScreen
from gpuwatch.tui.screens.overview_screen import WindowList
from gpuwatch.tui.widgets.gpu_list import GpuList
from gpuwatch.tui.widgets.line_view import LineView
from gpuwatch.tui.widgets.status_line import Banner, Notice, StatusLine
from gpuwatch.tui.widgets.text_lines import TextLines
from gpuwatch.view.live import Live
from tests.gpuwatch.tui.frozen import EIGHT, GONE, NO_GPU, ONE, STALE, Frozen, top
from tests.waiting import wait_until_async


def shown(app: TopApp, kind: type[TextLines | LineView]) -> str:
    return app.screen_stack[0].query_one(kind).text


Use: TypeAlias = Callable[[Pilot[None]], Awaitable[None]]


def used(app: TopApp, use: Use, size: tuple[int, int] = (100, 30)) -> TopApp:
    """Run the monitor with a user, and return the exited app."""

    async def lived() -> None:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: looks(app).looked_count > 0)
            await use(pilot)

    asyncio.run(lived())
    return app


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    await wait_until_async(holds, pause=pilot.pause)


def looks(app: TopApp) -> Frozen:
    assert isinstance(app.feed.source, Frozen)
    return app.feed.source


@pytest.mark.parametrize(
    ("now", "kind", "words"),
    [
        (EIGHT, StatusLine, "● LIVE  14:02:31  8 GPUs, 1 open window"), (EIGHT, GpuList, "LOST  GPU is lost (Xid 79)"),
        (EIGHT, GpuList, "STALE 7 s"), (EIGHT, WindowList, "R REJECTED"), (EIGHT, WindowList, "contention-process, power-limited"),
        (STALE, StatusLine, "! STALE"), (NO_GPU, GpuList, "no GPU to watch: libnvidia-ml"), (GONE, StatusLine, "× GONE"),
        (GONE, Notice, "the daemon went away (connection closed). r starts a daemon."), (ONE, Banner, "SIMULATED"),
        (replace(ONE, unanswered=("GPU 1: no answer for 3 s",)), GpuList, "not answering, by the driver's index: GPU 1: no answer"),
    ],
)  # fmt: skip
def test_state_is_named_in_words(now: Live | DaemonError, kind: type[TextLines | LineView], words: str) -> None:
    app = top(now)

    async def use(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: words in shown(app, kind))

    used(app, use)


def test_banner_marks_only_simulated_data() -> None:
    for now, seen in ((ONE, True), (EIGHT, False)):
        app = top(now)

        async def use(pilot: Pilot[None], app: TopApp = app, seen: bool = seen) -> None:
            await until(pilot, lambda: "GPU" in shown(app, GpuList))
            assert app.query_one(Banner).display is seen

        used(app, use)


def test_gone_daemon_is_shown_and_recovered_from() -> None:
    app = top(EIGHT, GONE)

    async def use(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "GONE" in shown(app, StatusLine))
        assert "REJECTED" in shown(app, WindowList), "the last answer stays on the screen"
        assert app.screen.has_class("old")
        await pilot.press("r")
        assert looks(app).started_again
        looks(app).pictures = [ONE]
        await until(pilot, lambda: "LIVE" in shown(app, StatusLine))
        assert not app.screen.has_class("old")
        assert "0 open windows" in shown(app, StatusLine)

    used(app, use)


def test_refusal_is_shown_in_full_without_useless_keys() -> None:
    """A daemon of another source is named in wrapped lines, and the keys to start, open and pause are not offered."""
    why = "expected source simulated:idle, found a daemon that watches simulated:steady-gemm; choose another --socket too"
    app = top(DaemonError(why, "source-mismatch"))

    async def use(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "× REFUSED" in shown(app, StatusLine))
        notice = app.screen.query_one(Notice)
        assert notice.text == f"{why}. After that daemon has stopped, r starts another."
        assert notice.size.height == 3
        assert not {"retry", "open", "pause"} & {
            each.binding.id for each in app.screen.active_bindings.values() if each.enabled
        }
        looks(app).pictures = [DaemonError("no daemon answers at s; start one with: gpuwatch daemon", "unreachable")]
        await until(pilot, lambda: "r starts a daemon" in shown(app, Notice))
        await pilot.press("r")
        assert looks(app).started_again
        looks(app).pictures = [EIGHT]
        await until(pilot, lambda: not notice.display)
        assert {"open", "pause"} <= {each.binding.id for each in app.screen.active_bindings.values() if each.enabled}

    used(app, use, (80, 24))


def test_space_pauses_and_resumes() -> None:
    app = top(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "LIVE" in shown(app, StatusLine))
        await pilot.press("space")
        assert "PAUSED" in shown(app, StatusLine)
        looks(app).pictures = [ONE]
        await pilot.pause(0.1)
        assert "8 GPUs" in shown(app, StatusLine)
        await pilot.press("space")
        await until(pilot, lambda: "1 GPU," in shown(app, StatusLine))

    used(app, use)


def test_help_lists_keys_and_closes() -> None:
    """The help lists keys, reasons and verdicts, and q closes the help."""
    app = top(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        said = app.screen.query_one(TextLines).text
        for words in ("pause", "light/dark", "quit", "X hw thermal", "V VALID"):
            assert words in said
        await pilot.press("q")
        assert not isinstance(app.screen, HelpScreen)

    used(app, use, (80, 24))


def test_palette_holds_actions_of_the_app() -> None:
    app = top(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        titles = {command.title for command in app.get_system_commands(app.screen)}
        assert {"Pause", "Start", "Light/dark", "Help", "Quit"} <= titles

    used(app, use)


def test_q_leaves_and_closes_the_connection() -> None:
    app = top(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await pilot.press("q")

    assert looks(used(app, use)).closed


def test_unchanged_screen_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    app = top(EIGHT)
    drawn: list[Any] = []

    def counted(drawing: Callable[..., Any]) -> Callable[..., Any]:
        def counts(self: Widget, *arguments: Any, **named: Any) -> Any:
            drawn.append(self)
            return drawing(self, *arguments, **named)

        return counts

    monkeypatch.setattr(TextLines, "update", counted(TextLines.update))
    monkeypatch.setattr(LineView, "render_line", counted(LineView.render_line))

    async def use(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: looks(app).looked_count > 3)
        drawn.clear()
        asked = looks(app).looked_count
        await until(pilot, lambda: looks(app).looked_count > asked + 3)
        assert not drawn

    used(app, use)


def test_smaller_terminal_is_redrawn() -> None:
    app = top(EIGHT)

    async def use(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "X hw thermal" in shown(app, GpuList))
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "X hw thermal" not in shown(app, GpuList))

    used(app, use, (140, 40))
