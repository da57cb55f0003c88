"""The output of `gpuwatch ci`: on the screen, and in files for CI systems and later runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from annotate.capsule.pack import pack
from annotate.output.report import plain
from gpuwatch.cli import output
from gpuwatch.cli.exit_codes import Exit, Stop
from gpuwatch.gate import gate_formats
from gpuwatch.gate.gate_outcome import GatedWindow, spoiled

_VARIABLES = {"--summary": "GITHUB_STEP_SUMMARY", "--outputs": "GITHUB_OUTPUT"}


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The files that `gpuwatch ci` writes."""

    save: str | None
    summary: str | None
    outputs: str | None
    benchmark_action: str | None
    bencher: str | None

    def check(self) -> None:
        """Raise UsageError for a file that cannot be written, before the benchmark runs."""
        for option, path in (("--save", self.save), ("--benchmark-action", self.benchmark_action), ("--bencher", self.bencher)):
            if path is not None:
                output.check_file(Path(path), option)
        for option, path in (("--summary", self.summary), ("--outputs", self.outputs)):
            name = _VARIABLES[option]
            if found := path or os.environ.get(name):
                output.check_appended(Path(found), option if path is not None else f"${name}")

    def _appended(self) -> Iterator[tuple[Path, Callable[[Sequence[GatedWindow]], str]]]:
        forms = ((self.summary, "--summary", gate_formats.summary), (self.outputs, "--outputs", gate_formats.outputs))
        for given, option, form in forms:
            if name := given or os.environ.get(_VARIABLES[option]):
                yield Path(name), form

    def write(self, found: Sequence[GatedWindow]) -> None:
        """Write all requested files.

        Raises Stop, UsageError: for a file that cannot be written.
        """
        for path, form in self._appended():
            _append(path, form, found)
        for named, export in ((self.benchmark_action, gate_formats.benchmark_action), (self.bencher, gate_formats.bencher)):
            if named is not None:
                output.write_file(Path(named), export(found).encode())
        if self.save is not None:
            _save(Path(self.save), found)


def show(found: Sequence[GatedWindow]) -> None:
    """Print the outcomes, and annotations if GitHub's runner runs the command."""
    rows = [
        (each.outcome.value.upper(), plain(each.name), gate_formats.number_text(each), each.change, plain(each.why))
        for each in found
    ]
    header = ("OUTCOME", "WINDOW", "TIME", "AGAINST BASELINE", "WHY")
    if rows:
        output.emit(output.table(rows, header=header, width=output.width(sys.stdout)))
    is_simulated = any(each.window.verdict.simulated for each in found)
    output.say(f"\n{gate_formats.counts_line(found)}" + ("; of simulated GPUs" if is_simulated else ""))
    if output.is_in_runner():
        for line in gate_formats.workflow_commands(found):
            output.emit(line)


def _save(path: Path, found: Sequence[GatedWindow]) -> None:
    """Write the evidence of unspoiled windows; without any, write nothing, so that an older baseline stays."""
    kept = [each.window.evidence for each in found if each.window.evidence is not None and not spoiled(each.window.verdict)]
    left = f"; {len(found) - len(kept)} spoiled or without evidence left out" if len(kept) < len(found) else ""
    if kept:
        output.write_file(path, pack(kept), "--save")
    output.say(f"{plain(str(path))}: {output.counted(len(kept), 'window') if kept else 'not written, no window'}{left}")


def _append(path: Path, form: Callable[[Sequence[GatedWindow]], str], found: Sequence[GatedWindow]) -> None:
    """Append to a file that other CI steps also write to.  Raises Stop: when the file cannot be written."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(form(found))
    except OSError as error:
        raise Stop(Exit.FAILED, f"{path}: {error.strerror}", "output") from error
