"""The evaluation of every rule and proof in three passes, and the merging of the answers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, TypeVar

from annotate.answer import Answer, Clear, Found, Severity, Unobserved
from annotate.budget import Bound, Number, Proof, ProofShown, ProofState, Replaces
from annotate.budget_data import CLAIM_FACTS
from annotate.case import Case
from annotate.claims import REQUIRED
from annotate.derived.claimed_work import is_untrusted
from annotate.evidence import Evidence, Fact
from annotate.evidence.asked import FACTS, TIMES, Asked, Ears, Memory
from annotate.passes import AskingPass, merge_passes
from annotate.proofs import books, conditions_held, nobody_else, steady_times, work_seen
from annotate.rule import Rule, RuleKind
from annotate.user_policy import Policy

_Answered = TypeVar("_Answered")
_Prove: TypeAlias = Callable[[Case, Mapping[str, Answer]], ProofShown]

_PROOFS: Mapping[Proof, _Prove] = {
    Proof.WORK_SEEN: work_seen.prove,
    Proof.BOOKS: books.prove,
    Proof.CONDITIONS: conditions_held.prove,
    Proof.NOBODY_ELSE: nobody_else.prove,
    Proof.STEADY_TIMES: steady_times.prove,
}
_WEIGHT = (Severity.NOTE, Severity.FLAG, Severity.REJECT)
_BADNESS = (ProofState.NOT_ASKED, ProofState.SHOWN, ProofState.UNPROVEN, ProofState.BROKEN)


@dataclass(frozen=True, slots=True)
class Inquired:
    """The answers of all rules and proofs on one window, merged over the passes."""

    case: Case  # the declared pass, which has all evidence
    answers: Mapping[str, Answer]  # by rule name
    causes: tuple[Bound, ...]  # in the order of the rules
    proofs: tuple[ProofShown, ...]


def inquire(rules: Sequence[Rule], evidence: Evidence, policy: Policy) -> Inquired:
    """Evaluate every rule and proof in each pass, and merge the answers."""
    passes = _Passes(evidence, policy)
    by_rule = {rule.name: passes.ask(partial(_answer, rule, policy.limits.get(rule.name))) for rule in rules}
    is_strict = is_untrusted(evidence)
    causes = _causes(rules, by_rule, is_strict=is_strict)
    answers = {rule.name: _together(rule, by_rule[rule.name], causes) for rule in rules}
    proofs = tuple(_proof(passes.ask(partial(_proven, proof, answers)), causes, is_strict=is_strict) for proof in _PROOFS)
    return Inquired(passes.last, answers, causes, proofs)


class _Passes:
    """One case per pass, shared by all rules and proofs, so that a pass computes each series at most once.

    A rule or proof is evaluated again in an earlier pass only if the answer read evidence that the pass lacks.
    """

    def __init__(self, evidence: Evidence, policy: Policy) -> None:
        self._all, claimed_only = Memory(), {name: evidence.declared[name] for name in CLAIM_FACTS if name in evidence.declared}
        self._some = Memory((self._all, FACTS))
        none = Memory((self._some, TIMES), (self._all, FACTS | TIMES))
        timed = replace(evidence, declared=_Heard(claimed_only, evidence.declared, self._some.ears))
        heard = replace(evidence, declared=_Heard(evidence.declared, evidence.declared, self._all.ears))
        case = partial(Case, claim=policy.claim, reference_mhz=policy.reference_clock_mhz)
        self.last = case(Asked.of(heard, self._all))
        self._timed = case(Asked.of(timed, self._some))
        heard_claim = _Heard(claimed_only, evidence.declared, none.ears)
        self._witnessed = case(Asked.of(replace(evidence, declared=heard_claim, timings=None, other_work=None), none))
        self._has_times = evidence.timings is not None or evidence.other_work is not None

    def ask(self, question: Callable[[Case], _Answered]) -> tuple[_Answered, _Answered, _Answered]:
        """Return the answer of each pass, in the order of the passes."""
        last, read = self._all.noting(partial(question, self.last))
        timed = last
        if read & FACTS:
            timed, read = self._some.noting(partial(question, self._timed))
        witnessed = question(self._witnessed) if self._has_times and read & TIMES else timed
        return witnessed, timed, last


class _Heard(Mapping[str, Fact]):
    """The declared facts of one pass; reading a fact beyond the claim that any pass has sets the bit ``FACTS``."""

    def __init__(self, facts: Mapping[str, Fact], every: Mapping[str, Fact], ears: Ears) -> None:
        self._facts = facts
        self._every = every
        self._ears = ears

    def __getitem__(self, name: str) -> Fact:
        if name in self._every and name not in CLAIM_FACTS:
            self._ears.read |= FACTS
        return self._facts[name]

    def __iter__(self) -> Iterator[str]:
        self._ears.read |= FACTS
        return iter(self._facts)

    def __len__(self) -> int:
        self._ears.read |= FACTS
        return len(self._facts)


def _answer(rule: Rule, limits: Mapping[str, float] | None, case: Case) -> Answer:
    """Return the rule's answer; Unobserved if the rule raises, so that one failing rule cannot stop the others."""
    try:
        answer = rule.ask_about(case, limits)
        if isinstance(answer, Found):
            rule.says.format(**answer.facts), rule.remedy.format(**answer.facts)
    except Exception as error:  # noqa: BLE001 - limits and evidence come from outside and may be anything; the caller logs
        failure = type(error).__name__
        under = ", ".join(f"{name} = {value:.6g}" for name, value in (limits or {}).items())
        with_limits = f" with the limit{'s' if len(limits or {}) > 1 else ''} {under}" if under else ""
        return Unobserved(f"the rule {rule.name} failed ({failure}){with_limits}", failure)
    return answer


def _proven(proof: Proof, answers: Mapping[str, Answer], case: Case) -> ProofShown:
    try:
        return _PROOFS[proof](case, answers)
    except Exception as error:  # noqa: BLE001 - evidence comes from outside and may be anything
        missing = (f"the proof failed ({type(error).__name__})",)
        return ProofShown(proof=proof, state=ProofState.UNPROVEN, missing=missing)


def _causes(rules: Sequence[Rule], by_rule: Mapping[str, Sequence[Answer]], *, is_strict: bool) -> tuple[Bound, ...]:
    """Return the causes of all passes in the rules' order, without labels; for untrusted code no bound replaces another."""
    order = {rule.name: place for place, rule in enumerate(rules) if rule.kind is not RuleKind.LABEL}
    found = {asking: [each for name in order for each in _bounds(by_rule[name][i])] for i, asking in enumerate(AskingPass)}
    if is_strict:
        found = {each: [replace(bound, replaces=Replaces.NOTHING) for bound in bounds] for each, bounds in found.items()}
    return tuple(sorted(merge_passes(found), key=lambda bound: order.get(bound.rule, len(order))))


def _bounds(answer: Answer) -> Sequence[Bound]:
    return answer.bounds if isinstance(answer, Found) else ()


def _together(rule: Rule, given: Sequence[Answer], causes: Iterable[Bound]) -> Answer:
    if rule.kind is RuleKind.LABEL:
        last = given[-1]
        return replace(last, severity=Severity.NOTE, bounds=()) if isinstance(last, Found) else last
    found = [answer for answer in reversed(given) if isinstance(answer, Found)]
    worst = max(found, key=lambda answer: _WEIGHT.index(answer.severity), default=None)
    if worst is None or (rule.name in REQUIRED and worst.severity is Severity.NOTE):
        return _unobserved(rule, given) or worst or given[-1]
    mine = tuple(bound for bound in causes if bound.rule == rule.name)
    if worst.severity is Severity.NOTE and any(answer.bounds for answer in found):
        if not any(bound.size_ratio for bound in mine):
            return Clear(found[0].facts)
        size = _size(mine)
        worst = min((answer for answer in found if answer.bounds), key=lambda answer: abs(_size(answer.bounds) - size))
    return replace(worst, bounds=mine)


def _unobserved(rule: Rule, given: Iterable[Answer]) -> Unobserved | None:
    """Return the first Unobserved answer that another pass does not replace (failed, or of a required rule), else None."""
    unanswered = (answer for answer in given if isinstance(answer, Unobserved))
    return next((answer for answer in unanswered if answer.failure is not None or rule.name in REQUIRED), None)


def _size(bounds: Iterable[Bound]) -> float:
    """Return the largest bound, at most 1e9 so that differences of sizes stay finite."""
    return min(max(bound.size_ratio for bound in bounds), 1e9)


def _proof(by_pass: tuple[ProofShown, ProofShown, ProofShown], causes: Iterable[Bound], *, is_strict: bool) -> ProofShown:
    """Return the proof with the worst state among the passes that count, the latest on a tie."""
    witnessed, timed, last = by_pass
    counting = [last, timed]
    if is_strict or _counts(witnessed, causes):
        counting.append(witnessed)
    return max(counting, key=lambda proof: _BADNESS.index(proof.state))


def _counts(witnessed: ProofShown, causes: Iterable[Bound]) -> bool:
    """Return True if the state of a witnessed proof counts although times were given.

    Times can add missing evidence of work, books and a clock lock, but not of other conditions or of other processes.
    Other processes break a proof only while a rule has no bound on the effect.
    """
    if witnessed.state is ProofState.BROKEN:
        if witnessed.proof is not Proof.NOBODY_ELSE:
            return True
        unbounded = {bound.rule for bound in causes if bound.ratio is None and bound.number is not Number.MEDIAN}
        return not unbounded.isdisjoint(witnessed.broken_by)
    if witnessed.proof is Proof.NOBODY_ELSE:
        return True  # times cannot exclude other processes: a neighbour's time slices inside entries count as timed
    return witnessed.proof is Proof.CONDITIONS and not conditions_held.LOCK_MISSING.issuperset(witnessed.missing)
