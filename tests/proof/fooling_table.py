"""The entry of a window that is meant to fool the judge: its maker, its deviation, and the fair statuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tests.proof.fooling_stage import Attempt

NOT_VALID = ("flagged", "rejected", "unproven")
NOT_ACCUSED = ("valid", "unproven")  # for an honest window that lacks evidence which the claim requires

Maker: TypeAlias = Callable[[], Attempt]  # the docstring of a maker describes the scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One window to try; ``fair`` holds the acceptable statuses.

    ``covers`` are the numbers whose bound plus repeatability must reach the true deviation in a valid or flagged verdict.  A
    rejected or unproven verdict needs no bound.  ``limit`` is the reason for an unacceptable verdict that remains, or empty.
    """

    make: Maker
    off: str
    fair: tuple[str, ...]
    covers: tuple[str, ...]
    honest: bool
    limit: str = ""

    @property
    def name(self) -> str:
        return self.make.__name__.replace("_", "-")


def off(make: Maker, off: str, *covers: str, fair: tuple[str, ...] = NOT_VALID, limit: str = "") -> Entry:
    """Return the entry of a window with a number that is off or belongs to other work."""
    return Entry(make=make, off=off, fair=fair, covers=covers, honest=False, limit=limit)


def honest(make: Maker, says: str, *, fair: tuple[str, ...] = ("valid",), limit: str = "") -> Entry:
    return Entry(make=make, off=says, fair=fair, covers=(), honest=True, limit=limit)
