"""Invariants of the judge for any evidence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import ProofState
from annotate.claims import REQUIRED, Claim
from annotate.declared import FACTS
from annotate.evidence import Evidence, Fact, Ownership, Process, Timings, Trace, Visibility, WindowRecord
from annotate.judge import judge
from annotate.rule import Answer, Clear, Found, RuleKind, Severity, Unobserved, rule
from annotate.rules import RULES
from annotate.user_policy import Policy
from annotate.verdict import Answered, Finding, Status, Verdict
from tests.annotate.builders import BEGIN_NS, OWN, Signal, capped_ns, evidence
from tests.annotate.strategies import declarations, evidences, timings
from tests.examples import share_of

NAMES = [each.name for each in RULES]
claims = st.sampled_from(Claim)
policies = st.builds(
    lambda claim, accept: Policy(claim=claim, accept=frozenset(accept)), claims, st.sets(st.sampled_from(NAMES))
)
thorough = settings(max_examples=share_of(60))


@pytest.mark.parametrize("name", sorted(FACTS))
def test_judge_shortens_declared_texts_in_findings(name: str) -> None:
    text = ",".join(f"word{number}" * 200 for number in range(20))
    about = evidence(length_s=2.0, signals={"sm_clock_mhz": 1980, "power_w": 600.0})
    for finding in judge(replace(about, declared={"l2_bytes": 1e8, "flush_bytes": 1e9, name: text})).findings:
        assert all(len(str(fact)) <= 1000 for fact in finding.facts.values())
        assert max(len(finding.says), len(finding.remedy)) <= 2000, "the rule's sentence, and one fact"


@given(evidences(), policies, declarations, st.none() | timings(), st.none() | evidences())
@settings(parent=thorough, max_examples=share_of(90))
@pytest.mark.filterwarnings("error", "ignore:Generating overly large repr")  # the warning would hide a failing example
def test_judge_gives_one_finding_per_rule(
    about: Evidence, policy: Policy, declared: Mapping[str, Fact], times: Timings | None, baseline: Evidence | None
) -> None:
    """Every rule always has one finding, and the verdict survives JSON."""
    other = replace(baseline, declared=declared, timings=times) if baseline else None
    verdict = judge(replace(about, declared=declared, timings=times, baseline=other), policy)
    assert [finding.rule for finding in verdict.findings] == NAMES
    assert verdict.failed == ()
    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict(), allow_nan=False))) == verdict
    for finding in verdict.findings:
        assert bool(finding.severity) == (finding.answered is Answered.FOUND)
        assert bool(finding.says) == (finding.answered is not Answered.CLEAR)


@given(evidences(), policies)
@thorough
def test_judge_gives_equal_verdicts_for_equal_evidence(about: Evidence, policy: Policy) -> None:
    assert judge(about, policy) == judge(replace(about), policy)


@given(evidences(), policies, declarations, st.none() | timings())
@thorough
def test_declared_facts_and_times_never_improve_a_status(
    about: Evidence, policy: Policy, declared: Mapping[str, Fact], times: Timings | None
) -> None:
    # Without times every claim names throughput alone; with times only ``sustained`` names it.
    comparable = times if policy.claim is Claim.SUSTAINED else None
    undeclared = judge(about, policy).status
    assert judge(replace(about, declared=declared, timings=comparable), policy).status.badness >= undeclared.badness


@given(evidences(), declarations, st.none() | timings(), evidences())
@thorough
def test_declared_facts_and_times_never_improve_a_comparison(
    about: Evidence, declared: Mapping[str, Fact], times: Timings | None, baseline: Evidence
) -> None:
    compared = replace(about, baseline=baseline)
    assert judge(replace(compared, declared=declared, timings=times)).status.badness >= judge(compared).status.badness


def test_judge_sorts_jumbled_times_and_ignores_invalid_times() -> None:
    rng = np.random.default_rng(0)
    count = 200_000
    at_ns = BEGIN_NS + rng.integers(-(10**9), 5 * 10**9, count)
    jumbled = Timings(at_ns, rng.lognormal(-10.0, 1.0, count), rng.normal(1500.0, 20.0, count))
    ordered = np.argsort(at_ns, kind="stable")
    assert jumbled.sm_clock_mhz is not None
    sorted_ = Timings(at_ns[ordered], jumbled.took_s[ordered], jumbled.sm_clock_mhz[ordered])
    verdict = judge(evidence(length_s=4.0, timings=jumbled))
    assert verdict == judge(evidence(length_s=4.0, timings=sorted_))
    untimed = judge(evidence(length_s=4.0))
    for nonsense in (replace(jumbled, calls_count=0), replace(jumbled, sm_clock_mhz=jumbled.sm_clock_mhz[1:])):
        assert judge(evidence(length_s=4.0, timings=nonsense)) == untimed


@pytest.mark.parametrize("visibility", [Visibility.HOST, Visibility.NAMESPACE])
def test_judge_batches_leave_no_untimed_work(visibility: Visibility) -> None:
    """Batches of many calls leave neither pauses nor untimed work."""
    at_ns = BEGIN_NS + np.arange(597, dtype=np.int64) * 10_050_000
    batches = Timings(at_ns, np.full(597, 1e-3), None, calls_count=10)
    hidden = {"memory_used_bytes": None}  # so that times count as evidence on neighbours
    about = evidence(timings=batches, declared={"timer": "graph"}, visibility=visibility, signals=hidden)
    assert not [str(hazard) for hazard in judge(about).hazards if hazard.severity != "note"]
    alone = replace(about, timings=replace(batches, calls_count=1))
    assert {"unaccounted-time"} <= {hazard.rule for hazard in judge(alone).hazards}


HELPLESS = Unobserved("unknown")


@pytest.mark.parametrize(
    ("undeclared", "declared", "kept"),
    [
        (Found(Severity.REJECT), Clear(), Status.REJECTED),
        (Found(Severity.FLAG), Found(Severity.NOTE), Status.FLAGGED),
        (Found(Severity.FLAG), HELPLESS, Status.FLAGGED),
        (HELPLESS, Clear(), Status.UNPROVEN),
        (HELPLESS, Found(Severity.NOTE), Status.UNPROVEN),
        (Clear(), HELPLESS, Status.UNPROVEN),
        (Clear(), Found(Severity.FLAG), Status.FLAGGED),
    ],
)
def test_declared_facts_never_weaken_a_required_rule(undeclared: Answer, declared: Answer, kept: Status) -> None:
    def gullible(evidence: Evidence, claim: Claim) -> Answer:
        return declared if evidence.declared else undeclared

    def content(evidence: Evidence, claim: Claim) -> Answer:
        return Clear()

    checks = {name: gullible if name == "stale-daemon" else content for name in REQUIRED}
    rules = [rule(name, kind=RuleKind.INTEGRITY, says="it", remedy="do it")(check) for name, check in checks.items()]
    assert judge(evidence(declared={"busy_ratio": 1.0}), rules=rules).status is kept


def test_judge_turns_numpy_scalars_into_python_values() -> None:
    def numeric(evidence: Evidence, claim: Claim) -> Answer:
        facts: dict[str, Fact] = {"a_s": np.float64(1.5), "b_count": np.int64(3), "c": np.bool_(True)}  # type: ignore[dict-item]
        return Found(Severity.NOTE, facts, effect_ratio=np.float64(0.1), span_ns=(np.int64(1), np.int64(2)))  # type: ignore[arg-type]

    finding = judge(evidence(), rules=[rule("numeric", kind=RuleKind.INTEGRITY, says="it", remedy="do it")(numeric)]).findings[
        0
    ]
    plain = {type(value) for value in (*finding.facts.values(), finding.effect_ratio, *(finding.span_ns or ()))}
    assert plain == {float, int, bool}


def test_judge_is_not_valid_without_a_required_rule() -> None:
    verdict = judge(evidence(), rules=[each for each in RULES if each.name != "stale-daemon"])
    assert verdict.status is not Status.VALID
    assert "stale-daemon: no such rule" in verdict.why


def test_judge_accepted_hazard_proves_nothing() -> None:
    """An accepted hazard does not replace missing evidence."""
    policy = Policy(accept=frozenset({"contention-residual"}))
    hidden = evidence(processes=None, signals={"memory_used_bytes": None})
    assert judge(hidden, policy).status is Status.UNPROVEN
    declared = judge(replace(hidden, declared={"busy_ratio": 0.1}), policy)
    assert declared.finding("contention-residual").answered is Answered.FOUND
    assert declared.status is Status.UNPROVEN


@given(evidences(), policies)
@thorough
def test_judge_status_order(about: Evidence, policy: Policy) -> None:
    """Rejected outranks flagged outranks unproven outranks valid."""
    verdict = judge(about, policy)
    assert verdict.budget is not None
    counted = {finding.severity for finding in verdict.hazards if not finding.accepted}
    broken = {rule for proof in verdict.budget.proofs for rule in proof.broken_by} - policy.accept
    expected = (
        Status.REJECTED if "reject" in counted
        else Status.FLAGGED if "flag" in counted or broken
        else Status.UNPROVEN if verdict.why
        else Status.VALID
    )  # fmt: skip
    assert verdict.status is expected
    asked = [proof for proof in verdict.budget.proofs if proof.state is not ProofState.NOT_ASKED]
    assert len(asked) == (4 if about.timings is None else 5)
    assert bool(verdict.why) >= any(proof.state is ProofState.UNPROVEN for proof in asked)


@given(evidences(), claims)
@thorough
def test_judge_accepting_all_keeps_every_hazard(about: Evidence, claim: Claim) -> None:
    """Accepting every hazard keeps all hazards in the verdict and does not prove an unproven window."""
    strict, lenient = judge(about, Policy(claim=claim)), judge(about, Policy(claim=claim, accept=frozenset(NAMES)))
    assert {finding.rule for finding in lenient.hazards} == {finding.rule for finding in strict.hazards}
    assert all(finding.accepted for finding in lenient.hazards)
    assert strict.budget is not None
    lacking = any(proof.state is ProofState.BROKEN and proof.missing for proof in strict.budget.proofs)
    assert lenient.status is (Status.UNPROVEN if strict.why or lacking else Status.VALID)


@given(evidences(), st.sampled_from(NAMES), claims)
@thorough
def test_accepting_one_hazard_hides_no_other_finding(about: Evidence, name: str, claim: Claim) -> None:
    """Accepting one hazard changes no other finding except to a higher severity, and never worsens the status."""
    strict, lenient = judge(about, Policy(claim=claim)), judge(about, Policy(claim=claim, accept=frozenset({name})))
    before, after = ([f for f in verdict.findings if f.rule != name] for verdict in (strict, lenient))
    assert [replace(f, severity=None) for f in before] == [replace(f, severity=None) for f in after]
    assert all(_weight(old) <= _weight(new) for old, new in zip(before, after, strict=True))
    assert lenient.status.badness <= strict.status.badness


def _weight(finding: Finding) -> int:
    return (None, "note", "flag", "reject").index(finding.severity)


@pytest.mark.parametrize("claim", [Claim.SUSTAINED, Claim.BURST])
@pytest.mark.parametrize("visibility", [Visibility.HOST, Visibility.NAMESPACE])
def test_clean_copy_is_valid_with_its_utilisation_record(claim: Claim, visibility: Visibility) -> None:
    """In a container, a clean copy is unproven without the recorded utilisation of its process."""
    about = evidence(length_s=4.0, visibility=visibility)
    verdict = judge(about, Policy(claim=claim))
    assert verdict.status is Status.VALID, str(verdict)
    assert not [finding for finding in verdict.hazards if finding.severity != "note"]
    if visibility is Visibility.NAMESPACE:
        lists = tuple(
            replace(each, processes=tuple(replace(process, utilization_ratio=None) for process in each.processes))
            for each in about.trace.process_lists
        )
        unrecorded = judge(replace(about, trace=replace(about.trace, process_lists=lists)), Policy(claim=claim))
        assert unrecorded.status is Status.UNPROVEN
        assert "nobody-else: process lists that show the whole machine" in unrecorded.why


def test_judge_steady_capped_gemm_is_valid() -> None:
    """A steady GEMM under the power cap is valid as sustained, and flagged at a fixed clock."""
    signals: dict[str, Signal] = {
        "power_cap_ns": capped_ns(), "power_violation_ns": capped_ns(), "sm_clock_mhz": 1455, "event_reasons_mask": 0x4,
        "power_w": 691.0, "power_average_w": 691.0,
    }  # fmt: skip
    verdict = judge(evidence(signals=signals))
    assert verdict.status is Status.VALID, str(verdict)
    assert judge(evidence(signals=signals), Policy(claim=Claim.FIXED_CLOCK)).status is Status.FLAGGED


@pytest.mark.parametrize("claim", Claim)
@pytest.mark.parametrize(
    "signals",
    [
        ("sm_clock_mhz",),
        ("power_cap_ns", "power_violation_ns", "event_reasons_mask"),
        ("sw_thermal_ns", "hw_thermal_ns", "thermal_violation_ns", "event_reasons_mask"),
    ],
    ids=lambda names: names[0],
)
def test_window_without_required_signals_is_not_valid(claim: Claim, signals: tuple[str, ...]) -> None:
    verdict = judge(evidence(length_s=4.0, signals=dict.fromkeys(signals)), Policy(claim=claim))
    assert verdict.status is not Status.VALID
    assert verdict.why


def test_unwatched_window_is_unproven_with_the_reason() -> None:
    verdict = judge(
        Evidence(window=WindowRecord(begin_ns=BEGIN_NS, end_ns=BEGIN_NS + 4 * 10**9), absence="no daemon is running")
    )
    assert (verdict.status, verdict.why) == (Status.UNPROVEN, "no daemon is running")
    assert judge(replace(evidence(length_s=4.0), trace=Trace())).status is Status.UNPROVEN


def test_window_without_process_lists_is_unproven() -> None:
    verdict = judge(evidence(length_s=4.0, processes=None))
    assert verdict.status is Status.UNPROVEN
    assert "nobody-else: a process list" in verdict.why


def test_process_lists_alone_exclude_other_processes() -> None:
    whole_list = evidence(length_s=4.0, processes=[replace(OWN, utilization_ratio=None, memory_bytes=None)])
    assert judge(whole_list).status is Status.VALID


def test_braces_in_a_process_name_are_plain_text() -> None:
    odd = Process(pid=7, name="{0} {x}", user="{}", memory_bytes=10**10, utilization_ratio=0.5, ownership=Ownership.FOREIGN)
    assert "{0} {x}" in judge(evidence(processes=[OWN, odd])).finding("contention-process").says


def test_verdict_holds_label_claim_policy_and_device() -> None:
    policy = Policy(claim=Claim.BURST, limits={"clock-controller-present": {"power_tolerance_w": 250}})
    verdict = judge(evidence(length_s=4.0, label="mine", signals={"power_limit_w": 500.0}), policy)
    assert (verdict.label, verdict.claim, verdict.policy) == ("mine", "burst", policy.to_dict())
    assert verdict.device_name == "NVIDIA H200"
    assert verdict.finding("clock-controller-present").answered is Answered.CLEAR


def test_judge_asks_twice_only_about_declared_facts() -> None:
    """Without times, a rule that reads declared facts is asked twice, and any other rule once."""
    asked: list[str] = []

    @rule("deaf", kind=RuleKind.INTEGRITY, says="it happened", remedy="Stop it.")
    def deaf(evidence: Evidence, claim: Claim) -> Answer:
        asked.append("deaf")
        return Clear()

    @rule("listening", kind=RuleKind.INTEGRITY, says="it happened", remedy="Stop it.")
    def listening(evidence: Evidence, claim: Claim) -> Answer:
        asked.append("listening")
        return Clear() if evidence.declared.get("sync_s") else Found(Severity.FLAG)

    verdict = judge(evidence(declared={"sync_s": 1.0}), rules=(deaf, listening))
    assert asked == ["deaf", "listening", "listening"]
    assert [hazard.rule for hazard in verdict.hazards] == ["listening"]
