"""The outputs of gpuwatch diff: screen, Markdown, JSON, page."""

from __future__ import annotations

import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotate.output.report import plain
from gpuwatch.cli import output
from gpuwatch.diff.render_diff import as_markdown, as_text
from gpuwatch.diff.run_diff import Diff
from gpuwatch.diff.static_comparison import Language
from gpuwatch.errors import UsageError


@dataclass(frozen=True, slots=True)
class ScreenOptions:
    """The options of the output's content and place."""

    shows_sass: bool
    shows_ptx: bool
    verbose: bool
    as_markdown: bool
    json_file: str | None


def show(found: Diff, screen: ScreenOptions, json_file: Path | None, html_file: Path | None) -> None:
    """Show a comparison, and write it to the named files."""
    shown: list[Language] = [*(["sass"] if screen.shows_sass else []), *(["ptx"] if screen.shows_ptx else [])]  # type: ignore[list-item]
    if json_file != Path("-"):
        # Names in a source are untrusted: they must not steer this terminal.
        text = as_text(found, shown, is_whole=screen.verbose)
        output.emit(as_markdown(found, shown) if screen.as_markdown else "\n".join(plain(line) for line in text.split("\n")))
    _write_json(found.to_dict(), json_file)
    if html_file is not None:
        from gpuwatch.diff.diff_page import render_page

        output.write_file(html_file, render_page(found, secrets.token_urlsafe(16)).encode())


def check_json(named: str | None) -> Path | None:
    """Return the file for JSON.  Raises UsageError: when it looks like a source, or cannot be written."""
    if named is None or named == "-":
        return None if named is None else Path("-")
    if not named.endswith(".json"):
        raise UsageError(f"--json: expected a file whose name ends in .json, or -, found {named!r}")
    output.check_file(Path(named), "--json")
    return Path(named)


def _write_json(data: dict[str, Any], file: Path | None) -> None:
    if file == Path("-"):
        output.emit_json(data, sys.stdout)
    elif file is not None:
        output.write_file(file, (output.json_text({"schema": output.SCHEMA} | data, indent=2) + "\n").encode(), "--json")
