"""The pictures of the README: what the commands really print and show.  ``python -m tests.pictures [NAME…]`` makes some only."""

from __future__ import annotations

import asyncio
import io
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text
from textual.pilot import Pilot

from gpuwatch.client.window import window
from gpuwatch.tui.app import TopApp
from gpuwatch.tui.overview_history import RANGE_NS
from gpuwatch.tui.widgets.gpu_list import GpuList
from gpuwatch.view.history import Recorded, StoredHistory
from gpuwatch.view.live import Looker
from tests.gpuwatch import chromium
from tests.gpuwatch.live import running
from tests.gpuwatch.report import shown

DOCS = Path(__file__).parents[1] / "docs"
RECORDING = Path(os.path.relpath(Path(__file__).parent / "traces" / "h200-windows.capsule"))  # as somebody here names it
COLUMNS = 110
SCENES = "simulated:steady-gemm,from-idle,neighbour,thermal"

Use = Callable[["Pilot[None]"], Awaitable[None]]


def demo() -> None:
    """Run a command and draw its output, both streams as a terminal would mix them."""
    command = ["demo"]
    done = subprocess.run(
        [sys.executable, "-m", "gpuwatch", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(f"$ gpuwatch {' '.join(command)}", style="bold"))
    console.print(Text(done.stdout))
    (DOCS / "demo.svg").write_text(_bare(console.export_svg(title="gpuwatch demo, on a machine without a GPU")))


def overview() -> None:
    """Four simulated GPUs and a few windows, once the ribbons are full."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), SCENES) as daemon:
        looker = Looker(daemon.settings)
        gpus = [gpu.device.uuid for gpu in looker.look().gpus]
        looker.close()
        begun = threading.Event()

        def measure() -> None:
            begun.wait(RANGE_NS / 1e9 - 20)
            for number, (label, seconds) in enumerate(
                (("copy-1g", 0.3), ("gemm-4096", 4.0), ("attention", 4.0), ("conv3x3", 4.0))
            ):
                with window(label, gpus=[gpus[number]], sync=False, settings=daemon.settings) as judged:
                    begun.wait(seconds)
                _ = judged.verdicts
            with window("gemm-8192", gpus=[gpus[1]], sync=False, settings=daemon.settings):
                begun.wait(12.0)

        thread = threading.Thread(target=measure)
        thread.start()

        async def use(pilot: Pilot[None]) -> None:
            for _ in range(2000):
                if "gemm-8192" in _text(pilot):
                    break
                await pilot.pause(0.1)
            await pilot.pause(3.0)

        _photographed(TopApp(Looker(daemon.settings), StoredHistory(lambda: daemon.settings.state)), (118, 26), use, "top")
        thread.join()


def detail() -> None:
    """A window of the recording in which a neighbour came, once it was told who used how much."""

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
    async def use(pilot: Pilot[None]) -> None:
        await _opened(pilot, " neighbour-gemm-4096")

    _recording((118, 22), use, "top-window")


def report() -> None:
    shown.pictures(DOCS)


async def _opened(pilot: Pilot[None], label: str) -> None:
    """The findings of the window of that label."""
    app = pilot.app
    assert isinstance(app, TopApp)
    for _ in range(200):
        if label in _text(pilot):
            break
        await pilot.pause(0.1)
    windows = app.screen_stack[0].query_one("#windows").children[0].text.splitlines()  # type: ignore[attr-defined]
    line = next(number for number, text in enumerate(windows) if label in text)
    await pilot.press("up", *["up"] * (len(windows) - 1 - line), "enter")
    await pilot.pause(1.0)


def _text(pilot: Pilot[None]) -> str:
    return "\n".join(str(getattr(widget, "text", "")) for widget in pilot.app.screen_stack[0].query("#windows *"))


def _recording(size: tuple[int, int], use: Use, name: str) -> None:
    past = Recorded(RECORDING)
    begin_ns, _ = past.span_ns()
    top = TopApp(None, past, format_time=lambda at_ns: f"t{(at_ns - begin_ns) / 1e9:+.1f} s", wall_offset_ns=None)
    _photographed(top, size, use, name)


def _photographed(top: TopApp, size: tuple[int, int], use: Use, name: str) -> None:
    """As pixels, drawn by a browser: an image on a code host has no say in the fonts of its readers."""

    async def lived() -> str:
        async with top.run_test(size=size) as pilot:
            await use(pilot)
            assert pilot.app.screen_stack[0].query(GpuList)
            return pilot.app.export_screenshot(title="gpuwatch top")

    svg = _bare(asyncio.run(lived()))
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found is not None
    width, height = (round(float(each)) for each in found.groups())
    with chromium.running() as browser, tempfile.TemporaryDirectory() as made_in:
        page_at = Path(made_in) / "screen.html"
        page_at.write_text(f'<body style="margin:0;background:#fff0">{svg.replace("<svg ", f"<svg width={width} ", 1)}')
        page = browser.open(page_at, width=width, height=height)
        page.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        page.screenshot(DOCS / f"{name}.png", whole=False)


def _bare(svg: str) -> str:
    """Without its web fonts: a picture in a repository fetches nothing."""
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)


PICTURES = {"demo": demo, "overview": overview, "detail": detail, "findings": findings, "report": report}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name]()
