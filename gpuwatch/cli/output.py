"""The output of commands: data to standard output, everything else to standard error, JSON with a schema number."""

import json
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import click

from annotate.output import report
from annotate.output.markup import logged
from annotate.output.report import plain
from annotate.output.terminal_text import wrap_line
from annotate.verdict import Status, Verdict
from gpuwatch import atomic_write
from gpuwatch.cli.exit_codes import Exit, ReaderLeft, Stop
from gpuwatch.cli.option_words import name_options
from gpuwatch.errors import UsageError
from gpuwatch.utf8 import clean_text

SCHEMA = 1

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_OURS = re.compile(
    r"\x1b\[(?:0|1|3|36|1;36|31|32|33|35|31;1)m|[\n\t\u200b]"
)  # styles, line breaks, tabs, and the character that prevents links in Markdown
_STEERING = re.compile(rf"{_OURS.pattern}|[^\x20-\x7e]")
_COLOURS = {Status.VALID: "32", Status.UNPROVEN: "35", Status.FLAGGED: "33", Status.REJECTED: "31;1"}


def emit_json(data: Mapping[str, Any], stream: IO[str] | None = None) -> None:
    """Write one JSON object, ``schema`` first.  NaN and infinity become null, because JSON has neither.

    Raises Stop, ReaderLeft: as ``emit``.
    Raises OSError: when a stream other than standard output cannot be written.
    """
    _write(json_text({"schema": SCHEMA} | _finite(dict(data)), indent=2), stream or sys.stdout)


def json_text(data: Mapping[str, Any], *, indent: int | None = None) -> str:
    """Return JSON that escapes all terminal control characters; json leaves C1 and bidirectional ones unescaped."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1] if plain(found[0]) != found[0] else found[0], text).replace(
        "\x7f", "\\u007f"
    )


def emit_either(data: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Write data for programs or text for people.

    Raises Stop, ReaderLeft: as ``emit``.
    """
    if as_json:
        emit_json(data)
    else:
        emit(text)


def emit(text: str = "") -> None:
    """Write a line of data.

    Raises Stop, ReaderLeft: when standard output cannot be written, and when the reader has closed it.
    """
    _write(text, sys.stdout)


def say(text: str = "") -> None:
    """Write a line about the data to standard error, and ignore a full or closed one."""
    try:
        click.echo(_clean(_for_runner(text), sys.stderr), err=True)
    except OSError:
        silence(sys.stderr)


def silence(stream: IO[str] | None) -> None:
    """Discard the rest of a stream: at exit Python flushes the buffers, and would fail with another exit code."""
    if stream is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def keep_closed_streams_free() -> None:
    """Open /dev/null for each closed standard stream (``>&-``): else the next open file gets the stream's number and output.

    Child programs do not inherit /dev/null: the stream stays closed for them.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the process ends


def width(stream: IO[str] | None) -> int | None:
    """Return COLUMNS, else the terminal's columns; None for a pipe, a file, or a terminal of unknown size."""
    named = os.environ.get("COLUMNS", "")
    if named.isdecimal() and int(named) > 0:
        return int(named)
    if stream is None or not stream.isatty():
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or None  # 0: a terminal of unknown size
    except OSError:
        return None


def _write(text: str, stream: IO[str] | None) -> None:
    if stream is None:
        raise Stop(Exit.FAILED, "standard output: expected an open stream, found a closed one", "output")
    try:
        click.echo(_escape_unencodable(_clean(clean_text(text), stream), stream), file=stream)  # a path may be any bytes
    except OSError as error:
        if stream is not sys.stdout:
            raise
        silence(stream)
        if isinstance(error, BrokenPipeError):
            raise ReaderLeft from error
        raise Stop(Exit.FAILED, f"standard output: {error.strerror}", "output") from error


def _clean(text: str, stream: IO[str] | None) -> str:
    """Escape control characters of labels, paths and process names for a terminal.  A pipe gets the text unchanged."""
    if stream is None or not stream.isatty():
        return text
    return _STEERING.sub(lambda found: found[0] if _OURS.fullmatch(found[0]) else plain(found[0]), text)


def _escape_unencodable(text: str, stream: IO[str]) -> str:
    """Escape all characters beyond ASCII, in the form of JSON, if the stream's encoding lacks one of them."""
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)
    return text


def is_coloured(stream: IO[str] | None) -> bool:
    """Return True if a stream is a terminal with colours, and NO_COLOR is not set."""
    return stream is not None and stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, stream: IO[str] | None) -> str:
    """Return a report with coloured status words if ``is_coloured``, else unchanged."""
    if not is_coloured(stream):
        return text
    return "\n".join(_with_status_coloured(line) for line in text.split("\n"))


def lay_out(verdicts: Sequence[Verdict], stream: IO[str] | None, *, more: str, verbose: bool = False) -> str:
    """Return verdicts as text for a stream, with the command line's options, at its width, with colours if ``is_coloured``."""
    named = [name_options(verdict) for verdict in verdicts]
    return coloured(_for_runner(report.texts(named, verbose=verbose, more=more, width=width(stream))), stream)


def is_in_runner() -> bool:
    """Return True in a job of GitHub's runner."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _for_runner(text: str) -> str:
    """Return text in which GitHub's runner, which reads every log, finds no command."""
    return logged(text) if is_in_runner() else text


def _with_status_coloured(line: str) -> str:
    head, space, rest = line.partition(" ")
    code = next((code for status, code in _COLOURS.items() if head == status.value.upper()), None)
    return f"\x1b[{code}m{head}\x1b[0m{space}{rest}" if code else line


def wrap(line: str, indent: int) -> str:
    """Wrap a line at standard output's width, and indent its further lines; a pipe gets the line unchanged.

    In GitHub's runner no line is wrapped: a label's words at the start of a line could be a command.
    """
    columns = width(sys.stdout)
    return line if columns is None or is_in_runner() else wrap_line(line, columns, indent)


def wrap_table(rows: Sequence[Sequence[str]], *, header: Sequence[str]) -> str:
    """Return rows with aligned columns; the last column is wrapped at standard output's width."""
    lines = table(rows, header=header).splitlines()
    return "\n".join(wrap(line, lines[0].index(header[-1])) for line in lines)


def table(rows: Sequence[Sequence[str]], *, header: Sequence[str], width: int | None = None) -> str:
    """Return rows with aligned columns; ``width`` cuts the last column."""
    lines = [header, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header) - 1)]
    room = None if width is None else max(width - sum(widths) - 2 * len(widths), 8)
    return _for_runner(
        "\n".join(
            "  ".join([*(cell.ljust(size) for cell, size in zip(line, widths, strict=False)), cut(line[-1], room)]).rstrip()
            for line in lines
        )
    )


def cut(text: str, most: int | None) -> str:
    """Cut text to at most ``most`` characters, with an ellipsis for the rest."""
    return text if most is None or len(text) <= most else text[: most - 1].rstrip(" ,") + "…"


def counted(count: int, noun: str) -> str:
    """Write a count with its noun: ``1 GPU``, ``2 GPUs``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def size_words(size_bytes: int) -> str:
    """Write a file's size in the unit that suits it."""
    scale, unit = next(each for each in ((1e6, "MB"), (1e3, "kB"), (1, "bytes")) if size_bytes >= each[0] or each[0] == 1)
    return f"{size_bytes / scale:.{1 if scale > 1 else 0}f} {unit}"


def _finite(value: Any) -> Any:  # any JSON value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(name): _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_finite(inner) for inner in value]
    return value


def check_folder(folder: Path, option: str) -> None:
    """Check before the work that the folder exists or can be created.

    Raises UsageError: for a path through a file, and for a folder that cannot be written.
    """
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise UsageError(f"{option}: expected a folder, found {there}, which is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"{option}: expected a writable folder, found {there}")


def check_appended(target: Path, option: str) -> None:
    """Check before the work that the file can be appended to.

    Raises UsageError: for a folder, an unwritable file, and a pipe, whose opening would block.
    """
    is_writable = os.access(target, os.W_OK) if target.exists() else os.access(target.parent, os.W_OK | os.X_OK)
    if target.is_dir() or target.is_fifo() or not is_writable:
        raise UsageError(f"{option}: expected a file that can be appended to, found {target}")


def check_file(target: Path, option: str = "--output") -> None:
    """Check before the work that the file can be written.

    Raises UsageError: for a folder, a file in an unwritable one, and a device or pipe, which root could replace by a file.
    """
    special = target.exists() and not target.is_file() and not target.is_dir()
    if special or target.parent.resolve() == Path("/dev"):
        raise UsageError(f"{option}: expected a file, found {target}, which is a device or a pipe")
    if target.is_dir() or not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{option}: expected a file in a writable folder, found {target}")


def write_file(target: Path, blob: bytes, option: str = "--output") -> None:
    """Replace the file atomically.

    Raises UsageError: when the file cannot be written.
    """
    try:
        atomic_write.replace(target, blob)
    except OSError as error:
        raise UsageError(f"{option}: {target}: {error.strerror}") from error
