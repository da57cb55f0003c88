"""The measurement of one seed: the judge's answers on a clean window, and on that window with every hazard, as counts."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable

import numpy as np

from annotate.budget import Number
from annotate.claims import Claim
from annotate.combine import CLAIMED
from annotate.evidence import Evidence
from annotate.judge import judge
from annotate.ranges import TOLERANCE_RATIO
from annotate.rule import Answer, Found, Severity, Unobserved
from annotate.user_policy import Policy
from annotate.verdict import Answered, Status, Verdict
from tests.campaign import clean
from tests.campaign.mutator import Mutator, rule_named
from tests.campaign.mutators import MUTATORS

# Keys are path-like: "clean-rule/NAME/alarms", "injected/MUTATOR/2/caught".
Counts = Counter[str]
# The multiple at which other rules may catch a missed hazard; at other multiples this check would take too long.
_TWICE = 2.0


def of_seed(seed: int, rule: str | None = None) -> Counts:
    """Return the counts of one seed; ``rule`` limits the hazards to those of one rule."""
    about = clean.simulated(seed)
    counts = of_clean(about, f"clean/{about.window.label}")
    # Each mutator draws from a separate generator, so that a new mutator does not change the results of others.
    for mutator in MUTATORS:
        if rule in (None, mutator.rule):
            counts.update(of_mutator(mutator, about, np.random.default_rng([seed, zlib.crc32(mutator.name.encode())])))
    return counts


def of_seeds(seeds: Iterable[int], rule: str | None = None) -> Counts:
    return total(of_seed(seed, rule) for seed in seeds)


def of_recorded() -> Counts:
    counts: Counts = Counter()
    for name, about in clean.recorded():
        counts.update(of_clean(about, f"recorded/{name}", prefix="recorded"))
    return counts


def of_clean(about: Evidence, kind: str, *, prefix: str = "clean") -> Counts:
    """Return the counts of one clean window: its status, and the alarms, notes and unobserved answers of each rule."""
    verdict = judge(about)
    counts: Counts = Counter({f"{kind}/windows": 1})
    counts[f"{kind}/{verdict.status.value}"] += 1
    if _alarmed(verdict):
        counts[f"{kind}/alarms"] += 1
    for finding in verdict.findings:
        name = f"{prefix}-rule/{finding.rule}"
        counts[f"{name}/windows"] += 1
        if finding.answered is Answered.UNOBSERVED:
            counts[f"{name}/unobserved"] += 1
        elif finding.severity == Severity.NOTE:
            counts[f"{name}/notes"] += 1
        elif finding.severity is not None:
            counts[f"{name}/alarms"] += 1
    return counts


def of_mutator(mutator: Mutator, about: Evidence, rng: np.random.Generator) -> Counts:
    counts: Counts = Counter()
    for multiple in mutator.multiples:
        hazardous = mutator.inject(about, multiple, rng)
        if hazardous is None:
            break
        name = f"injected/{mutator.name}/{multiple:g}"
        answer = rule_named(mutator.rule).ask(hazardous, mutator.claim)
        found = is_caught(mutator, answer)
        counts[f"{name}/windows"] += 1
        counts[f"{name}/unobserved"] += isinstance(answer, Unobserved)
        counts[f"{name}/caught"] += found
        if (found and not mutator.is_label) or (
            not mutator.is_label
            and multiple == _TWICE
            and judge(hazardous, Policy(claim=mutator.claim)).status is not Status.VALID
        ):
            counts[f"{name}/not valid"] += 1
    return counts


def is_caught(mutator: Mutator, answer: Answer) -> bool:
    if mutator.unobserved and isinstance(answer, Unobserved):
        return True
    severities = list(Severity)
    if not isinstance(answer, Found):
        return False
    if mutator.is_label:
        return True
    return severities.index(_made_of(answer, mutator.claim)) >= severities.index(mutator.caught)


def _made_of(answer: Found, claim: Claim) -> Severity:
    """Return an answer's severity, or with bounds a flag if a claimed bound exceeds the tolerance, else a note."""
    if not answer.bounds:
        return answer.severity
    numbers = (*CLAIMED[claim], Number.RATIO)
    claimed = [bound.size_ratio for bound in answer.bounds if bound.number in numbers]
    return Severity.FLAG if max(claimed, default=0.0) > TOLERANCE_RATIO else Severity.NOTE


def _alarmed(verdict: Verdict) -> bool:
    return any(finding.severity in (Severity.FLAG, Severity.REJECT) for finding in verdict.findings)


def total(parts: Iterable[Counts]) -> Counts:
    out: Counts = Counter()
    for part in parts:
        out.update(part)
    return out
