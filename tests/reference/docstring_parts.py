"""Docstrings of public names in parts: summary, arguments, attributes, returns, raises, examples."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_SECTIONS = ("Args:", "Attributes:", "Returns:", "Example:")
_ENTRY = re.compile(r"    (\*{0,2}\w+): (.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of one docstring."""

    summary: str = ""
    text: str = ""  # paragraphs below the summary
    arguments: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    returns: str = ""
    raises: tuple[tuple[str, str], ...] = ()  # class and occasion; ("", sentence) for "Raises nothing"
    example: str = ""  # lines of a Python session, with text between them
    example_file: str = ""
    provisional: str = ""


def split_docstring(docstring: str | None) -> Parts:
    """Split a docstring into its parts; without a docstring every part is empty."""
    sections = _sections(inspect.cleandoc(docstring or ""))
    paragraphs, raises, provisional = [], [], ""
    for paragraph in sections[""].split("\n\n")[1:]:
        words = " ".join(paragraph.split())
        if words.startswith("Provisional: "):
            provisional = words.removeprefix("Provisional: ")
        elif words.startswith("Raises "):
            raises += list(_raises(words))
        elif words:
            paragraphs.append(words)
    example = sections["Example:"]
    named = re.match(r"``([\w/.]+\.py)``", example)
    return Parts(
        summary=" ".join(sections[""].split("\n\n")[0].split()),
        text="\n\n".join(paragraphs),
        arguments=_entries(sections["Args:"]),
        attributes=_entries(sections["Attributes:"]),
        returns=" ".join(sections["Returns:"].split()),
        raises=tuple(raises),
        example="" if named else inspect.cleandoc("\n" + example).strip(),
        example_file=named[1] if named else "",
        provisional=provisional,
    )


def _sections(text: str) -> dict[str, str]:
    """Return the lines below each heading; an unindented line ends a section."""
    found: dict[str, list[str]] = {"": [], **{name: [] for name in _SECTIONS}}
    current = ""
    for line in text.splitlines():
        head = next((name for name in _SECTIONS if line.startswith(name)), None)
        if head is not None:
            current = head
        elif line and not line.startswith(" "):
            current = ""
        found[current].append(line.removeprefix(head).strip() if head else line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def _entries(section: str) -> dict[str, str]:
    entries: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if (begun := _ENTRY.fullmatch(line)) is not None:
            name = begun[1].lstrip("*")
            entries[name] = begun[2]
        elif line.strip() and name:
            entries[name] += " " + line.strip()
    return entries


def _raises(words: str) -> Iterator[tuple[str, str]]:
    """Read "Raises X: when …" sentences, possibly several per paragraph; "Raises nothing" has no class."""
    for sentence in re.split(r"(?<=\.) +(?=Raises )", words):
        named = re.fullmatch(r"Raises ([\w.]+): (.*)", sentence)
        yield (named[1], named[2]) if named is not None else ("", sentence)
