"""gpuwatch top: a screen of every GPU and window, live, from the store, or from a recording."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from annotate.clock_reasons import REASONS
from annotate.evidence import SIGNALS, Lane
from gpuwatch.cli import open_store, options, output
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.cli.exit_codes import Exit, Stop
from gpuwatch.config.paths import user_config
from gpuwatch.config.settings import Settings, load
from gpuwatch.errors import UsageError
from gpuwatch.view.history import Recorded, StoredHistory
from gpuwatch.view.live import Live, LiveGpu, Looker

if TYPE_CHECKING:
    from gpuwatch.tui.data_interfaces import HistorySource

SCENES = "demo"  # shown without a driver
NO_DRIVER = "no NVIDIA driver found"
PASTED_COLUMNS = 120


@click.command("top", cls=CheckedCommand, short_help="Show every GPU and window, live.", epilog="Example: gpuwatch top --once")
@click.option("--once", is_flag=True, help="Print one table and exit.")
@click.option("--trace", metavar="FILE", help="Show a recording as in `audit --trace`, without a daemon.")
@options.json_option
@options.settings_options
def command(once: bool, trace: str | None, as_json: bool) -> None:
    """Show every GPU, the reason for its clock, its processes, and the verdicts of windows; ? lists the keys.

    The readings come from the daemon; top starts one if none is running.  Without a driver the GPUs are simulated and
    marked SIMULATED.  The left and right keys move through the stored time.
    """
    settings = options.settings()
    if as_json and not once:
        raise UsageError("--json: expected --once with it, found none")
    # Textual reads standard input, takes the size from standard output, and draws on standard error.
    if not once and not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("top: expected a terminal for input, output and errors, found none; for one table use --once")
    if not once and os.environ.get("TERM") == "dumb":
        raise UsageError("top: expected a terminal that can move its cursor, found TERM=dumb; for one table use --once")
    if trace is not None:
        recording = Recorded(Path(trace))
        if once:
            _show(recording.live(recording.span_ns()[1]), as_json=as_json)
        else:
            _recorded_screen(recording, settings)
        return
    with _watched(settings) as (looker, past):
        if not once:
            _run_screen(looker, past, settings)
            return
        with contextlib.closing(looker):
            live = looker.look()
        if not live.gpus:
            why = live.absence or "the source names none"
            raise Stop(Exit.FAILED, f"no GPU to watch: {why}; see: gpuwatch doctor", "no-gpu")
        _show(live, as_json=as_json)


@contextlib.contextmanager
def _watched(settings: Settings) -> Iterator[tuple[Looker, HistorySource]]:
    """Open the live and the stored data of the settings.

    Without a driver and a named socket, a separate daemon simulates GPUs while the screen is open; the windows shown are still
    the real ones.
    """
    from gpuwatch.sources import has_driver

    looker, past = Looker(settings), StoredHistory(lambda: open_store.readable_folder(settings))
    if settings.source != "auto" or "socket" in settings.given or has_driver():
        yield looker, past
        return
    from gpuwatch.cli.scene_player import own_daemon
    from gpuwatch.view.two_sources import HistoryOfTwo, LookerAtTwo

    with tempfile.TemporaryDirectory(prefix="gpuwatch-top-") as folder:
        place = Path(folder)
        temporary = load({"source": f"simulated:{SCENES}", "state": str(place / "state"), "socket": str(place / "daemon.sock")})
        with own_daemon(temporary, place):
            simulated = StoredHistory(lambda: open_store.readable_folder(temporary))
            yield LookerAtTwo(temporary, windows=looker, absence=NO_DRIVER), HistoryOfTwo(simulated, past, absence=NO_DRIVER)


def _run_screen(looker: Looker | None, history: HistorySource, settings: Settings, **options: Any) -> None:
    """Run the screen with the user's preferences, stored next to the settings file."""
    from gpuwatch.tui.app import TopApp
    from gpuwatch.tui.preferences import PreferencesFile

    named = settings.given.get("config") or os.environ.get("GPUWATCH_CONFIG")
    beside = Path(named).absolute() if named else user_config(os.environ)
    TopApp(looker, history, preferences_file=PreferencesFile(beside.with_name("top.json")), **options).run()


def _recorded_screen(past: Recorded, settings: Settings) -> None:
    from gpuwatch.tui.text.time_text import time_of_day

    begin_ns, _ = past.span_ns()

    def format_time(at_ns: int) -> str:
        return time_of_day(at_ns, 0) if past.has_wall_time else f"t{(at_ns - begin_ns) / 1e9:+.1f} s"

    _run_screen(None, past, settings, format_time=format_time, wall_offset_ns=(lambda: 0) if past.has_wall_time else None)


def _show(live: Live, *, as_json: bool) -> None:
    from gpuwatch.tui.text import overview_tables, words

    if as_json:
        output.emit_json(_to_dict(live))
        return
    width = output.width(sys.stdout) or PASTED_COLUMNS
    if live.source.startswith("replay:"):
        output.emit(f"REPLAY  a recording, not now: {live.source.partition(':')[2]}")
    elif live.simulated:
        output.emit(f"SIMULATED  {words.simulated_why(live)}: {live.source}")
    output.emit(words.text(overview_tables.gpu_lines(live, width)))
    if live.windows:
        output.emit()
        output.emit(words.text(overview_tables.window_lines(live, width)))


def _to_dict(live: Live) -> dict[str, Any]:
    """Return plain data for JSON.  None means not observed; times are CLOCK_MONOTONIC nanoseconds, or a recording's times."""
    return {
        "at_ns": live.at_ns,
        "source": live.source,
        "simulated": live.simulated,
        "absence": live.absence,
        "gpus": [_gpu(position, gpu, live.at_ns) for position, gpu in enumerate(live.gpus)],
        "windows": [msgspec.structs.asdict(window) for window in live.windows],
        "gpus_left_out_count": live.gpus_left_out_count,
        "windows_left_out_count": live.windows_left_out_count,
        "unanswered": list(live.unanswered),
    }


def _gpu(position: int, gpu: LiveGpu, at_ns: int) -> dict[str, Any]:
    device, mask = gpu.device, gpu.said("event_reasons_mask")
    row = gpu.rows.get(Lane.FAST)
    return {
        "position": position,
        "uuid": device.uuid,
        "name": device.name,
        "lost": gpu.lost,
        "age_s": None if row is None else max(0, at_ns - row.at_ns) / 1e9,
        "sm_clock_max_mhz": device.sm_clock_max_mhz,
        "temperature_slowdown_c": device.temperature_slowdown_c,
        "memory_total_bytes": device.memory_total_bytes,
        "reasons": None if mask is None else [explained.name for bit, explained in REASONS.items() if mask & bit],
        "said": {name: gpu.said(name) for name in SIGNALS},
        "visibility": gpu.process_list.visibility.value if gpu.process_list is not None else None,
        "processes": None
        if gpu.process_list is None
        else [
            {
                "pid": each.pid,
                "name": each.name,
                "user": each.user,
                "memory_bytes": each.memory_bytes,
                "utilization_ratio": each.utilization_ratio,
            }
            for each in gpu.process_list.processes
        ],
        "processes_left_out_count": gpu.processes_left_out_count,
    }
