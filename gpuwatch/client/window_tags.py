"""Tags of a window, such as job, team and build, for later queries with `gpuwatch fleet`.

A user gives tags, ``w.declare()`` keeps facts with unknown names as tags, and the environment of a job adds more.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping

from gpuwatch.errors import UsageError
from gpuwatch.process.surroundings import found_tags
from gpuwatch.utf8 import clean_text, found_words
from gpuwatch.wire.messages import NAME_LENGTH, TAG_LENGTH, TAGS_COUNT, TAGS_LENGTH, FactValue

OWN_COUNT = TAGS_COUNT // 2  # the rest is for tags of the environment
OWN_LENGTH = TAGS_LENGTH // 2
VARIABLE = "GPUWATCH_TAGS"  # KEY=VALUE,KEY=VALUE for all windows of a job, a pod or a command of `gpuwatch run`
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]*")
_log = logging.getLogger("gpuwatch")


class WindowTags:
    """The tags of one window: given by the user, declared in the block, and found in the environment."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self.given = dict(given or {})
        self.declared: dict[str, str] = {}
        self._found: dict[str, str] = {}

    def at_opening(self, outer: WindowTags | None, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return all tags at the opening.  Precedence: the user's, the outer window's, ``GPUWATCH_TAGS``, the job's."""
        around = {} if outer is None else {**outer.given, **outer.declared}
        found = {**found_tags(environment), **_read_variable(environment.get(VARIABLE, "")), **around}
        kept: dict[str, str] = {}
        for name, text in found.items():
            try:
                kept = _bounded({**kept, **check_tags({name: text})})
            except UsageError as error:  # the user may not be able to change the environment
                _log.warning("gpuwatch: a tag of the environment or of the outer window is left out: %s", error)
        self._found = kept
        return self.all()

    def all(self) -> dict[str, str]:
        """Return all current tags."""
        return {**self._found, **self.given, **self.declared}

    def take_unknown(self, facts: Mapping[str, FactValue], known: Iterable[str]) -> dict[str, FactValue]:
        """Return the facts whose names are known; keep the others, except None, as tags with a warning.

        Raises UsageError: for an invalid or long tag, and for too many tags.
        """
        known = frozenset(known)
        unknown = {name: fact for name, fact in facts.items() if name not in known and fact is not None}
        if unknown:
            declared = {**self.declared, **check_tags(unknown, doing="declare")}
            _bounded({**self.given, **declared}, "declare")
            self.declared = declared
            from difflib import get_close_matches  # imported only for a mistake
        for name in unknown:
            near = get_close_matches(name, known, 1)
            _log.warning(
                "gpuwatch: declare: %r is not a known fact%s; kept as a tag",
                name,
                f" (did you mean {near[0]!r}?)" if near else "",
            )
        return {name: fact for name, fact in facts.items() if name in known}


def check_tags(tags: object, *, doing: str = "tags") -> dict[str, str]:
    """Return tags as text.

    Raises UsageError: for invalid or long names and values, and for too many tags.
    """
    if tags is None:
        return {}
    if not isinstance(tags, Mapping):
        raise UsageError(f"{doing}: expected names and values, such as {{'team': 'vision'}}, found {found_words(tags)}")
    return _bounded({_name(name, doing): _value(name, value, doing) for name, value in tags.items()}, doing)


def read_tags(texts: Iterable[str]) -> dict[str, str]:
    """Read the values of --tag KEY=VALUE.

    Raises UsageError: for invalid or too many tags, and for two values of one key.
    """
    tags: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--tag: expected KEY=VALUE, such as team=vision, found {text!r}")
        read = check_tags({name: clean_text(value)}, doing="--tag")
        if tags.get(name, read[name]) != read[name]:
            raise UsageError(f"--tag: expected one value of {name}, found {tags[name]!r} and {read[name]!r}")
        tags.update(read)
    return _bounded(tags, "--tag")


def write_variable(tags: Mapping[str, str]) -> str:
    """Return tags in the format of ``GPUWATCH_TAGS``."""
    return ",".join(f"{name}={value.replace('%', '%25').replace(',', '%2C')}" for name, value in tags.items())


def _read_variable(text: str) -> dict[str, str]:
    tags = {}
    for each in filter(None, map(str.strip, text.split(","))):
        name, _, value = each.partition("=")
        tags[name] = value.replace("%2C", ",").replace("%25", "%")
    return tags


def _name(name: object, doing: str) -> str:
    if not isinstance(name, str) or len(name) > NAME_LENGTH or not _NAME.fullmatch(name):
        expected = f"a name of at most {NAME_LENGTH} letters, digits and _ . : / -, with a letter, a digit or _ first"
        raise UsageError(f"{doing}: expected {expected}, found {found_words(name)}")
    return name


def _value(name: object, value: object, doing: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise UsageError(f"{doing}: {name}: expected text or a number, found {found_words(value)}")
    if isinstance(value, int) and value.bit_length() > 4 * TAG_LENGTH:  # Python writes no number of more than 4300 digits
        raise UsageError(
            f"{doing}: {name}: expected at most {TAG_LENGTH} characters, found a number of {value.bit_length()} bits"
        )
    text = clean_text(str(value))
    if len(text) > TAG_LENGTH:
        raise UsageError(f"{doing}: {name}: expected at most {TAG_LENGTH} characters, found {len(text)}")
    if not text.strip() or not text.isprintable():
        raise UsageError(f"{doing}: {name}: expected one line of printable text, found {found_words(value)}")
    return text


def _bounded(tags: dict[str, str], doing: str = "tags") -> dict[str, str]:
    if len(tags) > OWN_COUNT:
        raise UsageError(f"{doing}: expected at most {OWN_COUNT} tags in all, found {len(tags)}")
    length = sum(len(name) + len(value) for name, value in tags.items())
    if length > OWN_LENGTH:
        raise UsageError(f"{doing}: expected at most {OWN_LENGTH} characters in all, found {length}")
    return tags
