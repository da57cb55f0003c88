"""Tests of the rules about levels, unproven locks and dark time, and of the bounds of dark time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.answer import Clear, Found, Severity, Unobserved
from annotate.budget import Number, Replaces
from annotate.capsule.unpack import unpack
from annotate.case import Case
from annotate.claims import Claim
from annotate.derived.dark_bounds import dark_bounds, largest_ratio
from annotate.derived.dark_time import DarkInterval
from annotate.evidence import Evidence, Times, Timings
from annotate.ranges import Range
from annotate.rule import Rule
from annotate.rules.held_conditions import RULES, clock_levels, dark_time, lock_unproven, work_levels
from tests.annotate.builders import BEGIN_NS, evidence
from tests.examples import share_of

HONEST = tuple(unpack(Path("tests/traces/h200-honest.capsule").read_bytes()))
few = settings(max_examples=share_of(60))


def entries(length_s: float = 6.0) -> Timings:
    count = int(length_s * 1000)
    return Timings(BEGIN_NS + np.arange(count, dtype=np.int64) * 1_000_000, np.full(count, 0.00099), np.full(count, 1980.0))


def test_levels_are_found_with_bounds_and_words() -> None:
    found = clock_levels.ask_about(Case(evidence(signals={"sm_clock_mhz": lambda t: 1500 if int(t) % 2 else 1980})))
    assert isinstance(found, Found)
    assert found.severity is Severity.NOTE
    assert {bound.number for bound in found.bounds} == {Number.THROUGHPUT, Number.MEAN, Number.MEDIAN}
    assert clock_levels.says.format(**found.facts).startswith("the SM clock changed between levels, from 15")
    assert found.facts["highest_mhz"] == pytest.approx(1980.0, rel=0.01)  # the gauge's lag blurs the edges


def test_step_is_left_to_the_rule_of_its_shape() -> None:
    """A single step is a change of regime, so ``clock-levels`` is clear."""
    found = clock_levels.ask_about(Case(evidence(signals={"sm_clock_mhz": lambda t: 1500 if t < 4 else 1980})))
    assert isinstance(found, Clear)


def test_levels_without_a_clock_are_unobserved() -> None:
    assert isinstance(clock_levels.ask_about(Case(evidence(signals={"sm_clock_mhz": None}))), Unobserved)


def test_lock_is_proven_by_a_name_and_stamps() -> None:
    locked = evidence(declared={"locked_mhz": 1980.0}, timings=entries())
    proven = lock_unproven.ask_about(Case(locked, Claim.FIXED_CLOCK))
    assert isinstance(proven, Clear)
    assert proven.facts == {"named_mhz": 1980.0, "by": "declared"}
    found = lock_unproven.ask_about(Case(evidence(), Claim.FIXED_CLOCK))
    assert isinstance(found, Found)
    says = "its clock is neither set nor declared and no stamps show the true clock"
    assert lock_unproven.says.format(**found.facts).endswith(says)
    assert isinstance(lock_unproven.ask_about(Case(evidence())), Clear)


def test_watched_window_has_no_dark_time() -> None:
    assert dark_time.ask_about(Case(evidence())) == Clear({"dark_s": 0.0, "window_s": 6.0, "unread": "", "bound_ratio": 0.0})


def test_silence_bounds_throughput_by_its_share() -> None:
    """A silence of 1.6 s in 20 s bounds throughput by that share."""
    found = dark_time.ask_about(Case(evidence(length_s=20.0, skip=lambda t: 4.0 < t < 5.6)))
    assert isinstance(found, Found)
    ratios = {bound.number: bound.ratio for bound in found.bounds}
    assert ratios[Number.THROUGHPUT] == pytest.approx(1.6 / 20.0, abs=0.012)
    assert dark_time.says.format(**found.facts).startswith("1.6")
    assert found.span_ns is not None
    assert found.span_ns[0] == pytest.approx(BEGIN_NS + 4_000_000_000, abs=100_000_000)
    assert dark_time.remedy.format(**found.facts).startswith("Measure again, with a free CPU core")


@pytest.mark.parametrize("recorded", HONEST, ids=lambda each: each.window.label)
def test_honest_windows_have_no_levels_and_no_dark_time(recorded: Evidence) -> None:
    """The first mean of memory traffic held a rest before the load; copies draw little above rest, with a hole in the power record."""
    assert isinstance(work_levels.ask_about(Case(recorded)), Clear | Unobserved)
    found = dark_time.ask_about(Case(recorded))
    assert all(bound.size_ratio < 0.001 for bound in getattr(found, "bounds", ()))


def in_first_part(recorded: Evidence, at_ns: Times) -> npt.NDArray[np.bool_]:
    window = recorded.window
    return (at_ns > window.begin_ns) & (at_ns <= window.begin_ns + 0.4 * window.length_ns)


def test_level_near_rest_beyond_its_drift_is_found() -> None:
    """The power of copies, little above rest, is 5 W lower in the first 40 % of the window."""
    _, copies = HONEST
    dense = copies.trace.dense_power
    fallen = dense.values - 5.0 * in_first_part(copies, dense.at_ns)
    trace = replace(copies.trace, dense_power=replace(dense, values=fallen))
    found = work_levels.ask_about(Case(replace(copies, trace=trace)))
    assert isinstance(found, Found)
    assert max(bound.size_ratio for bound in found.bounds) > 0.1


def test_first_mean_of_traffic_below_a_rest_is_found() -> None:
    """Rest of 0.1 s in the first mean of 1.1 s cannot explain memory traffic that is lower by a fifth."""
    gemm, _ = HONEST
    column = gemm.trace.columns["dram_activity_ratio"]
    fallen = column.values * (1.0 - 0.2 * in_first_part(gemm, column.at_ns))
    columns = {**gemm.trace.columns, "dram_activity_ratio": replace(column, values=fallen)}
    found = work_levels.ask_about(Case(replace(gemm, trace=replace(gemm.trace, columns=columns))))
    assert isinstance(found, Found)
    assert max(bound.size_ratio for bound in found.bounds) > 0.02


def test_low_utilisation_keeps_a_hole_of_the_power_record_dark() -> None:
    """At a utilisation of 0.85 the GPU may have idled in a hole of the power record."""
    _, copies = HONEST
    trace = copies.trace
    column = trace.columns["utilization_ratio"]
    columns = {**trace.columns, "utilization_ratio": replace(column, values=np.full_like(column.values, 0.85))}
    found = dark_time.ask_about(Case(replace(copies, trace=replace(trace, columns=columns))))
    assert isinstance(found, Found)
    assert any(bound.size_ratio > 0.01 for bound in found.bounds)
    assert found.facts["advice"] == ", or longer: the driver's power record lacks this part"


def test_power_record_that_ends_early_is_of_an_earlier_version() -> None:
    """Earlier daemons did not read the power record after a window: then a free CPU core does not help."""
    gemm, _ = HONEST
    dense = gemm.trace.dense_power
    early = dense.where(dense.at_ns < gemm.window.end_ns - 200_000_000)
    columns = {name: each for name, each in gemm.trace.columns.items() if name not in ("energy_j", "utilization_ratio")}
    found = dark_time.ask_about(Case(replace(gemm, trace=replace(gemm.trace, dense_power=early, columns=columns))))
    assert isinstance(found, Found)
    assert dark_time.remedy.format(**found.facts).startswith("Measure again: an earlier gpuwatch")
    later = dense.where((dense.at_ns < gemm.window.end_ns - 200_000_000) | (dense.at_ns > gemm.window.end_ns))
    read = dark_time.ask_about(Case(replace(gemm, trace=replace(gemm.trace, dense_power=later, columns=columns))))
    assert isinstance(read, Found)
    assert "driver's power record" in str(read.facts["advice"]), "the record was read after the window"


def test_window_mostly_dark_is_unobserved() -> None:
    """Windows without readings for most of their length, and windows without length, are unobserved."""
    assert isinstance(dark_time.ask_about(Case(evidence(skip=lambda t: 0.5 < t < 5.5))), Unobserved)
    assert isinstance(dark_time.ask_about(Case(evidence(length_s=0.0))), Unobserved)


def test_rows_without_a_clock_are_dark() -> None:
    """Rows without a clock for a second of ten are dark time of the clock."""
    about = evidence(length_s=10.0, signals={"sm_clock_mhz": lambda t: None if 1.0 <= t < 2.0 else 1980})
    found = dark_time.ask_about(Case(about))
    assert isinstance(found, Found)
    assert dark_time.says.format(**found.facts).endswith("have no reading of the clock")


@pytest.mark.parametrize("length_s", [10.0, 100.0, 1000.0])
def test_dark_time_shrinks_with_the_window(length_s: float) -> None:
    dark = (DarkInterval(0, 300_000_000, 1.0),)
    found = dark_bounds(int(length_s * 1e9), power=dark)
    assert {bound.number: bound.ratio for bound in found}[Number.THROUGHPUT] == pytest.approx(0.3 / length_s)


def test_proof_dark_for_half_of_the_window_has_no_bounds() -> None:
    assert dark_bounds(10**9, power=(DarkInterval(0, 600_000_000, 1.0),)) == ()


def test_times_replace_the_power_record_but_not_lists() -> None:
    lists, power = (DarkInterval(0, 10**9, 1.0),), (DarkInterval(2 * 10**9, 3 * 10**9, 1.0),)
    plain = {each.number: each for each in dark_bounds(10**10, power=power, lists=lists)}
    timed = {each.number: each for each in dark_bounds(10**10, power=power, lists=lists, has_gaps=True)}
    assert (plain[Number.THROUGHPUT].ratio, plain[Number.THROUGHPUT].seen_ratio) == (0.2, 0.1)
    assert (timed[Number.THROUGHPUT].ratio, timed[Number.THROUGHPUT].replaces) == (0.1, Replaces.UNRESOLVED)
    assert timed[Number.MEDIAN_AT_CLOCK].ratio == pytest.approx(0.003)


stretches = st.builds(
    lambda begin, length, ratio: DarkInterval(begin, begin + length, ratio),
    st.integers(0, 1000), st.integers(1, 500), st.floats(0.0, 1.0),
)  # fmt: skip


@few
@given(some=st.lists(stretches, max_size=8), more=stretches)
def test_dark_time_counts_each_instant_once(some: list[DarkInterval], more: DarkInterval) -> None:
    """An added silence raises the bound by at most its share, and the same silence twice counts once."""
    before, after = largest_ratio(some, 1500), largest_ratio([*some, more], 1500)
    assert before - 1e-12 <= after <= before + more.length_ns * more.excursion_ratio / 1500 + 1e-12
    assert largest_ratio([*some, more, more], 1500) == pytest.approx(after)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_held_condition_rules_document_their_limits(rule: Rule) -> None:
    doc = rule.check.__doc__ or ""
    for heading in ("Why it matters:", "Limits of detection:", "Remedy:", "Source:"):
        assert heading in doc
    assert all(limit.why and limit.range != Range() for limit in rule.limits.values())
