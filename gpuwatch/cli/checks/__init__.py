"""The checks of `doctor`, each with a finding, a grade and a remedy."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Grade(StrEnum):
    """The grades of a check.  PASS: in order.  WARN: windows work with a limitation.  FAIL: windows are unproven or not stored."""

    PASS = "PASS"  # noqa: S105 - a grade
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check; ``fix`` is empty if no action is needed, ``facts`` are values for --json."""

    name: str
    grade: Grade
    found: str
    fix: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def passed(name: str, found: str, /, **facts: Any) -> Check:
    return Check(name=name, grade=Grade.PASS, found=found, facts=facts)


def warned(name: str, found: str, fix: str, /, **facts: Any) -> Check:
    return Check(name=name, grade=Grade.WARN, found=found, fix=fix, facts=facts)


def failed(name: str, found: str, fix: str, /, **facts: Any) -> Check:
    return Check(name=name, grade=Grade.FAIL, found=found, fix=fix, facts=facts)
