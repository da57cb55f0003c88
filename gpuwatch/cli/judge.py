"""gpuwatch judge: verdicts of this version on a log, recording, report or another tool's results."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from gpuwatch.cli import audit, judged_results, options, verify
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.cli.judged_results import ResultOptions
from gpuwatch.errors import UsageError
from gpuwatch.results.readers import is_result

_HEAD_BYTES = 512  # enough for the first tag of a page


@dataclass(frozen=True, slots=True)
class _PartOptions:
    """The options of a log, recording or result file; a report is judged whole."""

    begin: str | None
    end: str | None
    gpus: tuple[str, ...]
    query: str | None
    verbose: bool


@dataclass(frozen=True, slots=True)
class _AnswerOptions:
    """The values of --fail-on and --json."""

    fail_on: str | None
    as_json: bool


@click.command(
    "judge",
    cls=CheckedCommand,
    short_help="Judge a file: a log, a recording, a report or results.",
    epilog="Example: gpuwatch judge window.capsule --claim fixed-clock",
)
@click.argument("file", metavar="FILE", type=click.Path())
@click.option(
    "--from", "begin", metavar="TIME", help="Judge from this time: 2.5s into a recording; for results a time as in `audit`."
)
@click.option(
    "--to", "end", metavar="TIME", help="Judge up to this time. Default: the file's end; for results with --from, now."
)
@options.gpu_option("Judge only this GPU of a log, recording or results. Repeatable.")
@click.option(
    "--times",
    metavar="COLUMN[:UNIT]",
    help="Read durations of any CSV or JSON from this column: latency_ms, took:us, a.0.times.",
)
@click.option("--clock", metavar="COLUMN[:UNIT]", help="With --times: read true SM clocks from this column. Default unit: MHz.")
@click.option(
    "--begin",
    "begins",
    metavar="COLUMN[:UNIT]",
    help="With --times: read start times (CLOCK_MONOTONIC) from this column. Default unit: s.",
)
@click.option("--series", metavar="NAME", help="Judge only the series of results whose name contains this.")
@click.option(
    "--pid", "pids", type=options.PID, multiple=True, help="Give a process that did the work of the results. Repeatable."
)
@click.option("--query", metavar="COLUMNS", help="Give the columns of a log that was written with noheader.")
@click.option("--verbose", "-v", is_flag=True, help="Print every fact and every rule of a log, recording or results.")
@click.option(
    "--trust",
    metavar="KEY.pub",
    multiple=True,
    help="Require a signature of this key on the report. Repeatable: any of the keys.",
)
@options.policy_options
@options.fail_on_option
@options.json_option
@options.settings_options
@options.gathered(_PartOptions, "part")
@options.gathered(ResultOptions, "results")
@options.gathered(_AnswerOptions, "answer")
@click.pass_context
def command(
    context: click.Context,
    file: str,
    part: _PartOptions,
    results: ResultOptions,
    trust: tuple[str, ...],
    policy_options: options.PolicyOptions,
    answer: _AnswerOptions,
) -> Any:  # the exit code of the command that does the work
    """Judge FILE: a CSV log of nvidia-smi, a recording of `gpuwatch record` (.capsule, .npz), a report (.html), or results.

    A log or recording gets a verdict.  A report already has a verdict: gpuwatch judges the evidence inside again, compares the
    page with the evidence, and checks the signature.  Exits 1 if these disagree.

    Results come from vLLM, SGLang, NVBench, nccl-tests, hyperfine, Google Benchmark, KernelBench and kernelbot, or any CSV or
    JSON with --times.  The output lists the evidence that the file lacks.  If the file, or --from and --to, give the time of
    measurement, gpuwatch also judges the stored telemetry of GPUs where a process held a context.
    """
    policy, fail_on, as_json = asdict(policy_options), answer.fail_on, answer.as_json
    if results.times is not None or is_result(Path(file)):
        _refuse({"--trust": trust}, "expected a report, found a result file")
        _refuse({"--query": part.query}, "expected a log, found a result file")
        place = judged_results.ResultPlace(part.begin, part.end, part.gpus)
        shown = (part.verbose, as_json)
        return judged_results.judge_results(Path(file), results, place, policy_options.policy(), shown=shown, fail_on=fail_on)
    given: dict[str, Any] = {
        "--clock": results.clock,
        "--begin": results.begins,
        "--series": results.series,
        "--pid": results.pids,
    }
    _refuse(given, "expected a result file, found another file")
    if not _is_report(Path(file)):
        _refuse({"--trust": trust}, "expected a report, found another file")
        return context.invoke(audit.command, trace=file, fail_on=fail_on, as_json=as_json, **asdict(part), **policy)
    given = {"--from": part.begin, "--to": part.end, "--gpu": part.gpus, "--query": part.query, "--fail-on": fail_on}
    _refuse(
        given | {f"--{name.removesuffix('s').replace('_', '-')}": value for name, value in policy.items()},
        "expected a log or recording, found a report",
    )
    return context.invoke(verify.command, file=file, trust=trust, as_json=as_json)


def _is_report(path: Path) -> bool:
    if path.suffix.lower() in (".html", ".htm"):
        return True
    try:
        if not path.is_file():  # opening a pipe would block
            return False
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES).lstrip().lower().startswith((b"<!doctype html", b"<html"))
    except OSError:
        return False  # the recording reader reports the fault


def _refuse(given: dict[str, Any], why: str) -> None:
    for name, value in given.items():
        if value:
            raise UsageError(f"{name}: {why}")
