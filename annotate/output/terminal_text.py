"""The wrapping of a verdict's lines, and short UUIDs, for a terminal."""

import textwrap
from collections.abc import Sequence

_NARROWEST = 30  # columns: narrower text is harder to read than lines broken by the terminal


def wrap_line(line: str, width: int, indent: int) -> str:
    """Wrap a line at words and indent the rest to the text column, or by 4 if that column leaves too little room."""
    if len(line) <= width:
        return line
    hanging = " " * (indent if indent + _NARROWEST <= width else 4)
    return "\n".join(
        textwrap.wrap(line, max(width, _NARROWEST), subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)
    )


def pack_lines(lines: Sequence[str], width: int, count: int) -> list[str]:
    """Wrap each line, or all lines as one paragraph if the wrapped lines are more than ``count``."""
    wrapped = "\n".join(wrap_line(line, width, 4) for line in lines).split("\n")
    if len(wrapped) <= count:
        return wrapped
    return wrap_line(" · ".join(line.strip() for line in lines), width, 2).split("\n")


def shorten_uuid(uuid: str) -> str:
    """Return both ends of a UUID: GPUs of one batch begin alike, and simulated ones differ only in the last digits."""
    return f"{uuid[:8]}…{uuid[-4:]}" if len(uuid) > 13 else uuid
