"""gpuwatch report: windows as one HTML file with evidence, as Markdown, or as JUnit XML."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import open_store, options, output, rejudge, times
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.cli.exit_codes import Exit, list_statuses, worst_code
from gpuwatch.errors import UsageError
from gpuwatch.interfaces import Run
from gpuwatch.report.record import ReportedWindow
from gpuwatch.signing import Signature, fingerprint

if TYPE_CHECKING:
    from gpuwatch.store import Reader

_LOOKS_COUNT = 100  # every 0.1 s; a busy machine takes seconds to judge


@dataclass(frozen=True, slots=True)
class _FormOptions:
    """The options for the report's format; the default is HTML."""

    markdown: bool
    junit: bool
    redact: str | None


@click.command(
    "report",
    cls=CheckedCommand,
    short_help="Write one file with verdict, pictures and evidence.",
    epilog="Example: gpuwatch report gemm -o gemm.html",
)
@click.argument("run_ids", metavar="[RUN…]", nargs=-1, shell_complete=options.completed_by("windows"))
@options.back_option
@click.option(
    "--output",
    "-o",
    "target",
    metavar="FILE",
    help="Write the report to this file; - is standard output, the default for Markdown and JUnit.",
)
@click.option("--trace", metavar="FILE", help="Report on a recording (.capsule, .npz, an nvidia-smi log) instead of runs.")
@click.option("--markdown", is_flag=True, help="Write Markdown for a pull request instead of HTML.")
@click.option("--junit", is_flag=True, help="Write JUnit for CI instead of HTML: rejected fails, unproven is an error.")
@click.option("--redact", metavar="WHAT", help="Remove names: host, user, serial. Comma-separated.")
@options.fail_on_option
@options.settings_options
@options.gathered(_FormOptions, "form")
def command(
    run_ids: tuple[str, ...],
    back: int | None,
    target: str | None,
    trace: str | None,
    form: _FormOptions,
    fail_on: str | None,
) -> Exit:
    """Write a report on each RUN: an id, the start of an id, or a label.  Default: the latest window.

    The HTML file needs no network.  The file holds the evidence, which `gpuwatch judge FILE` judges again.
    """
    from gpuwatch.report import redaction

    if form.markdown and form.junit:
        raise UsageError("expected --markdown or --junit, found both")
    if back is not None and (run_ids or trace is not None):
        raise UsageError(f"expected runs or -{back}, found both: {run_ids[0] if run_ids else '--trace'} -{back}")
    if trace is not None and run_ids:
        raise UsageError(f"expected runs or --trace, found both: {run_ids[0]} --trace {trace}")
    if target is None and not form.markdown and not form.junit:
        what = f"--trace {trace}" if trace is not None else " ".join(run_ids) or "RUN"
        raise UsageError(
            f"--output: expected -o FILE for the HTML report, found none; write: gpuwatch report {what} -o report.html, or "
            "--markdown, which goes to standard output"
        )
    target = None if target == "-" else target
    failing, without = options.fail_on(fail_on), redaction.kinds(form.redact)
    if target is not None:
        output.check_file(Path(target))
    found = _of_recording(Path(trace)) if trace is not None else _of_runs(run_ids, back or 1)
    windows = redaction.redacted(found, without)
    text = _text(windows, without, is_markdown=form.markdown, is_junit=form.junit)
    if target is None:
        output.emit(text.rstrip("\n"))
    else:
        blob = text.encode()
        output.write_file(Path(target), blob)
        output.say(f"{target}: {output.counted(len(windows), 'window')}, {output.size_words(len(blob))}")
        if not form.markdown and not form.junit:
            output.say(f"  {_signed(windows, without)}")
            output.say("  open the file in any browser; `gpuwatch judge` judges the evidence again")
    return worst_code(list_statuses(window.verdict for window in windows), failing)


def _signed(windows: tuple[ReportedWindow, ...], without: tuple[str, ...]) -> str:
    keys = dict.fromkeys(fingerprint(window.signature.public_key) for window in windows if window.signature is not None)
    if not keys:
        return "unsigned: redaction removes signatures" if without else "unsigned"
    count = sum(window.signature is None for window in windows)
    return f"signed by {', '.join(keys)}" + (f"; {count} of {len(windows)} windows unsigned" if count else "")


def _text(windows: tuple[ReportedWindow, ...], without: tuple[str, ...], *, is_markdown: bool, is_junit: bool) -> str:
    from gpuwatch.report import ci_formats, html_page, record

    if is_markdown:
        return ci_formats.markdown(windows)
    if is_junit:
        return ci_formats.junit(windows)
    return html_page.render(record.make_record(windows, without), secrets.token_urlsafe(24))


def _of_runs(ids: tuple[str, ...], back: int) -> list[ReportedWindow]:
    with open_store.reader(options.settings()) as store:
        runs = [open_store.run(store, each) for each in dict.fromkeys(ids)] or [open_store.run(store, None, back=back)]
        return [judged for run in {run.id: run for run in runs}.values() for judged in report_run(store, run)]


def report_run(store: Reader, run: Run) -> list[ReportedWindow]:
    """Return the stored verdicts, each with its evidence.

    Raises UsageError: for a window without a verdict yet.
    """
    from gpuwatch.store.run import OPEN, UNFINISHED

    pause = threading.Event()
    for _ in range(_LOOKS_COUNT):  # the store may lag behind a caller that has just printed the verdict
        if run.status not in UNFINISHED or run.status == OPEN:
            break
        pause.wait(0.1)
        run = store.run(run.id)
    if run.status in UNFINISHED:
        raise UsageError(
            f"run {run.id}: expected a window with a verdict, found one that is {run.status}: {run.why or 'try again later'}"
        )
    signatures = store.signatures(run)
    out = []
    for position, verdict in enumerate(rejudge.stored(run)):
        uuid = verdict.device_uuid if verdict.device_uuid in run.uuids else None
        window = ReportedWindow(
            verdict=verdict,
            evidence=store.evidence(run, uuid) if uuid is not None else None,
            run_id=run.id,
            begun=times.text(run.begun_wall_s, has_zone=True),
            user=run.user,
            process=run.process,
            tags=run.tags,
            packed=store.packed(run, uuid) if uuid is not None else None,
        )
        # If packed evidence was deleted to make room, the signed bytes are gone.
        signature = Signature.unpacked(signatures.get(position, b"")) if uuid is None or window.packed is not None else None
        out.append(replace(window, signature=signature))
    return out


def _of_recording(path: Path) -> list[ReportedWindow]:
    from annotate.judge import judge

    return [ReportedWindow(verdict=judge(piece), evidence=piece) for piece in rejudge.recorded(path, None, None, ())]
