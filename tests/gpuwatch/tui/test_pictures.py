"""Tests of the screens' pictures against stored pictures; after an intended change, run pytest --snapshot-update and review."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from gpuwatch.errors import DaemonError
from gpuwatch.tui.app import TopApp
from gpuwatch.tui.widgets.status_line import StatusLine
from gpuwatch.view.live import Live
from tests.gpuwatch.tui.frozen import EIGHT, GONE, NO_GPU, ONE, TWO, top, travelling
from tests.waiting import wait_until_async

RATE_HZ = 3.0  # low, because pytest takes a picture only once the app is idle
SCENES: dict[str, tuple[list[Live | DaemonError], tuple[int, int], list[str], str]] = {
    "eight GPUs on a small screen": ([EIGHT], (80, 24), [], "LIVE"),
    "two GPUs on a small screen": ([TWO], (80, 24), [], "LIVE"),
    "eight GPUs on a flat screen": ([EIGHT], (200, 24), [], "LIVE"),
    "eight GPUs": ([EIGHT], (120, 40), [], "LIVE"),
    "eight GPUs on a light screen": ([EIGHT], (120, 40), ["t"], "LIVE"),
    "simulated": ([ONE], (80, 24), [], "LIVE"),
    "no GPU": ([NO_GPU], (80, 24), [], "LIVE"),
    "the daemon is gone": ([EIGHT, GONE], (80, 24), [], "GONE"),
    "eight GPUs on a large screen": ([EIGHT], (200, 60), [], "LIVE"),
    "help": ([EIGHT], (80, 24), ["question_mark"], "LIVE"),
}
BACK: dict[str, tuple[tuple[int, int], list[str], str]] = {
    "back in time": ((120, 40), ["left_square_bracket"], "PAST"),
    "a window chosen": ((80, 24), ["down", "up", *["down"] * 10], "LIVE"),
    "a window's findings": ((80, 24), ["up", "up", "up", "up", "enter"], "LIVE"),
    "a window's findings on a large light screen": ((200, 60), ["t", "up", "up", "up", "up", "enter", "a"], "LIVE"),
    "a rule explained": ((80, 24), ["up", "up", "up", "up", "e"], "LIVE"),
    "events": ((80, 24), ["v", "down", "down"], "LIVE"),
    "processes": ((80, 24), ["p"], "LIVE"),
    "a time asked for": ((80, 24), ["g", "x", "enter"], "LIVE"),
}


def compare(
    snap_compare: Callable[..., bool], app: TopApp, size: tuple[int, int], keys: list[str], state: str, after: str = ""
) -> bool:
    async def ready(pilot: Pilot[None]) -> None:
        await seen(pilot, state)
        await pilot.press(*keys)
        await seen(pilot, after or state)
        await app.workers.wait_for_complete()

    async def seen(pilot: Pilot[None], words: str) -> None:
        await wait_until_async(
            lambda: words in app.screen_stack[0].query_one(StatusLine).text,
            what=f"the status line shows {words!r}",
            pause=pilot.pause,
        )

    return snap_compare(app, terminal_size=size, run_before=ready)


@pytest.mark.parametrize("scene", SCENES)
def test_overview_picture(scene: str, snap_compare: Callable[..., bool]) -> None:
    pictures, size, keys, state = SCENES[scene]
    assert compare(snap_compare, travelling(*pictures, rate_hz=RATE_HZ), size, keys, state)


@pytest.mark.parametrize("scene", BACK)
def test_screen_picture(scene: str, snap_compare: Callable[..., bool]) -> None:
    size, keys, state = BACK[scene]
    assert compare(snap_compare, travelling(EIGHT, rate_hz=RATE_HZ), size, keys, "LIVE", state)


def test_chosen_line_picture_without_colour(snap_compare: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert compare(snap_compare, travelling(EIGHT, rate_hz=RATE_HZ), (80, 24), ["down", "down"], "LIVE")


def test_overview_picture_without_colour(snap_compare: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert compare(snap_compare, top(EIGHT, rate_hz=RATE_HZ), (80, 24), [], "LIVE")
