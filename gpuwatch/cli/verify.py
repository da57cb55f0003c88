"""gpuwatch verify: a report's evidence judged again, and whether its verdict and its page say the same."""

from __future__ import annotations

from pathlib import Path

import click

from annotate.report import plain
from gpuwatch.cli import options, output
from gpuwatch.cli.exits import Exit

_MOST_SHOWN = 5


@click.command("verify", short_help="Judge a report's evidence again.")
@click.argument("file", metavar="FILE")
@options.json_option
@options.settings_options
def command(file: str, as_json: bool) -> Exit:
    """Judge the evidence inside FILE, a report, again: offline, by the rules of this version.

    Exit code 0 where verdicts, evidence and page agree, 1 where they do not.  Reports are unsigned: agreement does not prove
    who recorded the evidence.
    """
    from gpuwatch.report import embedded
    from gpuwatch.report.agreement import agreement

    held = embedded.load(Path(file))
    answers = [agreement(window) for window in held.record.windows]
    agrees = bool(answers) and all(answer.agrees for answer in answers) and held.as_written is not False
    if as_json:
        windows = [
            {
                "run": answer.window.run_id,
                "label": answer.window.verdict.label,
                "says": answer.window.verdict.status.value,
                "evidence_says": answer.again.status.value if answer.again else None,
                "agrees": answer.agrees,
                "differs": list(answer.differs),
                "judge_version": answer.window.verdict.judge_version,
            }
            for answer in answers
        ]
        output.emit_json({"agrees": agrees, "page_as_written": held.as_written, "signature": None, "windows": windows})
        return Exit.OK if agrees else Exit.FAILED
    for answer in answers:
        verdict = answer.window.verdict
        simulated = "  SIMULATED" if verdict.simulated else ""
        head = f"{verdict.status.value.upper()}{simulated}  {plain(verdict.label or 'unnamed window')}"
        if answer.again is None and answer.agrees:
            output.emit(f"{head}: no evidence was kept, and it claims nothing")
        elif answer.agrees:
            output.emit(f"{head}: verdict and evidence agree")
        else:
            output.emit(f"{head}: VERDICT AND EVIDENCE DISAGREE")
            shown = [
                *answer.differs[:_MOST_SHOWN],
                *([f"and {len(answer.differs) - _MOST_SHOWN} more"] * (len(answer.differs) > _MOST_SHOWN)),
            ]
            for line in shown:
                output.emit(f"  {plain(line)}")
    output.emit(_page(held.as_written))
    output.emit("signature: unsigned: nothing proves who recorded the evidence")
    if held.record.redacted:
        output.emit(f"redacted: {plain(', '.join(held.record.redacted))}")
    return Exit.OK if agrees else Exit.FAILED


def _page(as_written: bool | None) -> str:
    if as_written is None:
        return "page: written by another version, not compared; trust what stands here, not what the page shows"
    if as_written:
        return "page: shows what its evidence says, unchanged since it was written"
    return "page: CHANGED since it was written; trust what stands here, not what the page shows"
