"""The entry of a window that is meant to fool the judge: who makes it, what is off, and what a fair judge would say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tests.proof.fooling_stage import Attempt

NOT_VALID = ("flagged", "rejected", "unproven")
NOT_ACCUSED = ("valid", "unproven")  # an honest window; unproven is fair only where the machine hides what the claim requires

Maker: TypeAlias = Callable[[], Attempt]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One window to try: ``fair`` are the acceptable statuses.

    ``covers`` are the numbers whose bound plus repeatability must reach the truth; it is asked where the verdict is valid or
    flagged, as a rejection or an unproven window vouches for no number.  ``limit`` says why the verdict is not acceptable and
    stays as it is; empty where it is acceptable.
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
    """Enter a window whose number is off, or is not what it is said to be."""
    return Entry(make=make, off=off, fair=fair, covers=covers, honest=False, limit=limit)


def honest(make: Maker, says: str, *, fair: tuple[str, ...] = ("valid",), limit: str = "") -> Entry:
    """Enter an honest window."""
    return Entry(make=make, off=says, fair=fair, covers=(), honest=True, limit=limit)
