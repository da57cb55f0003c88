"""Tests of the rules about growing times and times with levels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from annotate.budget import Number
from annotate.case import Case
from annotate.evidence import Evidence, Timings
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.levels import RULES, iteration_growth, iteration_levels
from tests.annotate.builders import evidence
from tests.annotate.derived.test_time_levels import GROWING, STEPPING, TOGGLING, noisy, timed
from tests.truth_windows import truth_windows

GROWS, STEPS, TOGGLES = timed(GROWING), timed(STEPPING), timed(TOGGLING)
STEADY = timed(noisy(np.full(3000, 1e-3)))


def ask(rule: Rule, about: Evidence, **limits: float) -> Answer:
    return rule.ask_about(Case(about), limits)


@pytest.mark.parametrize(
    ("about", "growth", "levels"),
    [(GROWS, Found, Clear), (STEPS, Clear, Found), (TOGGLES, Clear, Found), (STEADY, Clear, Clear)],
)
def test_levels_rules_find_one_shape_each(about: Evidence, growth: type, levels: type) -> None:
    assert isinstance(ask(iteration_growth, about), growth)
    assert isinstance(ask(iteration_levels, about), levels)


def test_growth_finding_has_its_size_and_bounds() -> None:
    found = ask(iteration_growth, GROWS)
    assert isinstance(found, Found)
    assert iteration_growth.says.format(**found.facts).startswith("the times grow by 29")
    assert found.severity is Severity.NOTE  # the judge derives the severity from the bounds
    assert {bound.rule for bound in found.bounds} == {"iteration-growth"}
    assert {bound.number for bound in found.bounds} == set(Number) - {Number.RATIO}


def test_levels_finding_has_both_times_and_a_span() -> None:
    found = ask(iteration_levels, STEPS)
    assert isinstance(found, Found)
    says = iteration_levels.says.format(**found.facts)
    assert "1 ms" in says
    assert "1.1 ms" in says
    assert found.span_ns is not None
    assert STEPS.window.begin_ns <= found.span_ns[0] < found.span_ns[1] <= STEPS.window.end_ns + 1


@pytest.mark.parametrize(("rule", "about"), [(iteration_growth, GROWS), (iteration_levels, STEPS)])
def test_times_declared_to_vary_are_a_label(rule: Rule, about: Evidence) -> None:
    """Growth and levels are findings without bounds under ``varies``, which claims the mean."""
    found = ask(rule, replace(about, declared={"varies": True}))
    assert isinstance(found, Found)
    assert found.bounds == ()
    assert found.severity is Severity.NOTE


@pytest.mark.parametrize("varies", [False, None, "yes", 1])
def test_varies_must_be_true_to_drop_bounds(varies: str | bool | int | None) -> None:
    found = ask(iteration_levels, replace(STEPS, declared={"varies": varies}))
    assert isinstance(found, Found)
    assert found.bounds


@pytest.mark.parametrize("rule", RULES)
def test_levels_rules_are_unobserved_without_enough_times(rule: Rule) -> None:
    assert isinstance(ask(rule, evidence()), Unobserved)
    assert isinstance(ask(rule, timed(np.full(5, 0.1))), Unobserved)


@pytest.mark.parametrize("rule", RULES)
def test_levels_rules_are_clear_below_their_limit(rule: Rule) -> None:
    about = GROWS if rule is iteration_growth else STEPS
    assert isinstance(ask(rule, about, least_ratio=0.5), Clear)


@pytest.mark.parametrize("name", ["stall-0.3-softmax", "pause-0.7-softmax"])
def test_recorded_times_that_recur_faster_than_levels(name: str) -> None:
    """Recorded clean times without a cap are clear; slowed by 6 % for 12 of each 30 ms, they are not."""
    about = truth_windows()[name].before
    assert about.timings is not None
    assert isinstance(ask(iteration_levels, about), Clear)
    is_slowed = (about.timings.at_ns - about.window.begin_ns) % 30_000_000 < 12_000_000
    slowed = replace(about.timings, took_s=np.where(is_slowed, 1.06, 1.0) * about.timings.took_s)
    found = ask(iteration_levels, replace(about, timings=slowed))
    assert isinstance(found, Found)
    by = {each.number: each.size_ratio for each in found.bounds}
    assert 0.02 < by[Number.MEAN] < 0.07
    assert "beyond their levels" in str(found.facts["what"])


@pytest.mark.parametrize("stamped_ratio", [1.0, 0.3])
@pytest.mark.parametrize("name", ["neighbour-10-gemm4k", "grows-9%-gemm4k"])
def test_swing_of_joined_calls_does_not_recur(name: str, stamped_ratio: float) -> None:
    """Ten recorded capped calls in one entry follow the controller's swing, whose clock fits their times only loosely."""
    about = truth_windows()[name].after
    assert about.timings is not None
    assert about.timings.sm_clock_mhz is not None
    count = len(about.timings.took_s) // 10
    at_ns = about.timings.at_ns[: 10 * count].reshape(count, 10)
    took_s, mhz = (each[: 10 * count].reshape(count, 10) for each in (about.timings.took_s, about.timings.sm_clock_mhz))
    joined_s = (at_ns[:, -1] - at_ns[:, 0]) / 1e9 + took_s[:, -1] * about.timings.calls_count
    clocks_mhz = np.where(np.arange(count) < stamped_ratio * count, mhz.mean(axis=1), np.nan)
    answer = ask(iteration_levels, replace(about, timings=Timings(at_ns[:, 0], joined_s, clocks_mhz, 1)))
    assert isinstance(answer, Clear | Found)
    assert "beyond their levels" not in str(answer.facts["what"])


def test_noise_of_single_calls_does_not_recur() -> None:
    """Calls that vary by 8 % each, or that take one of two times at random, are steady at one clock."""
    rng = np.random.default_rng(3)
    assert isinstance(ask(iteration_levels, timed(noisy(np.full(3000, 1e-3), 0.08))), Clear)
    assert isinstance(ask(iteration_levels, timed(1e-3 * np.where(rng.random(3000) < 0.4, 1.05, 1.0))), Clear)
