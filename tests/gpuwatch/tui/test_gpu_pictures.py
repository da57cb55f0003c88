"""Tests of one GPU's pictures against stored pictures; after an intended change, run pytest --snapshot-update and review."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from gpuwatch.tui.data_interfaces import ScreenContent
from gpuwatch.tui.widgets.curves import Curves
from gpuwatch.view.history import Recorded
from tests.gpuwatch.tui.detail import Host, Still, format_time
from tests.gpuwatch.tui.frozen import S
from tests.gpuwatch.tui.screens.test_gpu_screen import LIVE, NOW, RECORDING, TRACE
from tests.waiting import wait_until_async


def compare(
    snap_compare: Callable[..., bool], host: Host, size: tuple[int, int], keys: tuple[str, ...] = (), *, light: bool = False
) -> bool:
    async def ready(pilot: Pilot[None]) -> None:
        await wait_until_async(
            lambda: "20 ms record" in host.detail.query_one(Curves).text, what="the curves are drawn", pause=pilot.pause
        )
        if light:
            host.theme = "textual-light"
        await pilot.press(*keys)
        await pilot.pause()

    return snap_compare(host, terminal_size=size, run_before=ready)


@pytest.mark.parametrize(
    ("size", "keys", "light"),
    [((80, 24), ("left",) * 23, False), ((120, 40), (), False), ((120, 40), (), True), ((200, 60), ("minus",), False)],
)
def test_gpu_screen_picture(
    size: tuple[int, int], keys: tuple[str, ...], light: bool, snap_compare: Callable[..., bool]
) -> None:
    assert compare(snap_compare, Host(NOW, Still(TRACE)), size, keys, light=light)


def test_gpu_screen_picture_without_colour(snap_compare: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert compare(snap_compare, Host(NOW, Still(TRACE)), (80, 24), ("left",) * 23)


def test_recording_picture(snap_compare: Callable[..., bool]) -> None:
    past = Recorded(RECORDING)
    moment_ns = past.span_ns()[0] + 235 * S
    live = past.live(moment_ns)
    content = ScreenContent(live=live, format_time=format_time, past_ns=moment_ns)
    assert compare(snap_compare, Host(content, past, live.gpus[0].device.uuid), (120, 40))


def test_gpu_screen_picture_without_store(snap_compare: Callable[..., bool]) -> None:
    content = replace(NOW, live=replace(LIVE, windows=()))
    assert snap_compare(Host(content, None), terminal_size=(80, 24))
