"""A verdict as plain data, and the order of hazards and verdicts."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import annotate
from annotate.errors import InvalidValueError
from annotate.judge import judge
from annotate.user_policy import Policy
from annotate.verdict import Answered, Finding, OverriddenLimit, Status, Verdict, worst
from tests.annotate.builders import evidence
from tests.examples import share_of

SCHEMA = json.loads((Path(annotate.__file__).parent / "verdict.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

# Each child process reads its first verdict in eight threads at once.
FIRST_IN_THREADS = """
import json, os, sys, threading
sys.setswitchinterval(1e-6)
from annotate.verdict import Verdict
data = json.load(sys.stdin)
def read():
    together.wait()
    Verdict.from_dict(data)
codes = []
for _ in range(12):
    if (pid := os.fork()) == 0:
        together = threading.Barrier(8)
        threads = [threading.Thread(target=read) for _ in range(8)]
        [each.start() for each in threads], [each.join() for each in threads]
        os._exit(0)
    codes.append(os.waitpid(pid, 0)[1])
print(codes)
"""

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
findings = st.builds(
    Finding,
    rule=st.from_regex(r"[a-z]{1,8}(-[a-z]{1,8}){0,2}", fullmatch=True),
    answered=st.just(Answered.FOUND),
    severity=st.sampled_from(["note", "flag", "reject"]),
    says=st.text(min_size=1),
    remedy=st.text(),
    facts=st.dictionaries(st.text(), scalars, max_size=3),
    effect_ratio=st.none() | st.floats(-1, 10),
    span_ns=st.none() | st.tuples(st.integers(), st.integers()),
    basis=st.sampled_from(["telemetry", "host", "told", "timings"]),
    required=st.booleans(),
    accepted=st.booleans(),
    limits_overridden=st.dictionaries(st.text(), st.builds(OverriddenLimit, st.floats(0, 1), st.floats(0, 1)), max_size=2),
)
verdicts = st.builds(
    Verdict,
    status=st.sampled_from(Status),
    findings=st.lists(findings, max_size=3).map(tuple),
    claim=st.sampled_from(["sustained", "burst", "fixed-clock"]),
    label=st.none() | st.text(),
    device_uuid=st.none() | st.text(),
    device_name=st.none() | st.text(),
    begin_ns=st.integers(0, 2**62),
    end_ns=st.integers(0, 2**62),
    simulated=st.booleans(),
    policy=st.just(Policy().to_dict()),
    why=st.text(),
)


@given(verdicts)
@settings(max_examples=share_of(50))
def test_any_verdict_survives_json_and_follows_the_schema(verdict: Verdict) -> None:
    data = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
    assert verdict.to_dict() == data  # lists as in JSON, not tuples
    VALIDATOR.validate(data)
    assert Verdict.from_dict(data) == verdict


def test_first_verdicts_of_threads_do_not_crash() -> None:
    """Threads may read the process's first verdicts at the same time: msgspec crashed while it described the type."""
    data = json.dumps(judge(evidence(length_s=0.5)).to_dict())
    done = subprocess.run([sys.executable, "-c", FIRST_IN_THREADS], input=data, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [0] * 12


@pytest.mark.parametrize("length_s", [0.1, 2.0, 4.0])
def test_judged_verdict_survives_json_and_follows_the_schema(length_s: float) -> None:
    policy = Policy(accept=frozenset({"idle-stretch"}), limits={"idle-stretch": {"named_ratio": 1}})
    verdict = judge(evidence(length_s=length_s), policy)
    data = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
    VALIDATOR.validate(data)
    assert Verdict.from_dict(data) == verdict


def test_verdict_marks_overridden_limits_of_every_rule() -> None:
    """A finding lists an overridden limit with its default, even if that limit hides the hazard."""
    name = "clock-controller-present"
    loose = {name: {"power_tolerance_w": 250.0, "held_ratio": 0.02}}
    about = evidence(signals={"power_limit_w": 500.0})
    assert judge(about).finding(name).answered is Answered.FOUND
    verdict = judge(about, Policy(limits=loose, tolerance_ratio=0.005, precision_ratio=0.02))
    finding = verdict.finding(name)
    assert finding.answered is not Answered.FOUND
    assert finding.limits_overridden == {"power_tolerance_w": OverriddenLimit(250.0, 0.5)}
    assert not any(other.limits_overridden for other in verdict.findings if other is not finding)
    data = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
    VALIDATOR.validate(data)
    assert Verdict.from_dict(data) == verdict


def test_verdict_without_overridden_limits_is_read() -> None:
    """Verdicts of versions without overridden limits read as verdicts under the default limits."""
    verdict = judge(evidence(length_s=1.5))
    data = verdict.to_dict()
    for finding in data["findings"]:
        del finding["limits_overridden"]
    VALIDATOR.validate(data)
    assert Verdict.from_dict(data) == verdict


@pytest.mark.parametrize(
    "change",
    [
        {"status": "fine"},
        {"schema": 3},
        {"begin_ns": "now"},
        {"extra": 1},
        {"findings": [{"rule": "x"}]},
        {"device": {"uuid": None}},
        {"claim": "fast"},
    ],
)
def test_schema_refuses_invalid_verdicts(change: dict[str, Any]) -> None:
    data = {**judge(evidence(length_s=1.5)).to_dict(), **change}
    assert not VALIDATOR.is_valid(data)


def test_schema_refuses_inconsistent_findings() -> None:
    """The schema refuses a found hazard without a severity, and a clear finding with one."""
    verdict = judge(evidence(signals={"power_limit_w": 500.0}))
    index = next(i for i, finding in enumerate(verdict.findings) if finding.answered is Answered.FOUND)
    for wrong in ({"severity": None}, {"answered": "clear"}):
        data = verdict.to_dict()
        data["findings"][index].update(wrong)
        assert not VALIDATOR.is_valid(data)


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        None,
        7,
        "valid",
        {"schema": "1"},
        {"schema": 1, "status": "fine"},
        {**Verdict(status=Status.VALID, findings=(), claim="sustained").to_dict(), "findings": {"a": 1}},
        {**Verdict(status=Status.VALID, findings=(), claim="sustained").to_dict(), "device": None},
    ],
)
def test_invalid_verdict_is_refused_in_one_line(data: Any) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        Verdict.from_dict(data)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "change", [{"span_ns": [1]}, {"severity": "awful"}, {"severity": 3}, {"answered": "perhaps"}, {"facts": 3}, {"says": 5}]
)
def test_verdict_with_an_invalid_finding_is_refused(change: dict[str, Any]) -> None:
    data = judge(evidence(length_s=0.1)).to_dict()
    data["findings"][0].update(change)
    with pytest.raises(InvalidValueError):
        Verdict.from_dict(data)


def test_verdict_of_a_newer_schema_is_refused_with_a_remedy() -> None:
    data = {**judge(evidence(length_s=1.5)).to_dict(), "schema": 99}
    with pytest.raises(InvalidValueError, match="newer gpuwatch"):
        Verdict.from_dict(data)


def test_hazards_come_worst_first_and_accepted_last() -> None:
    def hazard(rule: str, severity: str, *, accepted: bool = False) -> Finding:
        return Finding(rule=rule, answered=Answered.FOUND, severity=severity, says="it", accepted=accepted)

    verdict = Verdict(
        status=Status.REJECTED,
        claim="sustained",
        findings=(hazard("a", "note"), hazard("b", "reject", accepted=True), hazard("c", "flag"), hazard("d", "reject")),
    )
    assert [finding.rule for finding in verdict.hazards] == ["d", "c", "a", "b"]


def test_worst_verdict_decides_for_several_gpus() -> None:
    valid = Verdict(status=Status.VALID, findings=(), claim="sustained")
    order = [replace(valid, status=status) for status in (Status.VALID, Status.UNPROVEN, Status.FLAGGED, Status.REJECTED)]
    for better, bad in pairwise(order):
        assert worst([better, bad]) is worst([bad, better]) is bad
    with pytest.raises(ValueError, match="empty"):
        worst([])


def test_unknown_rule_has_no_finding() -> None:
    with pytest.raises(KeyError):
        Verdict(status=Status.VALID, findings=(), claim="sustained").finding("no-such-rule")
