"""Names and texts of the rules: units in names, a complete registry, and sentences that fit their facts."""

from __future__ import annotations

import importlib
import pkgutil
import re
import string
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Any, get_args, get_type_hints

import pytest

import annotate.rules
from annotate.case import Case
from annotate.claims import Claim
from annotate.declared import FACTS
from annotate.evidence import SIGNALS as LANES
from annotate.evidence import Device, Evidence, Host, Process, Reading, Visibility
from annotate.evidence.asked import Asked, Memory
from annotate.output.rule_pages import words
from annotate.ranges import Range
from annotate.rule import Found, Rule
from annotate.rules import RULES
from tests.annotate.builders import DEVICE, OWN, capped_ns, evidence
from tests.annotate.occurrences import every_scene
from tests.annotate.strategies import FOREIGN, HIDDEN, SIGNALS
from tests.annotate.units import UNITS, unit_of

FAMILIES = (
    "coverage", "idle", "accounts", "thermal", "power", "clocks", "clock_control", "steadiness", "held_conditions", "contention",
    "sharing", "timing", "harness", "caches", "plausibility", "untrusted", "warmup", "numbers", "shape", "levels", "identity", "comparison",
    "comparison_design",
)  # fmt: skip
NOT_AMOUNTS = {"pid", "p", "trend_p"}  # an identifier, and p-values
NEVER_FOUND = {"stale-daemon", "incomplete-body"}  # rules that answer only clear or unobserved


@cache
def answers_found() -> tuple[tuple[Rule, Found], ...]:
    """Return the findings of every rule on windows in which each hazard occurs at least once."""
    return tuple((rule, answer) for case in cases() for rule in RULES if isinstance(answer := rule.ask_about(case), Found))


def cases() -> Iterator[Case]:
    for about in (*scenes(), *every_scene()):
        asked = Asked.of(about, Memory())  # the claims share what was computed from the evidence
        for claim in Claim:
            yield Case(asked, claim)


def scenes() -> Iterator[Evidence]:
    yield evidence(length_s=0.1)
    yield evidence(skip=lambda t: 1 < t < 3.5)
    for name, values in SIGNALS.items():
        for value in values:
            yield evidence(signals={name: value})
    busy = {
        "power_cap_ns": capped_ns(),
        "power_violation_ns": capped_ns(),
        "sm_clock_mhz": 1455,
        "event_reasons_mask": 0x4,
        "power_w": 691.0,
    }
    onset = {
        "power_cap_ns": capped_ns(1.0),
        "power_violation_ns": capped_ns(1.0),
        "sm_clock_mhz": lambda t: 1980 if t < 1 else 1455,
        "event_reasons_mask": lambda t: 0x4 if t > 1 else 0,
    }
    bursts = {"utilization_ratio": 0.1, "power_w": lambda t: 690.0 if t % 0.1 < 0.02 else 140.0}
    ramp = {"sm_clock_mhz": lambda t: 345 if t < 0.8 else 1980, "utilization_ratio": lambda t: 0.0 if t < 0 else 0.97}
    drift = {"sm_clock_mhz": lambda t: 1980 - 15 * int(max(0, t) * 2), "power_cap_ns": capped_ns()}
    for signals in (busy, onset, bursts, ramp, drift):
        yield evidence(signals=signals)
    for processes in ([OWN, FOREIGN], [OWN, HIDDEN], [OWN, FOREIGN, HIDDEN]):
        yield evidence(processes=processes, visibility=Visibility.HOST)
    yield evidence(host=Host(span_s=6.0, cpu_s=3.0, run_wait_s=3.0), signals={"utilization_ratio": 0.07})
    bare = {**{f.name: getattr(DEVICE, f.name) for f in fields(Device)}, "virtualization": "none", "persistence_mode": False}
    yield evidence(device=Device(**bare), signals={"persistence_mode": False}, processes=[])


def amounts(record: type) -> list[str]:
    """Return the names of a record's numeric fields, without booleans."""
    hints = get_type_hints(record)
    kinds = {name: set(get_args(hint)) or {hint} for name, hint in hints.items()}
    return [f.name for f in fields(record) if kinds[f.name] & {int, float}]


@pytest.mark.parametrize("record", [Reading, Device, Host, Process])
def test_amount_name_ends_in_its_unit(record: type) -> None:
    assert [name for name in amounts(record) if unit_of(name) is None and name not in NOT_AMOUNTS] == []


def test_every_signal_is_an_amount_or_a_switch() -> None:
    assert [name for name in LANES if unit_of(name) is None] == []


def test_fact_name_ends_in_its_unit() -> None:
    def is_amount(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    nameless = {
        (rule.name, name)
        for rule, found in answers_found()
        for name, value in found.facts.items()
        if is_amount(value) and unit_of(name) is None and name not in NOT_AMOUNTS
    }
    assert nameless == set()


def test_limit_name_ends_in_its_unit() -> None:
    assert [
        (rule.name, name) for rule in RULES for name in rule.limits if unit_of(name) is None and name not in NOT_AMOUNTS
    ] == []


def test_rules_find_their_hazards_with_fitting_sentences() -> None:
    """Every rule outside ``NEVER_FOUND`` finds its hazard in some window, and its sentences fit the facts."""
    assert {rule.name for rule, _ in answers_found()} == {rule.name for rule in RULES} - NEVER_FOUND
    for rule, found in answers_found():
        for template in (rule.says, rule.remedy):
            sentence = template.format(**found.facts)
            assert 10 < len(sentence) < 240, (rule.name, sentence)
            assert "\n" not in sentence
            assert not re.search(r"\b(None|nan|inf)\b", sentence), (rule.name, sentence)


def test_registry_lists_the_rules_of_every_family() -> None:
    """The registry lists exactly the rules that the families define, in order."""
    assert {info.name for info in pkgutil.iter_modules(annotate.rules.__path__)} == set(FAMILIES)
    defined = []
    for family in FAMILIES:
        module = importlib.import_module(f"annotate.rules.{family}")
        assert set(module.RULES) == {value for value in vars(module).values() if isinstance(value, Rule)}
        defined += list(module.RULES)
    assert defined == list(RULES)


def test_rule_names_are_kebab_case_and_unique() -> None:
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name) for rule in RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_documents_itself_and_every_limit(rule: Rule) -> None:
    assert words(rule).summary.endswith(".")
    assert all(limit.why for limit in rule.limits.values())
    assert all(isinstance(limit.default, float) for limit in rule.limits.values())
    for limit in rule.limits.values():
        assert limit.range != Range(), f"{rule.name}.{limit.name} declares no range"
        assert limit.range.holds(limit.default), f"{rule.name}.{limit.name}"
    assert rule.check.__name__ == rule.name.replace("-", "_")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_texts_are_short_sentences(rule: Rule) -> None:
    """A rule has one short sentence, and a remedy that starts with a capital letter."""
    for template in (rule.says, rule.remedy):
        assert len(template) < 160
        assert all(field is None or field.isidentifier() for _, field, _, _ in string.Formatter().parse(template))
    assert ". " not in rule.says
    assert rule.remedy[0].isupper()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_needs_only_existing_evidence(rule: Rule) -> None:
    records = {"host": Host, "device": Device}
    for need in rule.needs:
        root, _, name = need.partition(".")
        if root in records:
            assert name in {f.name for f in fields(records[root])}
        elif root == "declared":
            assert name in FACTS
        else:
            assert need in LANES or need in ("timings", "timings.sm_clock_mhz", "process_list", "dense_power", "baseline")


def test_units_are_a_closed_list_with_one_base_each() -> None:
    assert set(UNITS) == {"mhz", "w", "j", "c", "bytes", "ns", "s", "ratio", "count", "mask", "mode"}
    assert all(unit.suffix == suffix for suffix, unit in UNITS.items())
