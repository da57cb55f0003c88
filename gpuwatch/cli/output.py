"""How commands write: data to standard output, everything else to standard error, JSON with a schema number."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import IO, Any

import click

from annotate.verdict import Status

SCHEMA = 1

_COLOURS = {Status.VALID: "32", Status.UNPROVEN: "35", Status.FLAGGED: "33", Status.REJECTED: "31;1"}


def emit_json(data: Mapping[str, Any], stream: IO[str] | None = None) -> None:
    """One JSON object, ``schema`` first.  What is not a number becomes null: JSON has no word for it."""
    click.echo(json.dumps({"schema": SCHEMA} | _finite(dict(data)), ensure_ascii=False, indent=2), file=stream)


def emit(text: str = "") -> None:
    """A line of data."""
    click.echo(text)


def say(text: str = "") -> None:
    """A line about the data: to standard error."""
    click.echo(text, err=True)


def coloured(text: str, stream: IO[str]) -> str:
    """A report with its status words in colour, where somebody looks and did not decline (NO_COLOR)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return text
    return "\n".join(_with_status_coloured(line) for line in text.split("\n"))


def _with_status_coloured(line: str) -> str:
    head, space, rest = line.partition(" ")
    code = next((code for status, code in _COLOURS.items() if head == status.value.upper()), None)
    return f"\x1b[{code}m{head}\x1b[0m{space}{rest}" if code else line


def table(rows: Sequence[Sequence[str]], *, header: Sequence[str]) -> str:
    """Columns aligned by width, the last left as long as it is."""
    lines = [header, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
        for line in lines
    )


def _finite(value: Any) -> Any:  # any JSON value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(name): _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_finite(inner) for inner in value]
    return value
