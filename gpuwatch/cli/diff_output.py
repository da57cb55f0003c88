"""The outputs of gpuwatch diff: screen, Markdown, JSON, page."""

from __future__ import annotations

import secrets
import sys
from dataclasses import dataclass
from pathlib import Path

from annotate.output.report import plain
from gpuwatch.cli import output
from gpuwatch.diff.render_diff import as_markdown, as_text
from gpuwatch.diff.run_diff import Diff
from gpuwatch.diff.static_comparison import Language
from gpuwatch.errors import UsageError


@dataclass(frozen=True, slots=True)
class ScreenOptions:
    """The options for the content and the files of the output."""

    shows_sass: bool
    shows_ptx: bool
    verbose: bool
    as_markdown: bool
    json_file: str | None
    html_file: Path | None


def show(found: Diff, screen: ScreenOptions) -> None:
    """Show a comparison, and write it to the named files.

    Raises UsageError: when a file cannot be written.
    Raises Stop, ReaderLeft: as ``output.emit``.
    """
    wanted: dict[Language, bool] = {"sass": screen.shows_sass, "ptx": screen.shows_ptx}
    shown = [language for language, is_shown in wanted.items() if is_shown]
    if screen.json_file == "-":
        output.emit_json(found.to_dict(), sys.stdout)
    else:
        # Names in a source are untrusted: escape their control characters for the terminal.
        text = as_text(found, shown, is_whole=screen.verbose)
        output.emit(as_markdown(found, shown) if screen.as_markdown else "\n".join(plain(line) for line in text.split("\n")))
        if screen.json_file is not None:
            data = output.json_text({"schema": output.SCHEMA} | found.to_dict(), indent=2)
            output.write_file(Path(screen.json_file), (data + "\n").encode(), "--json")
    if screen.html_file is not None:
        from gpuwatch.diff.diff_page import render_page

        output.write_file(screen.html_file, render_page(found, secrets.token_urlsafe(16)).encode())


def check_files(screen: ScreenOptions) -> None:
    """Check the output files.

    Raises UsageError: for a JSON file not named .json, and for a file that cannot be written.
    """
    if screen.html_file is not None:
        output.check_file(screen.html_file)
    if screen.json_file not in (None, "-"):
        if not screen.json_file.endswith(".json"):
            raise UsageError(f"--json: expected a file whose name ends in .json, or -, found {screen.json_file!r}")
        output.check_file(Path(screen.json_file), "--json")
