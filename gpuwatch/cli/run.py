"""gpuwatch run: any program in a window; its output, signals and exit code pass through."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import click

from annotate.errors import AnnotateError
from annotate.verdict import Status, Verdict
from gpuwatch import clock
from gpuwatch.cli import child, chosen_gpus, nvtx_ranges, options, output
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.cli.claimed_number import ClaimOptions, claim_options, read_claim, work_facts
from gpuwatch.cli.exit_codes import Exit, Stop, list_statuses, worst_code
from gpuwatch.cli.refusals import refusal_words
from gpuwatch.client import window_tags
from gpuwatch.client.stated_claim import describe
from gpuwatch.client.window import Window, window
from gpuwatch.config.settings import Settings
from gpuwatch.errors import GpuwatchError, UsageError

_BACK_TO_BACK_RATIO = 0.9  # least share of the command's time that calls without start times must fill

_AUTO = "gpuwatch.auto"  # key in click's meta: the command already has the most parameters allowed
_STARTUP = Path(__file__).parents[1] / "harness" / "startup"  # Python programs under --auto import its sitecustomize


class _Unfinished(Exception):  # noqa: N818 - raised inside the window, and caught around it
    """The failure of the command, with a class name such as "exit code 1": the window records the name as the reason."""

    @classmethod
    def of(cls, outcome: child.Outcome) -> _Unfinished:
        named: type[_Unfinished] = type(outcome.signal or f"exit code {outcome.exit_code}", (cls,), {})
        return named()


@dataclass(frozen=True, slots=True)
class _Names:
    """The window's label and GPUs."""

    label: str | None
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _TimesFile:
    """The result file that the command writes, and the series to read."""

    times_file: str | None
    series: str | None

    def state(self) -> tuple[int, int] | None:
        """Return the file's modification time (ns) and size (bytes), to detect writing; None without a file.

        Also import the reader, or NumPy's threads would start inside the window.
        Raises UsageError: for --series without --times.
        """
        if self.series is not None and self.times_file is None:
            raise click.UsageError("--series: expected --times FILE with it, found none")
        if self.times_file is None:
            return None
        importlib.import_module("gpuwatch.cli.judged_results")
        try:
            found = Path(self.times_file).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


class _Wrapper(CheckedCommand):
    """A command that exits 125 for gpuwatch's own failures, like env(1): 1 and 2 may be the wrapped command's."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:  # as click types it
        with _as_wrapper():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _as_wrapper():
            return super().invoke(ctx)


@contextlib.contextmanager
def _as_wrapper() -> Any:
    try:
        yield
    except click.ClickException as error:
        raise Stop(Exit.WRAPPER_FAILED, refusal_words(error), "usage") from error
    except (GpuwatchError, AnnotateError, OSError) as error:
        raise Stop(Exit.WRAPPER_FAILED, str(error), "wrapper") from error


@dataclass(frozen=True, slots=True)
class _OutputOptions:
    """The values of --fail-on and --json."""

    fail_on: str | None
    json_path: str | None


@click.command(
    "run",
    cls=_Wrapper,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    short_help="Run a program in a window and judge it.",
    epilog="Example: gpuwatch run --label gemm -- python bench.py",
)
@click.option("--label", "--name", "label", metavar="LABEL", help="Name the window. Default: the program's name.")
@options.gpu_option("Judge this GPU: index, UUID or part of it, PCI address. Repeatable.")
@click.option("--times", "times_file", metavar="FILE", help="Read the times from the result file that COMMAND writes.")
@click.option("--series", metavar="NAME", help="With --times: use the series whose name contains this.")
@options.policy_options
@options.stated_options
@claim_options
@options.fail_on_option
@click.option("--json", "json_path", metavar="FILE", help="Also write the verdict as JSON; - is standard output.")
@options.gathered(_OutputOptions, "output_options")
@click.option(
    "--auto",
    is_flag=True,
    expose_value=False,
    callback=lambda context, _, is_asked: context.meta.update({_AUTO: is_asked}),
    help="Give each benchmark of Triton, torch's Timer and CuPy in a Python program its own window.",
)
@nvtx_ranges.nvtx_options
@options.settings_options
@options.gathered(_Names, "names")
@options.gathered(_TimesFile, "times")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    names: _Names,
    times: _TimesFile,
    policy_options: options.PolicyOptions,
    stated_options: options.StatedOptions,
    claim_options: ClaimOptions,
    output_options: _OutputOptions,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND in a window and write the verdict to standard error.

    gpuwatch passes input, output and signals through to COMMAND and exits with COMMAND's code.  --fail-on turns success into
    10, 11 or 12.  Like env(1), gpuwatch exits 125 for a wrong option, 126 if COMMAND cannot run, 127 if COMMAND is missing.
    COMMAND also runs without a daemon, GPU or driver; the verdict is then unproven, with the reason.
    """
    failing, json_path = options.fail_on(output_options.fail_on), output_options.json_path
    claim_options.check(is_untrusted=stated_options.untrusted)
    ranges = nvtx_ranges.asked(is_untrusted=stated_options.untrusted)
    # Rules and scenes import numpy, whose libraries start threads.  The threads inherit the blocked signals, so none of them
    # can take a signal for the command.
    with child.signals_held():
        policy = policy_options.policy()
        settings, before = options.settings(), times.state()
        child.refuse_if_ended()
    child.refuse_if_unable(command[0])
    chosen = chosen_gpus.choose_of_daemon(names.gpus, settings) if names.gpus else ()
    watched = window(
        names.label or _name(command),
        policy=policy,
        gpus=list(chosen) or None,
        sync=False,
        settings=settings,
        **stated_options.arguments(),
    )
    watched.declare(whole_program=True, **work_facts(claim_options.work))  # start and end of the program are not judged
    with contextlib.ExitStack() as stack:
        report = stack.enter_context(_report_file(json_path)) if json_path else None
        ranges = stack.enter_context(ranges.reporting())
        with contextlib.suppress(_Unfinished), child.signals_held() as mask, watched:
            child.refuse_if_ended()
            inside = ranges.environment(settings, watched, chosen)
            outcome = child.wait(child.spawn(command, _environment(watched, settings) | inside, mask))
            if times.times_file is not None:
                _record_times(watched, times, before, outcome.elapsed_s)
            _declare_late(watched, ranges.outer_timer(), claim_options.claimed)
            if outcome.exit_code:
                raise _Unfinished.of(outcome)
        show = f"gpuwatch show {watched.run_id or ''}".rstrip() + options.repeated(settings)
        try:
            statuses = _print_verdicts(watched, outcome, report, show) | ranges.print_verdicts(settings, watched.run_id)
        except KeyboardInterrupt:
            # The command has ended: Ctrl-C skips the verdict and keeps the exit code.
            output.say(f"gpuwatch: interrupted before the verdict; {show}")
            return outcome.exit_code
    return outcome.exit_code or worst_code(statuses, failing)


def _record_times(watched: Window, times: _TimesFile, before: tuple[int, int] | None, elapsed_s: float) -> None:
    """Record the times of the file that the command wrote; print an error if the file is missing, unchanged or wrong."""
    from gpuwatch.cli.judged_results import ResultOptions, read

    path, ended_ns = Path(times.times_file or ""), clock.now_ns()
    try:
        if times.state() == before:
            raise UsageError(
                f"{path}: expected a file that the command writes, found {'an unchanged one' if before else 'none'}"
            )
        timed = [each for each in read(path, ResultOptions(series=times.series)).series if len(each.took_s)]
        if len(timed) != 1:
            why = f"{len(timed)}; choose one with --series NAME" if timed else "none"
            raise UsageError(f"{path}: expected one series of times, found {why}")
        timings = timed[0].timings(ended_ns)
        filled_ratio = float(timed[0].took_s.sum()) * timed[0].calls_count / max(elapsed_s, 1e-9)
        if timings is None or (timed[0].at_ns is None and filled_ratio < _BACK_TO_BACK_RATIO):
            raise UsageError(
                f"{path}: expected start times, or calls that fill {_BACK_TO_BACK_RATIO:.0%} of the command, found {filled_ratio:.0%} filled"
            )
        watched.record(timings)
    except (UsageError, OSError) as error:
        output.say(f"gpuwatch: --times: {error}; judged without times; to judge the times alone: gpuwatch judge {path}")


def _declare_late(watched: Window, timer: str | None, claimed: str | None) -> None:
    """Declare the facts known after the command's end: the timer of its NVTX ranges, and the number it claims."""
    if timer is not None:
        watched.declare(timer=timer)
    if claimed is not None:
        facts, wrong = read_claim(claimed)
        watched.declare(**facts)
        if wrong:
            output.say(f"gpuwatch: --claimed: {wrong}")


def _name(command: tuple[str, ...]) -> str:
    """Return the program's name, or the script or module that Python runs.  Other arguments may hold secrets."""
    program = Path(command[0]).name
    match command[1:]:
        case ["-m", module, *_] if program.startswith("python"):
            return module
        case [script, *_] if program.startswith("python") and script.endswith(".py"):
            return Path(script).name
    return program


def _environment(watched: Window, settings: Settings) -> dict[str, str]:
    """Return the command's environment: this process's, with settings, parent run and tags for windows inside."""
    variables = options.settings_environment(settings)
    if watched.run_id is not None:
        variables["GPUWATCH_PARENT"] = watched.run_id
    if watched.tags.given:  # windows inside add these to their own tags
        there = os.environ.get(window_tags.VARIABLE)
        variables[window_tags.VARIABLE] = ",".join(filter(None, (there, window_tags.write_variable(watched.tags.given))))
    if click.get_current_context().meta.get(_AUTO):
        paths = (str(_STARTUP), os.environ.get("PYTHONPATH", ""))
        variables |= {"GPUWATCH_AUTO": "1", "PYTHONPATH": os.pathsep.join(each for each in paths if each)}
    return {**os.environ, **variables}


def _report_file(path: str) -> contextlib.AbstractContextManager[IO[str]]:
    """Open the JSON file before the command runs.  Raises UsageError: when the file cannot be opened."""
    if path == "-":
        if sys.stdout is None:
            raise click.UsageError("--json -: expected an open standard output, found a closed one")
        return contextlib.nullcontext(sys.stdout)
    try:
        return Path(path).open("a", encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"--json: {path}: {error.strerror}") from error


def _print_verdicts(watched: Window, outcome: child.Outcome, report: IO[str] | None, show: str) -> set[Status]:
    """Write the verdicts and return the statuses.  ``show`` is the command that shows the verdicts again."""
    try:
        verdicts: tuple[Verdict, ...] = watched.verdicts
        is_valid = all(verdict.status is Status.VALID for verdict in verdicts)
        more = f"`{show}` shows details" if is_valid else "`gpuwatch show -v` lists them"
        said = output.lay_out(verdicts, sys.stderr, more=more)
        output.say(said)
        if stated := describe(watched.stated):
            output.say(f"  stated: {stated}")
        if watched.run_id is not None and show not in " ".join(said.split()):
            output.say(f"  details: {show}")
        if report is not None:
            if report is not sys.stdout and report.seekable():
                report.truncate(0)
            output.emit_json(watched.to_dict() | {"command": asdict(outcome)}, report)
    except (GpuwatchError, AnnotateError) as error:
        output.say(f"gpuwatch: no verdict: {error}")
        return {Status.UNPROVEN}
    except (OSError, Stop) as error:  # a full disk or a closed pipe; the command's code still counts
        output.say(f"gpuwatch: the verdict could not be written: {getattr(error, 'strerror', None) or error}")
        return {Status.UNPROVEN}
    return list_statuses(verdicts)
