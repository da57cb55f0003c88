"""The results of proofs 1 and 2 for a window over the judge's three passes, for tests and scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from annotate.answer import Answer, Found
from annotate.budget import Bound, Number, NumberBudget, ProofShown
from annotate.case import Case
from annotate.claims import Claim
from annotate.combine import combine
from annotate.evidence import Evidence
from annotate.passes import AskingPass, merge_passes
from annotate.proofs import books, work_seen
from annotate.rules import accounts, idle
from annotate.rules.held_conditions import dark_time
from annotate.rules.steadiness import bursty_duty_cycle
from annotate.times.durations import usable

CLAIM_FACTS = ("every_s", "varies", "locked_mhz")
RULES = (*idle.RULES, *accounts.RULES, dark_time, bursty_duty_cycle)


@dataclass(frozen=True, slots=True)
class Shown:
    """The merged causes of a window, the last pass's answers, and both proofs."""

    causes: tuple[Bound, ...]
    answers: Mapping[str, Answer]
    work: ProofShown
    books: ProofShown
    is_stamped: bool

    def budget(self, number: Number = Number.THROUGHPUT) -> NumberBudget:
        return combine(NumberBudget(number=number), self.causes, is_stamped=self.is_stamped)

    def bound(self, number: Number = Number.THROUGHPUT) -> float:
        ratio = self.budget(number).bound_ratio
        return float("inf") if ratio is None else ratio

    def found(self, name: str) -> Found:
        answer = self.answers[name]
        assert isinstance(answer, Found), answer
        return answer


def passes(evidence: Evidence) -> Mapping[AskingPass, Evidence]:
    """Return the evidence of each pass; the declared ``CLAIM_FACTS`` are in all passes."""
    claimed = {name: fact for name, fact in evidence.declared.items() if name in CLAIM_FACTS}
    timings = usable(evidence.timings, evidence.window)
    return {
        AskingPass.WITNESSED: replace(evidence, declared=claimed, timings=None, other_work=None),
        AskingPass.TIMED: replace(evidence, declared=claimed, timings=timings),
        AskingPass.DECLARED: replace(evidence, timings=timings),
    }


def shown(evidence: Evidence, claim: Claim = Claim.SUSTAINED) -> Shown:
    """Evaluate the rules in three passes and merge their bounds; answers and proofs are those of the last pass."""
    causes: dict[AskingPass, list[Bound]] = {}
    for asking, about in passes(evidence).items():
        case = Case(about, claim)
        answers = {rule.name: rule.ask_about(case) for rule in RULES}
        causes[asking] = [bound for answer in answers.values() if isinstance(answer, Found) for bound in answer.bounds]
    return Shown(merge_passes(causes), answers, work_seen.prove(case, answers), books.prove(case, answers), case.is_stamped)
