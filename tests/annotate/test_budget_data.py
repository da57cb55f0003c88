"""A budget as plain data: the schema, the round trip, and invalid data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import annotate
from annotate.budget import Bound, Estimate, Group, Number
from annotate.budget_data import ClaimFacts, budget_from_data, budget_to_data
from annotate.combine import Grounds, decide
from annotate.errors import InvalidValueError
from annotate.judge import judge
from annotate.user_policy import Policy
from tests.annotate import bounds as made
from tests.annotate.bounds import cause, clean
from tests.annotate.builders import evidence

SCHEMA = json.loads((Path(annotate.__file__).parent / "verdict.schema.json").read_text())
KEYS = ("budget", "proofs")
VALIDATOR = jsonschema.Draft202012Validator(
    {
        "$defs": SCHEMA["$defs"], "properties": {name: SCHEMA["properties"][name] for name in KEYS},
        "required": KEYS, "additionalProperties": False,
    }
)  # fmt: skip


def written(*causes: Bound) -> dict[str, Any]:
    return budget_to_data(decide(clean(*causes), Policy()).budget)


@given(made.grounds, made.policies)
def test_any_budget_survives_json_and_follows_the_schema(grounds: Grounds, policy: Policy) -> None:
    budget = decide(grounds, policy).budget
    data = json.loads(json.dumps(budget_to_data(budget), allow_nan=False))
    assert budget_to_data(budget) == data  # lists as in JSON, not tuples
    VALIDATOR.validate(data)
    assert budget_from_data(data) == budget


def test_budget_data_marks_counted_and_unbounded_causes() -> None:
    data = written(cause("a", Group.IDLE, 0.02), cause("b", Group.IDLE, 0.01), cause("neighbour", Group.RECORD, None))
    (number,) = (each for each in data["budget"]["numbers"] if each["number"] == "throughput")
    assert (number["bound_ratio"], number["unbounded_by"]) == (None, ["neighbour"])
    assert {bound["rule"]: bound["counted"] for bound in number["bounds"]} == {"a": True, "b": False, "neighbour": True}


def test_verdict_of_schema_1_has_no_budget() -> None:
    assert budget_from_data(judge(evidence(length_s=1.5)).as_schema_1()) is None


@pytest.mark.parametrize(
    "change",
    [
        {"budget": 3},
        {"budget": []},
        {"budget": {}},
        {"proofs": [{"proof": "work-seen", "state": "perhaps"}]},
        {"proofs": None},
    ],
)
def test_invalid_budget_is_refused_in_one_line(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        budget_from_data({**written(), **change})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "change", [{"ratio": -1.0}, {"ratio": "much"}, {"seen_ratio": 0.5}, {"group": "weather"}, {"span_ns": [1]}, {"rule": None}]
)
def test_budget_with_an_invalid_bound_is_refused(change: dict[str, Any]) -> None:
    data = written(cause("a", Group.IDLE, 0.02))
    data["budget"]["numbers"][0]["bounds"][0].update(change)
    with pytest.raises(InvalidValueError):
        budget_from_data(data)


def test_schema_refuses_a_bound_with_an_extra_key() -> None:
    data = written(cause("a", Group.IDLE, 0.02, 0.01))
    assert VALIDATOR.is_valid(data)
    data["budget"]["numbers"][0]["bounds"][0]["extra"] = 1
    assert not VALIDATOR.is_valid(data)


@pytest.mark.parametrize("ends", [(0.2, 0.1, 0.3), (0.0, float("nan"), 0.0), (0.0, 0.1, float("inf"))])
def test_estimate_refuses_ends_out_of_order(ends: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="expected an estimate"):
        Estimate(*ends)


@pytest.mark.parametrize("change", [{"ratio": -0.1}, {"ratio": float("nan")}, {"ratio": float("inf")}, {"seen_ratio": 0.03}])
def test_bound_refuses_invalid_figures(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        replace(cause("a", Group.IDLE, 0.02), **change)


@given(st.tuples(*[st.floats(-1, 1)] * 3).map(sorted))
def test_nearer_ratio_is_zero_if_the_interval_holds_zero(ends: list[float]) -> None:
    estimate = Estimate(*ends)
    assert estimate.nearer_ratio == (0.0 if ends[0] <= 0.0 <= ends[2] else min(abs(ends[0]), abs(ends[2])))


def test_bound_is_seen_in_full_by_default() -> None:
    assert cause("a", Group.IDLE, 0.02).seen_ratio == 0.02
    assert Bound(number=Number.MEAN, rule="a", group=Group.IDLE, ratio=None).seen_ratio is None


def test_claim_facts_treat_invalid_facts_as_not_stated() -> None:
    assert ClaimFacts.of({"locked_mhz": 1500, "every_s": 0.01, "varies": True, "timer": "events"}) == ClaimFacts(
        1500.0, 0.01, True
    )
    assert ClaimFacts.of({"locked_mhz": "1500", "every_s": float("nan"), "varies": 1}) == ClaimFacts()
    assert ClaimFacts.of({"locked_mhz": True, "every_s": 0.0}) == ClaimFacts()
