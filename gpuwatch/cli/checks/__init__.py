"""The checks of `doctor`: each says what it found, what that means for proof, and what to do about it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Grade(StrEnum):
    """PASS: as it should be.  WARN: some rules see less.  FAIL: windows here end unproven, or nothing is kept."""

    PASS = "PASS"  # noqa: S105 - a grade
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at; ``fix`` is empty where nothing needs doing, ``facts`` are JSON values for programs."""

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
