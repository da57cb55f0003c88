"""gpuwatch top: every GPU and window, now."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import options, output
from gpuwatch.cli.exits import Exit, Stop
from gpuwatch.config import Settings, load
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.live import Live

SCENES = "steady-gemm,from-idle,neighbour"  # what is shown where there is no driver
PASTED_COLUMNS = 120


@click.command("top", short_help="Every GPU and window, now.")
@click.option("--once", is_flag=True, help="Print one table to paste, and leave.")
@options.settings_options
def command(once: bool) -> Exit:
    """Show every GPU, why its clock is where it is, who is on it, and what became of the windows.

    Asks the daemon, and starts the user's where none runs.  On a machine without a driver the GPUs are simulated and say so.
    """
    settings = options.settings()
    # Textual reads standard input, asks standard output for its size, and draws on standard error.
    if not once and not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("top: expected a terminal for input, output and errors; to print one table, say --once")
    with _watched(settings) as found:
        return _once(found) if once else _screen(found)


@contextlib.contextmanager
def _watched(settings: Settings) -> Iterator[Settings]:
    """The settings of the daemon to ask: where nothing could be real, one of our own that simulates, for as long as we look."""
    from gpuwatch.sources import has_driver

    if settings.source != "auto" or has_driver():
        yield settings
        return
    from gpuwatch.cli.scenes import own_daemon

    with tempfile.TemporaryDirectory(prefix="gpuwatch-top-") as folder:
        place = Path(folder)
        ours = load({"source": f"simulated:{SCENES}", "state": str(place / "state"), "socket": str(place / "daemon.sock")})
        with own_daemon(ours, place):
            yield ours


def _screen(settings: Settings) -> Exit:
    from gpuwatch.live import Looker
    from gpuwatch.tui.app import Top

    Top(Looker(settings)).run()
    return Exit.OK


def _once(settings: Settings) -> Exit:
    from gpuwatch.live import Looker

    looker = Looker(settings)
    try:
        live = looker.look()
    finally:
        looker.close()
    if not live.gpus:
        raise Stop(Exit.FAILED, f"no GPU to watch: {live.absence or 'the source names none'}; see: gpuwatch doctor", "no-gpu")
    _print(live)
    return Exit.OK


def _print(live: Live) -> None:
    from gpuwatch.tui import words

    width = output.width(sys.stdout) or PASTED_COLUMNS
    if live.simulated:
        output.emit(f"SIMULATED  these GPUs do not exist: {live.source}")
    output.emit(words.text(words.gpu_lines(live, width)))
    if live.windows:
        output.emit()
        output.emit(words.text(words.window_lines(live, width)))
