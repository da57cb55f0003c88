"""The parts of a claim that a user states: a locked clock, a period of calls, varying times, untrusted code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

from annotate.amount_words import duration_text
from gpuwatch.errors import UsageError
from gpuwatch.utf8 import found_words
from gpuwatch.wire.messages import FactValue

MOST_MHZ = 10_000.0  # three times the fastest GPU's; a larger value has a wrong unit
MOST_EVERY_S = 86_400.0  # a day


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedClaim:
    """The stated parts of a claim; None and False mean not stated."""

    locked_mhz: float | None = None
    every_s: float | None = None
    varies: bool = False
    untrusted: bool = False

    @staticmethod
    def checked(
        *, locked_mhz: object = None, every: object = None, varies: object = False, untrusted: object = False
    ) -> StatedClaim:
        """Return the checked parts.

        Raises UsageError: for other types, and for amounts that make no sense.
        """
        if not isinstance(varies, bool):
            raise UsageError(f"varies: expected True or False, found {found_words(varies)}")
        if not isinstance(untrusted, bool):
            raise UsageError(f"untrusted: expected True or False, found {found_words(untrusted)}")
        return StatedClaim(
            locked_mhz=_amount("locked_mhz", locked_mhz, MOST_MHZ, "the SM clock in MHz, such as 1500"),
            every_s=_amount("every", every, MOST_EVERY_S, "seconds from the start of one call to the next, such as 0.02"),
            varies=varies,
            untrusted=untrusted,
        )

    def facts(self) -> dict[str, FactValue]:
        """Return the stated parts, by the names of ``annotate.declared``."""
        stated: dict[str, FactValue] = {"locked_mhz": self.locked_mhz, "every_s": self.every_s, "varies": self.varies or None}
        stated["untrusted"] = self.untrusted or None
        return {name: value for name, value in stated.items() if value is not None}


def check_facts(facts: Mapping[str, object]) -> None:
    """Check the declared clock, period and varying times.

    Raises UsageError: as ``StatedClaim.checked``.
    """
    stated = {name: facts.get(fact) for name, fact in (("locked_mhz", "locked_mhz"), ("every", "every_s"))}
    varies = facts.get("varies")
    StatedClaim.checked(**stated, varies=False if varies is None else varies)


def describe(facts: Mapping[str, object]) -> str:
    """Return the stated parts among declared facts in words, with the own processes of a mark; empty without either."""
    words = []
    if isinstance(locked_mhz := facts.get("locked_mhz"), int | float):
        words.append(f"clock locked at {locked_mhz:g} MHz")
    if isinstance(every_s := facts.get("every_s"), int | float):
        words.append(f"one call every {duration_text(every_s)}")
    if facts.get("varies") is True:
        words.append("times vary by design")
    if isinstance(own := facts.get("own_processes"), str):
        words.append(f"own work: {own}")
    if facts.get("untrusted") is True:
        words.append("untrusted code")
    return ", ".join(words)


def _amount(name: str, value: object, most: float, expected: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real) or value <= 0 or not value <= most:
        raise UsageError(f"{name}: expected {expected}, more than 0 and at most {most:g}, found {found_words(value)}")
    return float(value)
