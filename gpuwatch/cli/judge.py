"""gpuwatch judge: any file with evidence, judged by the rules of this version: a log, a recording or a report."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from gpuwatch.cli import audit, options, verify
from gpuwatch.cli.checked_commands import CheckedCommand
from gpuwatch.errors import UsageError

_HEAD_BYTES = 512  # enough for the first tag of a page


@dataclass(frozen=True, slots=True)
class _PartOptions:
    """The options of a log or recording; a report is judged whole."""

    begin: str | None
    end: str | None
    gpus: tuple[str, ...]
    query: str | None
    verbose: bool


@click.command("judge", cls=CheckedCommand, short_help="Judge a file: a log, a recording or a report.")
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--from", "begin", metavar="TIME", help="Of a log or recording: judge from there, as 2.5s after its beginning.")
@click.option("--to", "end", metavar="TIME", help="Its end; by default that of the file.")
@options.gpu_option("Of a log or recording: only this GPU. Repeatable.")
@click.option("--query", metavar="COLUMNS", help="The columns of a log that was written with noheader.")
@click.option("--verbose", "-v", is_flag=True, help="Of a log or recording: every fact and every rule.")
@click.option("--trust", metavar="KEY.pub", multiple=True, help="Of a report: the signer must be this one. Repeatable.")
@options.policy_options
@options.fail_on_option
@options.json_option
@options.settings_options
@options.gathered(_PartOptions, "part")
@click.pass_context
def command(
    context: click.Context,
    file: str,
    part: _PartOptions,
    trust: tuple[str, ...],
    policy_options: options.PolicyOptions,
    fail_on: str | None,
    as_json: bool,
) -> Any:  # the code of the command that does it
    """Judge FILE: a CSV log of nvidia-smi, a recording of `gpuwatch record` (.capsule, .npz), or a report (.html).

    A log or recording gets a verdict.  A report already has one: it is judged again from the evidence inside, its page is
    compared and its signature checked; exit code 1 where they disagree.
    """
    policy = asdict(policy_options)
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
        with path.open("rb") as file:
            return path.is_file() and file.read(_HEAD_BYTES).lstrip().lower().startswith((b"<!doctype html", b"<html"))
    except OSError:
        return False  # its reader says what is wrong


def _refuse(given: dict[str, Any], why: str) -> None:
    for name, value in given.items():
        if value:
            raise UsageError(f"{name} {why}")
