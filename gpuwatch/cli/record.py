"""gpuwatch record: evidence in one file, for a colleague, a bug report, or another judge."""

import threading
from pathlib import Path

import click

from annotate.evidence import Evidence
from annotate.output.report import length_words
from gpuwatch import clock
from gpuwatch.cli import chosen_gpus, open_store, options, output, rejudge, times
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.config import quantities
from gpuwatch.config.quantities import QuantityError
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DaemonError, UsageError


@click.command(
    "record",
    cls=CheckedCommand,
    short_help="Write evidence to one file.",
    epilog="Example: gpuwatch record --last 5min -o window.capsule",
)
@click.option("--output", "-o", "path", metavar="FILE", required=True, help="Write to this file; an existing file is replaced.")
@click.option("--seconds", metavar="N", help="Record from now on for this time, at the full rate. Default: 10s.")
@click.option("--last", metavar="DURATION", help='Record the daemon\'s readings of this time before now, such as "5min".')
@click.option(
    "--run",
    "run_id",
    metavar="RUN",
    shell_complete=options.completed_by("windows"),
    help="Record the evidence of a stored window.",
)
@options.gpu_option("Record only this GPU. Repeatable.")
@options.json_option
@options.settings_options
def command(path: str, seconds: str | None, last: str | None, run_id: str | None, gpus: tuple[str, ...], as_json: bool) -> None:
    """Write a recording from now on, of the last minutes, or of a stored window.

    `gpuwatch judge FILE` judges the recording on any machine; `--source replay:FILE` replays it.
    """
    from annotate.capsule.pack import pack

    given = [name for name, value in (("--seconds", seconds), ("--last", last), ("--run", run_id)) if value is not None]
    if len(given) > 1:
        raise UsageError(f"expected one of --seconds, --last and --run, found {' and '.join(given)}")
    target = Path(path)
    output.check_file(target)
    settings = options.settings()
    if run_id is not None:
        pieces = _of_run(settings, run_id, gpus)
    elif last is not None:
        pieces = _of_past(settings, last, gpus)
    else:
        pieces = _live(settings, _duration_s("--seconds", seconds or "10s"), gpus)
    blob = pack(pieces)
    output.write_file(target, blob)
    length_s = max(piece.window.length_s for piece in pieces)
    if as_json:
        uuids = [piece.device.uuid if piece.device is not None else None for piece in pieces]
        output.emit_json({"path": str(target), "size_bytes": len(blob), "length_s": length_s, "gpus": uuids})
    else:
        size = f"{length_words(length_s)} of {output.counted(len(pieces), 'GPU')}, {output.size_words(len(blob))}"
        output.say(f"{target}: {size}; to judge the file: gpuwatch judge {target}")


def _duration_s(option: str, text: str) -> float:
    """Read a duration; a bare number is seconds.  Raises UsageError: for other text, and for 0 s or more than 24 h."""
    try:
        length_s = float(text)
    except ValueError:
        try:
            length_s = quantities.duration_ns(text) / 1e9
        except QuantityError as error:
            raise UsageError(f"{option}: {error}") from error
    if not 0 < length_s <= 86_400:
        raise UsageError(f"{option}: expected more than 0s and at most 24h, found {text!r}")
    return length_s


def _live(settings: Settings, length_s: float, gpus: tuple[str, ...]) -> list[Evidence]:
    """Record through a window, so that the daemon reads at the full rate.  Raises DaemonError: without a daemon or a GPU."""
    from gpuwatch.client.connection import connect
    from gpuwatch.client.window import window

    with connect(settings) as client:
        status = client.status()
    known = [str(gpu["uuid"]) for gpu in status["gpus"]]
    wanted = list(chosen_gpus.choose_of_daemon(gpus, settings)) if gpus and known else known
    if not wanted:
        raise DaemonError(f"expected a GPU to record, found none: {status.get('absence') or ', '.join(gpus)}", "no-gpu")
    output.say(
        f"recording {output.counted(len(wanted), 'GPU')} for {length_s:g} s; Ctrl-C stops early and keeps the recorded part"
    )
    with window("record", gpus=wanted, sync=False, settings=settings) as watched:
        try:
            threading.Event().wait(length_s)
        except KeyboardInterrupt:
            output.say("stopped early")
    _ = watched.verdicts  # the store keeps a window's evidence once the window is judged
    if watched.run_id is None:
        raise DaemonError(watched.verdict.why, "unreachable")
    return _of_run(settings, watched.run_id, ())


def _of_run(settings: Settings, run_id: str, gpus: tuple[str, ...]) -> list[Evidence]:
    with open_store.reader(settings) as store:
        run = open_store.run(store, run_id)
        named = chosen_gpus.choose(gpus, store.devices()) if gpus else run.uuids
        wanted = [uuid for uuid in run.uuids if uuid in named]
        if not wanted:
            raise UsageError(
                f"--run: expected a window of {', '.join(named) or 'a GPU'}, found {', '.join(run.uuids) or 'none'}"
            )
        return [store.evidence(run, uuid) for uuid in wanted]


def _of_past(settings: Settings, last: str, gpus: tuple[str, ...]) -> list[Evidence]:
    begin_s = clock.wall_s() - _duration_s("--last", last)
    with open_store.reader(settings) as store:
        pieces = list(rejudge.interval(store, f"@{begin_s}", None, gpus, ()))
    if all(piece.absence for piece in pieces):
        raise UsageError(
            f"--last: expected readings since {times.text(begin_s)}, found none; check that a daemon was running: gpuwatch daemon status"
        )
    return pieces
