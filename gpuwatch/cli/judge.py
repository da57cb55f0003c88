"""gpuwatch judge: any file, judged by the rules of this version: a log, a recording, a report, or another tool's results."""

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
    """The options of the answer's form."""

    fail_on: str | None
    as_json: bool


@click.command("judge", cls=CheckedCommand, short_help="Judge a file: a log, a recording, a report or results.")
@click.argument("file", metavar="FILE", type=click.Path())
@click.option(
    "--from", "begin", metavar="TIME", help="Judge from there: 2.5s after a recording's beginning; of results, as of audit."
)
@click.option("--to", "end", metavar="TIME", help="Its end; by default that of the file.")
@options.gpu_option("Of a log, recording or results: only this GPU. Repeatable.")
@click.option(
    "--times", metavar="COLUMN[:UNIT]", help="Of any CSV or JSON: the durations, as latency_ms, took:us or a.0.times."
)
@click.option("--clock", metavar="COLUMN[:UNIT]", help="Beside --times: the true SM clock of each; MHz by default.")
@click.option(
    "--begin", "begins", metavar="COLUMN[:UNIT]", help="Beside --times: when each began, CLOCK_MONOTONIC; seconds by default."
)
@click.option("--series", metavar="NAME", help="Of results: only the series whose name holds this.")
@click.option("--pid", "pids", type=options.PID, multiple=True, help="Of results: a process that did the work. Repeatable.")
@click.option("--query", metavar="COLUMNS", help="The columns of a log that was written with noheader.")
@click.option("--verbose", "-v", is_flag=True, help="Of a log or recording: every fact and every rule.")
@click.option("--trust", metavar="KEY.pub", multiple=True, help="Of a report: the signer must be this one. Repeatable.")
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
) -> Any:  # the code of the command that does it
    """Judge FILE: a CSV log of nvidia-smi, a recording of `gpuwatch record` (.capsule, .npz), a report (.html), or results.

    A log or recording gets a verdict.  A report already has one: it is judged again from the evidence inside, its page is
    compared and its signature checked; exit code 1 where they disagree.

    Results are those of vLLM, SGLang, NVBench, nccl-tests, hyperfine, Google Benchmark, KernelBench and kernelbot, or any CSV
    or JSON whose --times you name.  The answer names what the file cannot show.  Where the file or --from and --to say when it
    was measured, the store's telemetry is judged too, on the GPUs on which a process held a context.
    """
    policy, fail_on, as_json = asdict(policy_options), answer.fail_on, answer.as_json
    if results.times is not None or is_result(Path(file)):
        _refuse({"--trust": trust, "--query": part.query}, "is not of a result file")
        place = judged_results.ResultPlace(part.begin, part.end, part.gpus)
        shown = (part.verbose, as_json)
        return judged_results.judge_results(Path(file), results, place, policy_options.policy(), shown=shown, fail_on=fail_on)
    given: dict[str, Any] = {
        "--clock": results.clock,
        "--begin": results.begins,
        "--series": results.series,
        "--pid": results.pids,
    }
    _refuse(given, "is of a result file")
    if not _is_report(Path(file)):
        _refuse({"--trust": trust}, "checks who signed a report")
        return context.invoke(audit.command, trace=file, fail_on=fail_on, as_json=as_json, **asdict(part), **policy)
    given = {"--from": part.begin, "--to": part.end, "--gpu": part.gpus, "--query": part.query, "--fail-on": fail_on}
    _refuse(given | {f"--{name.removesuffix('s')}": value for name, value in policy.items()}, "is of a log or recording")
    return context.invoke(verify.command, file=file, trust=trust, as_json=as_json)


def _is_report(path: Path) -> bool:
    if path.suffix.lower() in (".html", ".htm"):
        return True
    try:
        if not path.is_file():  # a pipe would be waited for
            return False
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES).lstrip().lower().startswith((b"<!doctype html", b"<html"))
    except OSError:
        return False  # its reader says what is wrong


def _refuse(given: dict[str, Any], why: str) -> None:
    for name, value in given.items():
        if value:
            raise UsageError(f"{name} {why}")
