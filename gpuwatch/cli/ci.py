"""gpuwatch ci: pass, fail or neutral for each window of a job, in the formats of CI systems."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import click

from annotate.output.report import plain
from annotate.user_policy import Policy
from annotate.verdict import Status
from gpuwatch import clock
from gpuwatch.cli import child, gate_files, open_store, options, output, rejudge, times
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.cli.exit_codes import Exit, Stop
from gpuwatch.cli.gate_files import FileOptions
from gpuwatch.cli.report import report_run
from gpuwatch.errors import UsageError
from gpuwatch.gate import gate_formats
from gpuwatch.gate.gate_outcome import GatedWindow, GateOutcome, GateTerms, gate, overall
from gpuwatch.report.record import ReportedWindow

_MOST_WINDOWS_COUNT = 1_000
_COMMITTED_S, _LOOKS_COUNT = 1.0, 3
_VERDICT_LOOKS_COUNT = 30  # every 1 s; a judge on a busy machine can take 30 s


@dataclass(frozen=True, slots=True)
class _JobOptions:
    """The options that choose the job's windows, and the number of retries."""

    since: str | None
    label: str | None
    retry_count: int


@dataclass(frozen=True, slots=True)
class _GateOptions:
    """The baseline, its clock, the statuses that fail, and the exit code for neutral."""

    baseline: str | None
    clock_mhz: float | None
    fail_on: str | None
    neutral_code: int


@click.command(
    "ci",
    cls=CheckedCommand,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    short_help="Gate a CI run: pass, fail or neutral.",
    epilog="Example: gpuwatch ci --baseline main --retry 2 -- python bench.py",
)
@click.option("--since", metavar="TIME", help='Without COMMAND: judge the windows since this time: "30m" (ago), "@1790000000".')
@click.option("--label", metavar="LABEL", help="Judge only windows with this label.")
@click.option(
    "--baseline", metavar="FILE|REV", help="Compare with a file from --save, a report, or COMMAND run at a git revision."
)
@click.option(
    "--clock",
    "clock_mhz",
    type=options.CLOCK_MHZ,
    metavar="MHZ",
    help="Compare with another machine's windows at this SM clock.",
)
@click.option(
    "--retry",
    "retry_count",
    type=click.IntRange(0, 10),
    default=0,
    help="Repeat COMMAND up to N times while the outcome is neutral.",
)
@click.option(
    "--neutral-exit",
    "neutral_code",
    type=click.IntRange(0, 124),
    default=0,
    help="Exit with this code if the outcome is neutral. Default: 0.",
)
@click.option("--save", metavar="FILE", help="Write the evidence of unspoiled windows, for a later --baseline.")
@click.option("--summary", metavar="FILE", help="Append Markdown to FILE. Default: $GITHUB_STEP_SUMMARY.")
@click.option("--outputs", metavar="FILE", help="Append NAME=VALUE lines to FILE. Default: $GITHUB_OUTPUT.")
@click.option("--benchmark-action", metavar="FILE", help="Write customSmallerIsBetter JSON for github-action-benchmark.")
@click.option("--bencher", metavar="FILE", help="Write the Bencher Metric Format.")
@click.option(
    "--fail-on", metavar="STATUSES", help="Fail for these statuses, unless the machine is the cause. Default: rejected."
)
@options.policy_options
@options.settings_options
@options.gathered(_JobOptions, "job")
@options.gathered(_GateOptions, "gated")
@options.gathered(FileOptions, "files")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def command(
    job: _JobOptions, gated: _GateOptions, files: FileOptions, policy_options: options.PolicyOptions, command: tuple[str, ...]
) -> int:
    """Run COMMAND, or read the windows --since a time, and compare each window with the baseline at one clock.

    A window fails if it is slower than the baseline, or rejected for a fault of the benchmark.  A window is neutral if a
    neighbour, heat or missing evidence spoiled it, or if the comparison is undecided; --retry then runs COMMAND again.  Exits
    with COMMAND's code if COMMAND failed, else 1 for fail or without a window, --neutral-exit for neutral, 0 for pass.
    """
    from annotate.compare.two_machines import MachineTerms

    if bool(command) == (job.since is not None):
        raise UsageError("expected COMMAND or --since TIME, found " + ("both" if command else "neither"))
    if job.retry_count and not command:
        raise UsageError("--retry: expected COMMAND to run again, found none")
    if gated.clock_mhz is not None and gated.baseline is None:
        raise UsageError("--clock: expected --baseline with it, found none")
    if command:
        child.refuse_if_unable(command[0])
    settings = options.settings()
    policy = policy_options.policy()
    machine = MachineTerms(
        clock_mhz=gated.clock_mhz,
        reference_clock_mhz=settings.complete(policy or Policy()).reference_clock_mhz,
        card_spread_ratio=settings.card_spread_ratio or None,
    )
    terms = GateTerms(options.fail_on(gated.fail_on or Status.REJECTED.value), policy, machine)
    files.check()
    code = 0
    found: list[GatedWindow] = []
    with ExitStack() as stack:
        baseline = _baseline(gated.baseline, command, job, terms.policy, stack)
        for attempt in range(1 + job.retry_count):
            code, windows = _attempt(job, baseline(), command, terms)
            found = _merged(found, windows)
            if code or overall(found) is not GateOutcome.NEUTRAL or attempt == job.retry_count:
                break
            output.say(f"gpuwatch: {gate_formats.counts_line(found)}; running again ({attempt + 1} of {job.retry_count})")
    gate_files.show(found)
    files.write(found)
    outcome = overall(found)
    if code:
        output.say(f"gpuwatch: {command[0]} ended with exit code {code}")
        return code
    if not found:
        raise Stop(Exit.FAILED, "expected a window in the job, found none; wrap the benchmark, or widen --since", "no-window")
    return {GateOutcome.FAIL: int(Exit.FAILED), GateOutcome.NEUTRAL: gated.neutral_code}.get(outcome, 0)


def _baseline(
    text: str | None, command: Sequence[str], job: _JobOptions, policy: Policy | None, stack: ExitStack
) -> Callable[[], dict[str, ReportedWindow]]:
    """Return a function that returns the baseline's windows, from a file or by running the command at a revision.

    Raises UsageError: when the text is neither a file nor a revision, and for a revision without a command.
    """
    if text is None:
        return dict
    if (path := Path(text)).exists():
        windows = _by_name(_reported_file(path))
        return lambda: windows
    if not command:
        raise UsageError(f"--baseline: expected a file, or a revision with COMMAND, found {text!r}")
    from gpuwatch.comparing import checkouts

    stack.enter_context(checkouts.cleaned_up())
    said = f"--baseline: no file {text!r} exists, and as a git revision"
    tree = checkouts.check_out_tree(Path.cwd(), text, said)

    def measured() -> dict[str, ReportedWindow]:
        since_s = clock.wall_s()
        output.say(f"gpuwatch: running the baseline, {plain(text)}")
        if code := _run(command, tree):
            raise Stop(Exit.FAILED, f"{command[0]} at {text} ended with exit code {code}", "baseline")
        return _by_name(_windows_of(since_s, job, policy))

    return measured


def _attempt(
    job: _JobOptions, before: dict[str, ReportedWindow], command: Sequence[str], terms: GateTerms
) -> tuple[int, list[GatedWindow]]:
    now_s = clock.wall_s()
    since_s = now_s if job.since is None else times.wall_s(job.since, "--since", now_s=now_s)
    code = _run(command, None) if command else 0
    read = _windows_of(since_s, job, terms.policy) if command and not code else _windows_since(since_s, job.label, terms.policy)
    found = _by_name(read)
    gated = [gate(window, name, before.get(name), terms) for name, window in found.items()]
    unknown = "the baseline has no window of this name"
    return code, [replace(each, why=each.why or unknown) if before and each.name not in before else each for each in gated]


def _run(command: Sequence[str], folder: Path | None) -> int:
    """Run the command with the current settings and return its exit code."""
    try:
        environment = {**os.environ, **options.settings_environment(options.settings())}
        code = subprocess.run(list(command), cwd=folder, env=environment, check=False).returncode
    except OSError as error:
        raise child.not_started(command[0], error) from error
    except ValueError as error:  # a zero byte
        raise UsageError(f"{command[0]!r}: {error}") from error
    return code if code >= 0 else 128 - code


def _windows_of(since_s: float, job: _JobOptions, policy: Policy | None) -> list[ReportedWindow]:
    """Wait for the windows of a command that has just ended, and return them: 3 s for the first one, 30 s for verdicts."""
    pause = threading.Event()
    for look in range(1, _VERDICT_LOOKS_COUNT):
        pause.wait(_COMMITTED_S)
        with contextlib.suppress(UsageError):  # a window is still open, or the judge still works
            if (found := _windows_since(since_s, job.label, policy)) or look >= _LOOKS_COUNT:
                return found
    pause.wait(_COMMITTED_S)
    return _windows_since(since_s, job.label, policy)


def _windows_since(since_s: float, label: str | None, policy: Policy | None) -> list[ReportedWindow]:
    """Return this user's innermost windows, oldest first, judged under the policy if one is given."""
    with open_store.reader(options.settings()) as store:
        runs = [run for run in store.runs(since_wall_s=since_s, limit=_MOST_WINDOWS_COUNT) if run.uid == os.getuid()]
        outer = {run.parent for run in runs}
        kept = [run for run in reversed(runs) if run.id not in outer and label in (None, run.label)]
        found = [window for run in kept for window in report_run(store, run)]
    if policy is None:
        return found
    return [
        each if each.evidence is None else replace(each, verdict=rejudge.judged([each.evidence], policy)[0]) for each in found
    ]


def _reported_file(path: Path) -> list[ReportedWindow]:
    from gpuwatch.cli.compared_sides import file_windows
    from gpuwatch.report.record import ReportedWindow

    return [
        ReportedWindow(verdict=rejudge.judged([each.evidence], each.policy)[0], evidence=each.evidence)
        for each in file_windows(str(path))
    ]


def _by_name(windows: Sequence[ReportedWindow]) -> dict[str, ReportedWindow]:
    """Return the last window of each label; a number marks the further GPUs of a window."""
    found: dict[str, ReportedWindow] = {}
    seen: dict[tuple[str, str | None], int] = {}
    for window in windows:
        label = window.verdict.label or "unnamed window"
        place = seen[label, window.run_id] = seen.get((label, window.run_id), 0) + 1
        # Windows of a file have no run, so they get no number.
        found[label if place == 1 or window.run_id is None else f"{label} (GPU {place})"] = window
    return found


def _merged(before: Sequence[GatedWindow], now: Sequence[GatedWindow]) -> list[GatedWindow]:
    """Keep each window's first outcome that is not neutral, so that a retry cannot pick better times."""
    found = {each.name: each for each in before}
    for each in now:
        if each.name not in found or found[each.name].outcome is GateOutcome.NEUTRAL:
            found[each.name] = each
    return list(found.values())
