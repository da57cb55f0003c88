"""Tests that every name available to users of an earlier version still exists."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import pytest

from annotate.rules import RETIRED, RETIRED_LIMITS, RULES
from annotate.user_policy import Policy
from tests.compatibility import old_version
from tests.compatibility.write import interface

OLD = old_version.interface()
RENAMED = {" gpuwatch compare arms"}  # a positional argument, whose name users never write


@cache
def now() -> dict[str, Any]:
    return interface()


def gone(old: Any, new: Any, place: str = "") -> list[str]:
    """Return the earlier names that are missing or changed now; their order does not count."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [name for key, each in old.items() for name in gone(each, new.get(key), f"{place} {key}")]
    if isinstance(old, list) and isinstance(new, list):
        return [f"{place} {name}" for name in old if name not in new]
    return [] if old == new else [f"{place}: was {old}, is {new}"]


@pytest.mark.parametrize("kind", OLD)
def test_names_of_the_earlier_version_stay(kind: str) -> None:
    """The earlier commands, options, exit codes, Python names, arguments, settings, facts, rules, limits and metrics exist."""
    assert OLD[kind]
    retired = {
        name
        for rule, limits in OLD["rules"].items()
        for name in (
            [f" {rule}: was {limits}, is None"]
            if rule in RETIRED
            else (f" {rule} {each}" for each in RETIRED_LIMITS.get(rule, ()))
        )
    }
    assert set(gone(OLD[kind], now()[kind])) - retired <= RENAMED


def test_policies_may_name_every_old_rule_and_limit() -> None:
    """A policy with every earlier rule and limit is accepted, and retired rules have no limits."""
    defaults = {rule.name: {limit.name: limit.default for limit in rule.limits.values()} for rule in RULES}
    limits = {rule: {name: defaults.get(rule, {}).get(name, 0.5) for name in names} for rule, names in OLD["rules"].items()}
    policy = Policy(accept=frozenset(OLD["rules"]), limits={rule: each for rule, each in limits.items() if each})
    assert policy.accept == frozenset(OLD["rules"])
    assert set(policy.limits) <= set(defaults)
    assert any(name in RETIRED for name in policy.accept)


def test_former_module_of_the_policy_imports() -> None:
    assert importlib.import_module("annotate.policy").Policy is Policy


def test_positional_arguments_keep_their_order() -> None:
    """The earlier arguments keep their order; new arguments may come between them."""
    for function, names in OLD["arguments"].items():
        kept = [name for name in now()["arguments"][function] if name in names]
        assert kept == names, function


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ({"a": ["--x"]}, {"a": ["--x", "--y"], "b": []}, []),
        ({"a": ["--x"]}, {"a": ["--y"]}, [" a --x"]),
        ({"a": ["--x"]}, {}, [" a: was ['--x'], is None"]),
        ({"CODE": 1}, {"CODE": 2}, [" CODE: was 1, is 2"]),
    ],
)
def test_gone_finds_lost_names(old: Any, new: Any, names: list[str]) -> None:
    """Missing and changed names are found, and new names are allowed."""
    assert gone(old, new) == names


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ({"a": 1, "says": "x"}, {"a": 1, "says": "y", "b": 2}, 0),
        ({"a": 1}, {"a": 2}, 1),
        ({"a": 1}, {}, 1),
        ({"a": 1}, {"a": None}, 1),
        ({"a": 1}, {"a": True}, 1),
        ({"a": [1, 2]}, {"a": [1]}, 1),
        ({"a": 0.1}, {"a": 0.1000000001}, 0),
        ([{"rule": "x", "answered": "clear"}], [{"rule": "new"}, {"rule": "x", "answered": "clear"}], 0),
        ([{"rule": "x", "answered": "clear"}], [{"rule": "new"}], 1),
        ([{"rule": "x", "answered": "clear"}], [{"rule": "x", "answered": "found"}], 1),
    ],
)
def test_lost_finds_changed_data(old: Any, new: Any, count: int) -> None:
    """Missing and changed data is found; new keys, changed prose and rounding are allowed."""
    assert len(list(old_version.lost(old, new))) == count
