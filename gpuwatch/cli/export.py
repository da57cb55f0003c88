"""gpuwatch export: windows and verdicts as Parquet or JSON lines, for a fleet."""

import hashlib
import platform
import threading
from pathlib import Path

import click

from gpuwatch import clock
from gpuwatch.cli import open_store, options, output, times
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.config.quantities import QuantityError, lapse_ns
from gpuwatch.errors import UsageError
from gpuwatch.store.export_mark import write_mark
from gpuwatch.utf8 import clean_text


@click.command(
    "export",
    cls=CheckedCommand,
    short_help="Export windows for a fleet, as Parquet.",
    epilog="Example: gpuwatch export --parquet /srv/gpuwatch --jitter 30min",
)
@click.option(
    "--parquet", "folder", metavar="DIR", help="Add missing windows to this folder, by day and host. Needs the extra `fleet`."
)
@click.option("--ndjson", is_flag=True, help="Write all rows to standard output, one JSON object per line.")
@click.option("--since", metavar="TIME", help='Export windows since this time: "7d" (ago), "14:02", "2026-11-20".')
@click.option("--host", metavar="NAME", help="Write this machine name in the rows. Default: the host name of each window.")
@click.option(
    "--jitter", metavar="DURATION", help="Wait before the export for up to this time, such as 30m; the host name sets the wait."
)
@options.json_option
@options.settings_options
def command(folder: str | None, ndjson: bool, since: str | None, host: str | None, jitter: str | None, as_json: bool) -> None:
    """Export windows, one row per window and GPU.

    Each run writes only windows that DIR lacks, and completes an interrupted export.  Windows that are still open or not judged
    yet follow with a later export.
    """
    if (folder is None) == (not ndjson):
        raise UsageError("expected --parquet DIR or --ndjson, found " + ("neither" if folder is None else "both"))
    if ndjson and as_json:
        raise UsageError("--json: expected --parquet with it, found --ndjson, which writes JSON already")
    if folder is not None:
        output.check_folder(Path(folder), "--parquet")
    host = None if host is None else clean_text(host)
    since_s = times.wall_s(since, "--since", now_s=clock.wall_s()) if since is not None else None
    _wait_turn(jitter, host)
    with open_store.reader(options.settings()) as store:
        from gpuwatch.fleet import export, rows

        if folder is None:
            for row in export.all_rows(store, since_wall_s=since_s, host=host):
                output.emit(output.json_text(rows.plain(row)))
            open_store.name_left_out(store)
            return
        done = export.to_parquet(store, Path(folder), since_wall_s=since_s, host=host)
        _mark(store.state)
    open_store.name_left_out(store)
    if as_json:
        counts = {name: getattr(done, name) for name in ("windows_count", "rows_count", "there_count")}
        output.emit_json({"folder": folder, **counts, "parts": [str(part) for part in done.parts]})
    else:
        output.say(
            f"{folder}: {output.counted(done.windows_count, 'window')} added as {output.counted(done.rows_count, 'row')}"
            f" in {output.counted(len(done.parts), 'part')}; {done.there_count} were there already"
        )


def turn_s(name: str, jitter_s: float) -> float:
    """Return this machine's wait within the jitter in seconds; the name sets the wait, which is the same every night."""
    share = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) / 2**64
    return share * jitter_s


def _wait_turn(jitter: str | None, host: str | None) -> None:
    """Wait for this machine's turn.  Raises UsageError: when the jitter is not a duration."""
    try:
        jitter_s = 0.0 if jitter is None else lapse_ns(jitter) / 1e9
    except QuantityError as error:
        raise UsageError(f"--jitter: {error}") from error
    wait_s = turn_s(host or platform.node(), jitter_s)
    if wait_s >= 1.0:
        output.say(f"gpuwatch: the export starts in {wait_s:.0f} s (--jitter)")
    threading.Event().wait(wait_s)


def _mark(state: Path) -> None:
    """Record the time of the export for the daemon's metric; print an error if that fails."""
    try:
        write_mark(state, clock.wall_s())
    except OSError as error:
        output.say(f"gpuwatch: the daemon's metric of the last export could not be updated: {state}: {error.strerror}")
