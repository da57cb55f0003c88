"""A budget, its proofs and the stated claim as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from annotate.budget import Budget, NumberBudget
from annotate.errors import InvalidValueError

# Facts that state the claim, which every pass keeps.
CLAIM_FACTS = ("locked_mhz", "every_s", "varies", "whole_program", "untrusted", "own_processes")


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """Parts of a claim that the user states besides its name, in figures.  A part that was not stated is None."""

    locked_mhz: float | None = None
    every_s: float | None = None
    varies: bool | None = None
    whole_program: bool | None = None

    @staticmethod
    def of(declared: Mapping[str, object]) -> ClaimFacts:
        """Read declared facts; an invalid fact counts as not stated."""
        return ClaimFacts(
            locked_mhz=_amount(declared.get("locked_mhz")),
            every_s=_amount(declared.get("every_s")),
            varies=_truth(declared.get("varies")),
            whole_program=_truth(declared.get("whole_program")),
        )


NOT_STATED = ClaimFacts()


def budget_to_data(budget: Budget) -> dict[str, Any]:
    """Return ``budget`` and ``proofs``, with the rules that left a number unbounded and a mark on each bound that counts."""
    data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(budget))
    proofs = data.pop("proofs")
    for number, written in zip(budget.numbers, data["numbers"], strict=True):
        written.update(_explained(number, written["bounds"]))
    return {"budget": data, "proofs": proofs}


def budget_from_data(data: Mapping[str, Any]) -> Budget | None:
    """Read ``budget`` and ``proofs`` of a verdict; return None without a budget, as in schema 1.

    Raises InvalidValueError: if the data is invalid.
    """
    if data.get("budget") is None:
        return None
    try:
        numbers = [
            {**number, "bounds": [{**bound, "number": number["number"]} for bound in number["bounds"]]}
            for number in data["budget"]["numbers"]
        ]
        return msgspec.convert({**data["budget"], "numbers": numbers, "proofs": data["proofs"]}, Budget)
    except (LookupError, TypeError, ValueError) as error:
        problem = f"expected a verdict's budget, found invalid data ({type(error).__name__}: {error}); export the verdict again"
        raise InvalidValueError(problem) from error


def _explained(number: NumberBudget, bounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Mark the bounds that count, and return the rules that left the number unbounded."""
    counted = set(map(id, number.counted))
    for bound, written in zip(number.bounds, bounds, strict=True):
        del written["number"]
        written["counted"] = id(bound) in counted
    return {"unbounded_by": list(number.unbounded_by)}


def _truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _amount(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e24:
        return None
    return float(value)
