"""Policies: defaults, round trips, and errors for wrong names and values."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from annotate.claims import REQUIRED, Claim
from annotate.errors import AnnotateError, InvalidValueError, UnknownNameError
from annotate.rule import Rule
from annotate.rules import RULES
from annotate.user_policy import Policy


def test_policy_default() -> None:
    assert Policy() == Policy(claim=Claim.SUSTAINED, accept=frozenset(), limits={})


@pytest.mark.parametrize("claim", Claim)
def test_policy_survives_json(claim: Claim) -> None:
    policy = Policy(claim=claim, accept=frozenset({"idle-stretch"}), limits={"idle-stretch": {"named_ratio": 1}})
    assert Policy.from_dict(json.loads(json.dumps(policy.to_dict()))) == policy


def test_policy_accepts_lists_and_claim_names() -> None:
    policy = Policy.from_dict({"claim": "burst", "accept": ["persistence-off"]})
    assert policy.claim is Claim.BURST
    assert policy.accept == frozenset({"persistence-off"})


def test_policy_reads_thresholds_from_toml() -> None:
    data = tomllib.loads('claim = "burst"\ntolerance_ratio = 0.005\nprecision_ratio = 0.02\n')
    assert Policy.from_dict(data) == Policy(claim=Claim.BURST, tolerance_ratio=0.005, precision_ratio=0.02)


def test_policy_leaves_out_default_thresholds() -> None:
    """Default thresholds are not written, so earlier versions can read the policy."""
    old = {"claim": "sustained", "accept": [], "limits": {}}
    assert Policy.from_dict(old) == Policy()
    assert Policy().to_dict() == old
    assert (Policy().tolerance_ratio, Policy().precision_ratio) == (0.01, None)
    data: dict[str, Any] = {
        "tolerance_ratio": 0.005,
        "precision_ratio": 0.02,
        "card_spread_ratio": 0.01,
        "reference_clock_mhz": 1410.0,
    }
    stated = Policy(**data)
    assert stated.to_dict() == {**old, **data}
    assert Policy.from_dict(json.loads(json.dumps(stated.to_dict()))) == stated


def test_settings_fill_open_thresholds() -> None:
    """Settings replace default thresholds only; a setting of 0 changes nothing."""
    filled = Policy(precision_ratio=0.02).or_thresholds(0.005, 0.05, 0.01)
    assert filled == Policy(tolerance_ratio=0.005, precision_ratio=0.02, card_spread_ratio=0.01)
    assert Policy().or_thresholds(0.0, 0.0, 0.0, None) == Policy()
    clocks = {"NVIDIA H200": 1410.0}
    assert Policy().or_thresholds(0.0, 0.0, reference_clock_mhz=clocks).reference_clock_mhz == clocks
    assert Policy(reference_clock_mhz=1500.0).or_thresholds(0.0, 0.0, 0.0, clocks).reference_clock_mhz == 1500.0


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ({"claim": "sustaned"}, "did you mean 'sustained'"),
        ({"accept": ["idlestretch"]}, "did you mean 'idle-stretch'"),
        ({"limits": {"idle-stretch": {"named": 1}}}, "did you mean 'named_ratio'"),
        ({"accepts": []}, "did you mean 'accept'"),
        ({"limits": {"nonsense": {}}}, "known:"),
        ({"tolerance": 0.01}, "did you mean 'tolerance_ratio'"),
    ],
)
def test_unknown_name_is_refused_with_the_nearest(data: dict[str, Any], hint: str) -> None:
    with pytest.raises(UnknownNameError, match=hint):
        Policy.from_dict(data)
    with pytest.raises(UnknownNameError, match="unknown threshold 'precison'; did you mean 'precision'"):
        Policy().with_threshold("precison", 0.01)


@pytest.mark.parametrize(
    "data",
    [
        [],
        None,
        "burst",
        {"claim": None},
        {"claim": 3},
        {"claim": ["burst"]},
        {"accept": "idle-stretch"},
        {"accept": 3},
        {"accept": [3]},
        {"accept": [["idle-stretch"]]},
        {"limits": []},
        {"limits": "idle-stretch"},
        {"limits": {"idle-stretch": 3}},
        {"limits": {"sampler-gap": 3}},
        {"limits": {"idle-stretch": {"named_ratio": "1"}}},
        {"limits": {"idle-stretch": {"named_ratio": True}}},
        {"limits": {"idle-stretch": {"named_ratio": None}}},
        {"limits": {"idle-stretch": {"named_ratio": float("nan")}}},
        {"limits": {"idle-stretch": {"named_ratio": float("inf")}}},
        {"limits": {"idle-stretch": {"named_ratio": 10**400}}},
        {"tolerance_ratio": None},
        {"tolerance_ratio": "1 %"},
        {"tolerance_ratio": True},
        {"tolerance_ratio": 0},
        {"tolerance_ratio": 1.0},
        {"tolerance_ratio": float("nan")},
        {"precision_ratio": 0.0},
        {"card_spread_ratio": 0.5},
        {"precision_ratio": [0.01]},
        {"precision_ratio": 10**400},
        {"reference_clock_mhz": 99},
        {"reference_clock_mhz": 5001.0},
        {"reference_clock_mhz": "1410"},
        {"reference_clock_mhz": True},
        {"reference_clock_mhz": {}},
        {"reference_clock_mhz": {"": 1410.0}},
        {"reference_clock_mhz": {"NVIDIA H200": None}},
    ],
)
def test_wrong_policy_value_is_refused_in_one_line(data: Any) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        Policy.from_dict(data)
    assert "\n" not in str(refusal.value)
    assert "expected" in str(refusal.value)
    assert isinstance(refusal.value, AnnotateError)


@pytest.mark.parametrize("about", RULES, ids=lambda rule: rule.name)
def test_limit_outside_its_range_is_refused_in_one_line(about: Rule) -> None:
    """Both ends of a range are accepted; the error beyond an end names limit, range and value in one line."""
    for name, limit in about.limits.items():
        for value, beyond in ((limit.range.least, -1e-9), (limit.range.most, 1.0)):
            assert Policy(limits={about.name: {name: value}}).limits == {about.name: {name: value}}
            with pytest.raises(InvalidValueError) as refusal:
                Policy(limits={about.name: {name: value + beyond}})
            expected = f"limit {about.name}.{name}: expected a number from {limit.range}, found {value + beyond!r}"
            assert str(refusal.value) == expected


def test_every_required_rule_exists() -> None:
    names = {rule.name for rule in RULES}
    assert set(REQUIRED) <= names
