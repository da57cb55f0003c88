"""gpuwatch top: every GPU and window, now and back in time; or a recording."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import open_store, options, output
from gpuwatch.cli.exit_codes import Exit, Stop
from gpuwatch.config.paths import user_config
from gpuwatch.config.settings import Settings, load
from gpuwatch.errors import StoreError, UsageError

if TYPE_CHECKING:
    from gpuwatch.tui.preferences import PreferencesFile
    from gpuwatch.view.live import Live

SCENES = "steady-gemm,from-idle,neighbour"  # what is shown where there is no driver
PASTED_COLUMNS = 120


@click.command("top", short_help="Every GPU and window, now.")
@click.option("--once", is_flag=True, help="Print one table to paste, and leave.")
@click.option("--trace", metavar="FILE", help="Look at a recording, as `audit --trace` reads it; no daemon is asked.")
@options.json_option
@options.settings_options
def command(once: bool, trace: str | None, as_json: bool) -> Exit:
    """Show every GPU, why its clock is where it is, who is on it, and what became of the windows; ? tells the keys.

    Asks the daemon, and starts the user's where none runs.  On a machine without a driver the GPUs are simulated and say so.
    Left and right go back in time through what the store keeps.
    """
    settings = options.settings()
    if as_json and not once:
        raise UsageError("top: --json goes with --once")
    # Textual reads standard input, asks standard output for its size, and draws on standard error.
    if not once and not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("top: expected a terminal for input, output and errors; to print one table, say --once")
    if not once and os.environ.get("TERM") == "dumb":
        raise UsageError("top: expected a terminal that can move its cursor, found TERM=dumb; to print one table, say --once")
    if trace is not None:
        return _recording(Path(trace), as_json=as_json) if once else _recorded_screen(Path(trace), settings)
    with _watched(settings) as found:
        return _once(found, as_json=as_json) if once else _screen(found, kept_for=settings)


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


def _screen(settings: Settings, *, kept_for: Settings) -> Exit:
    from gpuwatch.tui.app import TopApp
    from gpuwatch.view.history import StoredHistory
    from gpuwatch.view.live import Looker

    TopApp(Looker(settings), StoredHistory(lambda: _store(settings)), preferences_file=_preferences_file(kept_for)).run()
    return Exit.OK


def _store(settings: Settings) -> Path:
    """Return where the readings lie that the screen goes back to.  Raises StoreError."""
    where = open_store.folder(settings)
    if why := open_store.closed(where):
        raise StoreError(why)
    return where


def _preferences_file(settings: Settings) -> PreferencesFile:
    """Return the user's stored preferences, which lie beside the configuration."""
    from gpuwatch.tui.preferences import PreferencesFile

    named = settings.given.get("config") or os.environ.get("GPUWATCH_CONFIG")
    beside = Path(named).absolute() if named else user_config(os.environ)
    return PreferencesFile(beside.with_name("top.json"))


def _recorded_screen(path: Path, settings: Settings) -> Exit:
    from gpuwatch.tui.app import TopApp
    from gpuwatch.tui.text.time_text import time_of_day
    from gpuwatch.view.history import Recorded

    past = Recorded(path)
    begin_ns, _ = past.span_ns()

    def format_time(at_ns: int) -> str:
        return time_of_day(at_ns, 0) if past.has_wall_time else f"t{(at_ns - begin_ns) / 1e9:+.1f} s"

    TopApp(
        None,
        past,
        format_time=format_time,
        wall_offset_ns=(lambda: 0) if past.has_wall_time else None,
        preferences_file=_preferences_file(settings),
    ).run()
    return Exit.OK


def _recording(path: Path, *, as_json: bool) -> Exit:
    from gpuwatch.view.history import Recorded

    past = Recorded(path)
    live = past.live(past.span_ns()[1])
    _show(live, as_json=as_json)
    return Exit.OK


def _once(settings: Settings, *, as_json: bool) -> Exit:
    from gpuwatch.view.live import Looker

    looker = Looker(settings)
    try:
        live = looker.look()
    finally:
        looker.close()
    if not live.gpus:
        raise Stop(Exit.FAILED, f"no GPU to watch: {live.absence or 'the source names none'}; see: gpuwatch doctor", "no-gpu")
    _show(live, as_json=as_json)
    return Exit.OK


def _show(live: Live, *, as_json: bool) -> None:
    if as_json:
        from gpuwatch.cli.live_json import plain

        output.emit_json(plain(live))
    else:
        _print(live)


def _print(live: Live) -> None:
    from gpuwatch.tui.text import overview_tables, words

    width = output.width(sys.stdout) or PASTED_COLUMNS
    if live.source.startswith("replay:"):
        output.emit(f"REPLAY  a recording, not now: {live.source.partition(':')[2]}")
    elif live.simulated:
        output.emit(f"SIMULATED  these GPUs do not exist: {live.source}")
    output.emit(words.text(overview_tables.gpu_lines(live, width)))
    if live.windows:
        output.emit()
        output.emit(words.text(overview_tables.window_lines(live, width)))
