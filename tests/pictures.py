"""The pictures of the pages, in a light and a dark theme: ``python -m tests.pictures [NAME…]`` makes all or the named pictures.

Each picture shows a command's output for a committed recording, so that unchanged code gives unchanged files.  The dashboards'
pictures differ between runs: they show minutes of simulated GPUs.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from textual.pilot import Pilot

from gpuwatch.tui.app import TopApp
from gpuwatch.tui.widgets.gpu_list import GpuList
from gpuwatch.view.history import Recorded
from tests import verdict_pictures
from tests.dashboards import dashboard_pictures
from tests.gpuwatch import chromium
from tests.gpuwatch.report import shown

DOCS = Path(__file__).parents[1] / "docs"
RECORDING = Path(os.path.relpath(Path(__file__).parent / "traces" / "h200-windows.capsule"))  # shown as the host's name
THEMES = ("light", "dark")
# Colours of the frame and the title around textual's screenshots, and their replacements on a light page.
LIGHT_FRAME = {"#292929": "#d0d0d0", "#c5c8c6": "#202020"}

Use = Callable[["Pilot[None]"], Awaitable[None]]


def verdicts() -> None:
    verdict_pictures.main(())


def overview() -> None:
    """Draw the whole recording: its GPU, and its windows with their verdicts."""

    async def use(pilot: Pilot[None]) -> None:
        await _seen(pilot, " neighbour-gemm-4096")
        await pilot.pause(1.0)

    _recording((108, 24), use, "top")


def detail() -> None:
    """Draw the GPU around a window of the recording with a neighbour."""

    async def use(pilot: Pilot[None]) -> None:
        await _opened(pilot, " neighbour-gemm-4096")
        await pilot.press("enter")
        await pilot.pause(1.0)
        await pilot.press("plus")
        await pilot.pause(1.0)
        await pilot.app.run_action("step(2)")
        await pilot.pause(1.0)

    _recording((118, 34), use, "top-gpu")


def findings() -> None:
    """Draw the findings of the window with a neighbour."""

    async def use(pilot: Pilot[None]) -> None:
        await _opened(pilot, " neighbour-gemm-4096")

    _recording((118, 24), use, "top-window")


def report() -> None:
    shown.pictures(DOCS)


def dashboards() -> None:
    dashboard_pictures.pictures(DOCS)


async def _seen(pilot: Pilot[None], label: str) -> None:
    """Wait until the list shows the window with a label, for at most 20 s."""
    for _ in range(200):
        if label in _text(pilot):
            return
        await pilot.pause(0.1)


async def _opened(pilot: Pilot[None], label: str) -> None:
    """Open the findings of the window with a label."""
    app = pilot.app
    assert isinstance(app, TopApp)
    await _seen(pilot, label)
    windows = app.screen_stack[0].query_one("#windows").children[0].text.splitlines()  # type: ignore[attr-defined]
    line = next(number for number, text in enumerate(windows) if label in text)
    await pilot.press("up", *["up"] * (len(windows) - 1 - line), "enter")
    await pilot.pause(1.0)


def _text(pilot: Pilot[None]) -> str:
    return "\n".join(str(getattr(widget, "text", "")) for widget in pilot.app.screen_stack[0].query("#windows *"))


def _recording(size: tuple[int, int], use: Use, name: str) -> None:
    for theme in THEMES:
        past = Recorded(RECORDING)
        begin_ns, _ = past.span_ns()
        format_time = partial(_since, begin_ns)
        top = TopApp(None, past, format_time=format_time, wall_offset_ns=None)
        _photographed(top, size, use, name, theme)


def _since(begin_ns: int, at_ns: int) -> str:
    return f"t{(at_ns - begin_ns) / 1e9:+.1f} s"


def _photographed(top: TopApp, size: tuple[int, int], use: Use, name: str, theme: str) -> None:
    """Render as pixels in a browser, because an SVG on a code host would depend on the reader's fonts."""

    async def lived() -> str:
        async with top.run_test(size=size) as pilot:
            top.theme = f"textual-{theme}"
            await use(pilot)
            assert pilot.app.screen_stack[0].query(GpuList)
            return pilot.app.export_screenshot(title="gpuwatch top")

    svg = verdict_pictures.without_web_fonts(asyncio.run(lived()))
    for was, now in LIGHT_FRAME.items() if theme == "light" else ():
        svg = svg.replace(was, now)
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found is not None
    width, height = (round(float(each)) for each in found.groups())
    with chromium.running() as browser, tempfile.TemporaryDirectory() as made_in:
        page_at = Path(made_in) / "screen.html"
        page_at.write_text(f'<body style="margin:0;background:#fff0">{svg.replace("<svg ", f"<svg width={width} ", 1)}')
        page = browser.open(page_at, width=width, height=height)
        page.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        page.screenshot(DOCS / f"{name}-{theme}.png", whole=False)


PICTURES = {
    "verdicts": verdicts,
    "overview": overview,
    "detail": detail,
    "findings": findings,
    "report": report,
    "dashboards": dashboards,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name]()
