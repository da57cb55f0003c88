"""Windows that are meant to fool the judge, both ways; ``python -m tests.proof.fooling [NAME…]`` judges them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from annotate.budget import NumberBudget
from annotate.claims import Claim
from annotate.judge import judge
from annotate.user_policy import Policy
from annotate.verdict import Verdict
from tests.proof import (
    fooling_clocks,
    fooling_honest,
    fooling_honest_more,
    fooling_idle,
    fooling_inputs,
    fooling_neighbours,
    fooling_times,
)
from tests.proof.fooling_stage import Attempt
from tests.proof.fooling_table import Entry

ENTRIES: tuple[Entry, ...] = (
    *fooling_clocks.ENTRIES,
    *fooling_idle.ENTRIES,
    *fooling_neighbours.ENTRIES,
    *fooling_inputs.ENTRIES,
    *fooling_times.ENTRIES,
    *fooling_honest.ENTRIES,
    *fooling_honest_more.ENTRIES,
)
ENTRY_NUMBERS = ("throughput", "mean")  # for an entry without ``covers``
_SHORT = {"throughput": "thr", "mean": "mean", "median": "med", "median_at_clock": "at clock"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One judged entry."""

    entry: Entry
    attempt: Attempt
    verdict: Verdict

    @property
    def is_as_declared(self) -> bool:
        """Return whether an honest window deviates by less than 0.3 %, and any other by more than 2 % or in no comparable number."""
        largest = max((abs(each) for each in self.attempt.truth.values()), default=1.0)
        return (largest < 0.003 if self.entry.honest else largest > 0.02) and set(self.entry.covers) <= set(self.attempt.truth)

    @property
    def is_status_fair(self) -> bool:
        return str(self.verdict.status.value) in self.entry.fair

    @property
    def uncovered(self) -> tuple[str, ...]:
        """Return the numbers that a valid or flagged verdict lacks, or whose deviation exceeds bound plus repeatability."""
        if self.verdict.status.value not in ("valid", "flagged"):
            return ()
        numbers = _numbers(self.verdict)
        return tuple(
            name for name in self.entry.covers if name not in numbers or _reach(numbers[name]) < abs(self.attempt.truth[name])
        )

    @property
    def is_acceptable(self) -> bool:
        return self.is_status_fair and not self.uncovered

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(each.rule for each in self.verdict.findings if each.severity in ("flag", "reject"))

    def bounds(self, names: Sequence[str]) -> dict[str, str]:
        """Return bound plus repeatability of each of these numbers as text."""
        numbers = _numbers(self.verdict)
        reaches = {name: _reach(numbers[name]) for name in names if name in numbers}
        return {name: "?" if reach == float("inf") else f"{reach:.1%}" for name, reach in reaches.items()}


def tried(entry: Entry) -> Tried:
    attempt = entry.make()
    return Tried(entry=entry, attempt=attempt, verdict=judge(attempt.evidence, Policy(claim=Claim(attempt.claim))))


def _numbers(verdict: Verdict) -> Mapping[str, NumberBudget]:
    return {each.number.value: each for each in verdict.budget.numbers} if verdict.budget is not None else {}


def _reach(number: NumberBudget) -> float:
    """Return bound plus repeatability of a number, infinite without a bound."""
    if number.bound_ratio is None:
        return float("inf")
    return number.bound_ratio + (number.repeatability.ratio or 0.0)


def line(each: Tried) -> str:
    names = each.entry.covers or ENTRY_NUMBERS
    truth = " ".join(f"{_SHORT[name]} {each.attempt.truth[name]:+.1%}" for name in names if name in each.attempt.truth)
    bound = " ".join(f"{_SHORT[name]} {amount}" for name, amount in each.bounds(names).items())
    found = ",".join(each.rules)
    missed = "" if each.is_acceptable else "status" if not each.is_status_fair else "bound"
    outcome = "ok" if not missed else f"NO ({missed})"
    kind = "honest" if each.entry.honest else "off"
    return (
        f"{each.entry.name:31s} {kind:6s} {truth:27s} {each.verdict.status.value.upper():9s} {bound:22s} {outcome:12s} {found}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.fooling", description=__doc__)
    parser.add_argument("names", nargs="*", help="names of windows (default: all)")
    parser.add_argument("-v", "--verbose", action="store_true", help="also print the description and the verdict")
    arguments = parser.parse_args()
    fooled = {"honest": 0, "off": 0}
    asked = [each for each in ENTRIES if not arguments.names or each.name in arguments.names]
    for entry in asked:
        found = tried(entry)
        print(line(found))
        if arguments.verbose:
            print(f"  {entry.off}\n{found.verdict}\n")
        fooled["honest" if entry.honest else "off"] += not found.is_acceptable
    counts = {kind: sum(each.honest == (kind == "honest") for each in asked) for kind in fooled}
    print(*(f"{kind}: {fooled[kind]} of {counts[kind]} not acceptable" for kind in fooled), sep="; ")


if __name__ == "__main__":
    main()
