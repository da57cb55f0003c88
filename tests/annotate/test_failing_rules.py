"""Rules that fail on limits or evidence: the judge reports the failure and goes on with the other rules."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Annotated

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate import inquiry
from annotate.claims import Claim
from annotate.evidence import Evidence
from annotate.judge import judge
from annotate.output.report import text
from annotate.rule import Answer, Clear, Found, Rule, RuleKind, Severity, rule
from annotate.rules import RULES
from annotate.user_policy import Policy
from annotate.verdict import Answered, Status, Verdict
from tests.annotate.builders import evidence
from tests.annotate.occurrences import every_scene
from tests.examples import SHARE, share_of

NAMES = [each.name for each in RULES]
LIMITS = [(each, name) for each in RULES for name in each.limits]


@cache
def scenes() -> tuple[Evidence, ...]:
    return tuple(every_scene())


@cache
def judged() -> tuple[tuple[Evidence, Verdict], ...]:
    return tuple((scene, judge(scene)) for scene in scenes())


def answering(about: Rule) -> tuple[int, ...]:
    """Return the indices of one scene for each kind of answer of this rule, of up to two in ``make bench``."""
    kinds: dict[object, list[int]] = {}
    for place, (_, verdict) in enumerate(judged()):
        finding = verdict.finding(about.name)
        kinds.setdefault((finding.answered, finding.severity), []).append(place)
    return tuple(place for found in kinds.values() for place in found[: 2 if SHARE == 1.0 else 1])


def check_complete(verdict: Verdict, names: list[str]) -> None:
    assert [finding.rule for finding in verdict.findings] == names
    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict(), allow_nan=False))) == verdict
    for finding in verdict.findings:
        if finding.failure is not None:
            assert finding.answered is Answered.UNOBSERVED
            assert f"the rule {finding.rule} failed ({finding.failure})" in finding.says
    assert text(verdict)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rules_answer_at_both_ends_of_every_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rule fails with a limit at either end of its range, and the verdict is complete.

    One verdict tests one limit of many rules at once, because no rule reads the limits of another.  No proof is asked: proofs
    read limits only through the answers of rules.
    """
    ends = {
        about.name: [(name, end) for name, limit in about.limits.items() for end in (limit.range.least, limit.range.most)]
        for about in RULES
    }
    asked: dict[int, list[str]] = {}
    monkeypatch.setattr(inquiry, "_PROOFS", {})
    for about in RULES:
        for place in answering(about):
            asked.setdefault(place, []).append(about.name)
    assert {name for names in asked.values() for name in names} == set(NAMES)
    failed = []
    for place, names in asked.items():
        for turn in range(max(len(ends[name]) for name in names)):
            tried = {name: dict([ends[name][turn]]) for name in names if turn < len(ends[name])}
            rules = [each for each in RULES if each.name in tried]
            verdict = judge(scenes()[place], Policy(limits=tried), rules=rules)
            check_complete(verdict, [each.name for each in rules])
            failed += [(place, tried[finding.rule], finding) for finding in verdict.failed]
    assert failed == []


@st.composite
def limits(draw: st.DrawFn) -> Mapping[str, Mapping[str, float]]:
    """Draw some limits of some rules, each at an amount that a policy accepts."""
    out: dict[str, dict[str, float]] = {}
    for about, name in draw(st.lists(st.sampled_from(LIMITS), min_size=1, max_size=12)):
        bounds = about.limits[name].range
        ends = st.sampled_from([bounds.least, bounds.most])
        out.setdefault(about.name, {})[name] = draw(ends | st.floats(bounds.least, bounds.most))
    return out


@given(st.integers(0, 10**6), limits(), st.sampled_from(Claim))
@settings(max_examples=share_of(60))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_verdict_is_complete_under_any_limits(number: int, drawn: Mapping[str, Mapping[str, float]], claim: Claim) -> None:
    """Any accepted limits give a complete verdict on a window of any hazard."""
    scene = scenes()[number % len(scenes())]
    check_complete(judge(scene, Policy(claim=claim, limits=drawn)), NAMES)


@rule("idle-stretch", kind=RuleKind.BIAS, says="it happened", remedy="")
def brittle(about: Evidence, claim: Claim, *, named_ratio: Annotated[float, "fails"] = 0.5) -> Answer:
    """Fail if the limit is 1."""
    return [Clear()][round(2.0 * named_ratio) - 1]


def test_judge_names_failed_rule_in_why() -> None:
    """A failed rule leaves the window unproven, and the sentence names rule, error and limit."""
    rules = [brittle if each.name == brittle.name else each for each in RULES]
    verdict = judge(evidence(), Policy(limits={brittle.name: {"named_ratio": 1}}), rules=rules)
    finding = verdict.finding("idle-stretch")
    assert (finding.answered, finding.failure) == (Answered.UNOBSERVED, "IndexError")
    assert finding.says == "the rule idle-stretch failed (IndexError) with the limit named_ratio = 1"
    assert verdict.status is Status.UNPROVEN
    assert verdict.why == f"idle-stretch: {finding.says}"


def test_judge_keeps_valid_despite_a_failed_label() -> None:
    """The failure of a label does not change the status."""
    label = replace(fails, name="persistence-off", kind=RuleKind.LABEL)
    verdict = judge(evidence(), rules=[*(each for each in RULES if each.name != label.name), label])
    assert (verdict.status, [finding.rule for finding in verdict.failed]) == (Status.VALID, [label.name])
    assert judge(evidence()).status is Status.VALID


@rule("fails", kind=RuleKind.INTEGRITY, says="{amount:.0%} of it", remedy="")
def fails(about: Evidence, claim: Claim) -> Answer:
    """Fail without declared facts, else find nothing."""
    if not about.declared:
        raise MemoryError
    return Clear()


@rule("odd", kind=RuleKind.INTEGRITY, says="{amount:.0f} W at {count}", remedy="{missing}")
def odd(about: Evidence, claim: Claim) -> Answer:
    """Find a hazard without the fact that its remedy needs."""
    return Found(Severity.REJECT, {"amount": 1.0, "count": 2})


@rule("vast", kind=RuleKind.INTEGRITY, says="{amount:.0f} W at {count}", remedy="")
def vast(about: Evidence, claim: Claim) -> Answer:
    """Find a hazard with figures that JSON and 64 bits cannot hold."""
    return Found(
        Severity.REJECT,
        {"amount": math.inf, "count": 10**30, "ratio": np.float64("nan")},
        effect_ratio=math.inf,
        span_ns=(0, 10**30),
    )


def test_judge_hides_no_failure_behind_declared_facts() -> None:
    """Declared facts cannot turn the failure of a required rule into clear."""
    required = replace(fails, name="incomplete-body")
    others = [each for each in RULES if each.name != "incomplete-body"]
    verdict = judge(replace(evidence(), declared={"timer": "events"}), rules=[*others, required])
    assert verdict.finding("incomplete-body").failure == "MemoryError"
    assert verdict.status is Status.UNPROVEN


def test_judge_reports_unwritable_sentence_as_failure() -> None:
    """A finding whose sentence cannot be filled is a failure of its rule."""
    finding = judge(evidence(), rules=(odd,)).finding("odd")
    assert (finding.answered, finding.failure) == (Answered.UNOBSERVED, "KeyError")


def test_judge_keeps_finding_with_unencodable_figures() -> None:
    """Figures that JSON or 64 bits cannot hold become text or None, and the finding stays."""
    verdict = judge(evidence(), rules=(vast,))
    finding = verdict.finding("vast")
    assert (finding.severity, finding.says) == ("reject", f"inf W at {10**30}")
    assert finding.facts == {"amount": "inf", "count": str(10**30), "ratio": "nan"}
    assert (finding.effect_ratio, finding.span_ns) == (None, None)
    check_complete(verdict, ["vast"])
