"""Tests of the bounds of a clock that did not keep one level, and of the name of its shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import Number, Replaces
from annotate.case import Case
from annotate.claims import Claim
from annotate.derived.clock_blocks import ClockBlocks
from annotate.derived.clock_shape import CLOCK_DRIFT, CLOCK_LEVELS, CLOCK_RAMP, REGIME_CHANGE, shape_name
from annotate.derived.clock_shift import CLOCK_RULES, ClockShift, clock_bounds, clock_shift
from annotate.derived.load_time import EXCESS, Excess, LoadTime
from annotate.derived.steady_reference import SteadyBy, SteadyReference, steady_reference
from annotate.evidence import Evidence, RecordedWindow, Values, WorkRecord
from annotate.stats.change_points import find_levels
from tests.annotate.builders import BEGIN_NS, Signal, capped_ns, evidence
from tests.examples import share_of

few = settings(max_examples=share_of(60))
CYCLE = 0.02 * np.sin(2.0 * np.pi * np.arange(60) / 10.0)
H200_EXCESS = EXCESS["NVIDIA H200"]


def blocks_of(mhz: Values, *, stamped: bool = True, scale: float = 0.9) -> ClockBlocks:
    at_ns = BEGIN_NS + np.arange(len(mhz), dtype=np.int64) * 100_000_000
    return ClockBlocks(at_ns, 100_000_000, np.asarray(mhz, np.float64), np.full(len(mhz), stamped), scale)


def shift_of(
    blocks: ClockBlocks, beta: float = 1.0, steady: SteadyReference | None = None, load: LoadTime | None = None
) -> ClockShift:
    return clock_shift(blocks, blocks.levels(), blocks.variance(), beta, load=load, steady=steady)


def loaded(before_s: float, blocks: ClockBlocks) -> LoadTime:
    begin_ns, end_ns = BEGIN_NS, BEGIN_NS + len(blocks.mhz) * blocks.width_ns
    return LoadTime(np.array([begin_ns - int(before_s * 1e9)]), np.array([end_ns]), begin_ns, before_known=True)


@few
@given(share=st.integers(12, 48), depth=st.floats(0.01, 0.5), beta=st.floats(0.1, 1.2))
def test_shift_of_two_levels_agrees_with_arithmetic(share: int, depth: float, beta: float) -> None:
    """The bound is the deviation from the farther level, and the estimate is the deviation from the nearer level."""
    low, high = 1980.0 * (1.0 - depth), 1980.0
    found = shift_of(blocks_of(np.where(np.arange(60) < share, low, high)), beta).shifts[Number.MEAN]
    slower = (high / low) ** beta
    above, below = share / 60 * (slower - 1.0), (1 - share / 60) * (1.0 / slower - 1.0)
    assert found.bound_ratio == pytest.approx(max(above, -below), abs=1e-3)
    nearer = min(above, below, key=lambda ratio: abs(np.log1p(ratio)))
    farther = above + below - nearer
    assert any(found.estimate.value_ratio == pytest.approx(each, abs=1e-6) for each in (nearer, farther))
    if abs(np.log1p(above) + np.log1p(below)) > 1e-6:
        assert found.estimate.value_ratio == pytest.approx(nearer, abs=1e-6)


@few
@given(mhz=st.lists(st.floats(200.0, 2000.0), min_size=1, max_size=80), beta=st.floats(0.0, 1.5), stamped=st.booleans())
def test_shift_of_any_clock_is_a_valid_bound(mhz: list[float], beta: float, *, stamped: bool) -> None:
    """For any clock, the seen part of a bound is at most the bound, and the estimate lies within the bound."""
    found = shift_of(blocks_of(np.array(mhz), stamped=stamped), beta)
    for bound in clock_bounds(found, found.rule):
        assert bound.ratio is not None
        assert bound.seen_ratio is not None
        assert bound.estimate is not None
        assert 0.0 <= bound.seen_ratio <= bound.ratio
        assert -bound.ratio <= bound.estimate.low_ratio <= bound.estimate.high_ratio <= bound.ratio


@few
@given(depth=st.floats(0.05, 0.5), beta=st.floats(0.2, 1.2))
def test_rate_and_time_deviate_as_reciprocals(depth: float, beta: float) -> None:
    found = shift_of(blocks_of(np.where(np.arange(60) < 20, 1980.0 * (1 - depth), 1980.0)), beta).shifts
    time, rate = found[Number.MEAN].estimate.value_ratio, found[Number.THROUGHPUT].estimate.value_ratio
    assert (1.0 + time) * (1.0 + rate) == pytest.approx(1.0, rel=1e-6)


@few
@given(order=st.permutations(range(60)))
def test_constant_clock_has_no_shift(order: list[int]) -> None:
    """A clock with a single level has a bound of 0, with a swing or constant."""
    mhz = 1500.0 * np.exp(CYCLE)
    found = shift_of(blocks_of(mhz))
    assert found.bound_ratio == 0.0
    assert found.rule == CLOCK_LEVELS
    assert shift_of(blocks_of(np.full(60, 1500.0)[order])).bound_ratio == 0.0


def test_swing_of_the_controller_has_a_bound_of_zero() -> None:
    """The controller's swing has a bound of 0, stamped or not."""
    plain, stamped = (shift_of(blocks_of(1500.0 * np.exp(CYCLE), stamped=known)) for known in (False, True))
    assert plain.bound_ratio == stamped.bound_ratio == 0.0
    assert {bound.replaces for bound in clock_bounds(plain, CLOCK_LEVELS)} == {Replaces.NOTHING}
    assert {bound.replaces for bound in clock_bounds(stamped, CLOCK_LEVELS)} == {Replaces.UNRESOLVED}


@pytest.mark.parametrize(
    ("run_count", "depth", "is_crest"),
    [
        (5, 0.015, True),
        (5, 0.02, True),
        (7, 0.015, True),  # half a cycle, and a block at either edge
        (8, 0.015, False),
        (10, 0.02, False),
        (5, 0.06, False),  # larger than a controller's swing
    ],
)
def test_crests_of_a_capped_clock_are_not_references(run_count: int, depth: float, is_crest: bool) -> None:
    """Short and small crests of a capped clock are not references; those of an uncapped clock are."""
    mhz = np.full(70, 1500.0)
    for begin in (10, 32, 54):
        mhz[begin : begin + run_count] *= 1.0 + depth
    blocks = blocks_of(mhz)
    free, capped = (shift_of(replace(blocks, swings=swings)).bound_ratio for swings in (False, True))
    assert free > 0.5 * depth
    assert (capped < 0.5 * depth) is is_crest
    assert is_crest or capped == free


MOVED = {
    "steps one way in 4.8 s": np.repeat([1.02, 1.0, 0.98], [10, 28, 10]),
    "short steps one way": np.repeat([1.02, 1.0, 0.98], [5, 12, 5]),
    "straight line": np.linspace(1.0225, 0.9775, 40),
    "phases of 0.9 s": np.tile(np.repeat([1.022, 1.0, 0.978], [9, 11, 9]), 4),
    "0.9 s of each 3.6 s": np.tile(np.repeat([1.0, 1.0286], [27, 9]), 3),
}


@pytest.mark.parametrize("shape", MOVED)
def test_changing_capped_clock_keeps_its_references(shape: str) -> None:
    """A clock that changes in one direction, or holds a level for over half a cycle, has the same bound capped or not."""
    free, capped = (shift_of(replace(blocks_of(1500.0 * MOVED[shape]), swings=swings)) for swings in (False, True))
    assert capped == free
    assert capped.bound_ratio > 0.015


@pytest.mark.parametrize(
    "swing", [0.015 * np.sin(2.0 * np.pi * np.arange(60) / 10.0), np.tile(np.repeat([0.012, -0.008], [4, 6]), 6)]
)
def test_swing_of_a_capped_clock_has_no_shift(swing: Values) -> None:
    """A sine with a period of 1 s, and a square wave with 40 % high time, have a bound of 0."""
    assert shift_of(replace(blocks_of(1500.0 * (1.0 + swing)), swings=True)).bound_ratio == pytest.approx(0.0, abs=1e-3)


def test_crests_are_kept_without_another_reference() -> None:
    blocks = replace(blocks_of(np.where(np.arange(60) // 6 % 2, 1500.0, 1530.0)), swings=True)
    found = clock_shift(blocks, blocks.levels(1e-8), 1e-8, 1.0)
    assert found.bound_ratio > 0.009


@pytest.mark.parametrize("scale", [1.3, 0.5, 1.0])
def test_stamps_unconfirmed_by_the_gauge_replace_nothing(scale: float) -> None:
    """Stamps far off the gauge, or without a gauge (a scale of exactly 1), replace nothing."""
    found = shift_of(blocks_of(np.full(60, 1500.0), scale=scale))
    assert {bound.replaces for bound in clock_bounds(found, CLOCK_LEVELS)} == {Replaces.NOTHING}


def test_only_one_clock_rule_has_bounds() -> None:
    found = shift_of(blocks_of(np.where(np.arange(60) < 20, 1500.0, 1980.0)))
    sized = [rule for rule in CLOCK_RULES if clock_bounds(found, rule)]
    assert sized == [found.rule]


SHAPES = {
    "steps up and down": (np.where((np.arange(60) >= 20) & (np.arange(60) < 40), 1500.0, 1980.0), CLOCK_LEVELS),
    "telegraph": (np.where(np.arange(60) // 10 % 2, 1500.0, 1980.0), CLOCK_LEVELS),
    "one step down": (np.where(np.arange(60) < 20, 1980.0, 1500.0), REGIME_CHANGE),
    "one late step up": (np.where(np.arange(60) < 40, 1500.0, 1980.0), REGIME_CHANGE),
    "low start": (np.where(np.arange(60) < 6, 800.0, 1980.0), CLOCK_RAMP),
    "low start in stairs": (np.repeat([600.0, 1400.0, 1980.0], [6, 6, 48]), CLOCK_RAMP),
    "stairs up to the end": (np.repeat([1700.0, 1800.0, 1900.0], 20), CLOCK_DRIFT),
    "straight line": (np.linspace(1900.0, 1600.0, 60), CLOCK_DRIFT),
    "three stairs": (np.repeat([1900.0, 1800.0, 1700.0], 20), CLOCK_DRIFT),
    "still": (np.full(60, 1500.0), CLOCK_LEVELS),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shape_name_is_the_rule_that_fits(shape: str) -> None:
    mhz, rule = SHAPES[shape]
    logs = np.log(mhz)
    assert shape_name(logs, find_levels(logs, 1e-8)) == rule


def test_onset_is_a_change_of_regime() -> None:
    assert shape_name(np.zeros(60), (), by_onset=True) == REGIME_CHANGE


def test_steady_part_is_a_reference() -> None:
    """The mean time over 3 s of fast and 3 s of steady clock is 1 % too short against the steady part."""
    mhz = np.where(np.arange(60) < 30, 1632.0, 1600.0)
    places = np.arange(30, 60)
    found = shift_of(blocks_of(mhz), steady=SteadyReference(SteadyBy.WINDOW, places=places, excess=H200_EXCESS))
    assert found.shifts[Number.MEAN].estimate.value_ratio == pytest.approx(-0.01, abs=5e-4)


def test_excess_limits_the_noise_of_a_steady_part() -> None:
    """One cycle of steady work is a noisy reference; the model's excess limits the bound of the noise."""
    blocks = blocks_of(1500.0 * np.exp(np.random.default_rng(3).normal(0.0, 0.02, 40)))
    steady = SteadyReference(SteadyBy.WINDOW, places=np.arange(30, 40), excess=H200_EXCESS)
    free = shift_of(blocks, steady=replace(steady, excess=Excess(1.0, 1.0, ((0.0, 100.0),))), load=loaded(0.0, blocks))
    cut = shift_of(blocks, steady=steady, load=loaded(0.0, blocks))
    assert cut.bound_ratio <= 0.0067 < free.bound_ratio


def test_clock_bias_of_an_unknown_model_cannot_reject() -> None:
    blocks = blocks_of(np.full(20, 1500.0))
    steady = SteadyReference(SteadyBy.RANGE, excess=Excess(0.3, 0.3, ((0.0, 0.9), (3.0, 0.0))))
    found = shift_of(blocks, steady=steady, load=loaded(0.0, blocks))
    assert found.rule == REGIME_CHANGE
    assert not found.can_reject
    assert found.bound_ratio == pytest.approx(0.3)


def capped(**more: Signal) -> Evidence:
    made: dict[str, Signal] = {"power_violation_ns": capped_ns(), "power_cap_ns": capped_ns(), "event_reasons_mask": 4,
                               "power_w": lambda t: 690.0 if t >= 0.0 or t < -0.5 else 122.0, "sm_clock_mhz": 1600}  # fmt: skip
    return evidence(length_s=2.0, signals={**made, **more}, declared={"true_clock_mhz": 1440.0, "stamped_s": 2.0})


@pytest.mark.parametrize(("idle_s", "changes"), [(4.0, True), (0.5, False)])
def test_change_in_a_short_window_of_settled_load(idle_s: float, changes: bool) -> None:
    """After 3 s of load, a clock that halves for 0.5 of 1.2 s is a change; earlier, the controller can cause the fall."""
    signals: dict[str, Signal] = {
        "sm_clock_mhz": lambda t: 800.0 if 0.5 < t < 1.0 else 1600.0,
        "power_w": lambda t: 122.0 if -idle_s - 0.5 < t < -idle_s else 690.0,
        "utilization_ratio": lambda t: 0.0 if -idle_s - 0.5 < t < -idle_s else 1.0,
        "power_cap_ns": capped_ns(),
        "power_violation_ns": capped_ns(),
    }
    case = Case(evidence(length_s=1.2, signals=signals))
    assert case.load.is_settled is changes
    assert case.clock_shift is not None
    assert (case.clock_shift.shifts[Number.MEAN].estimate.nearer_ratio > 0.2) is changes


def test_work_record_gives_the_steady_clock() -> None:
    """A window at 1440 MHz after a pause is 2.8 % fast against a record of five windows at 1400 MHz.

    With four recorded windows the model is the reference.
    """
    record = WorkRecord(tuple(RecordedWindow(steady_clock_mhz=1400.0) for _ in range(5)))
    found = Case(replace(capped(), record=record)).clock_shift
    assert found is not None
    assert found.steady_by is SteadyBy.RECORD
    assert found.shifts[Number.MEAN].estimate.value_ratio == pytest.approx(1400.0 / 1440.0 - 1.0, abs=1e-4)
    few_windows = Case(replace(capped(), record=WorkRecord(record.windows[:4]))).clock_shift
    assert few_windows is not None
    assert few_windows.steady_by is SteadyBy.MODEL


def test_steady_reference_is_used_under_sustained_only() -> None:
    assert [Case(capped(), claim).clock_shift.steady_by for claim in Claim] == [SteadyBy.MODEL, None, None]  # type: ignore[union-attr]


def test_steady_reference_of_an_unmeasured_model_is_a_range() -> None:
    about = capped()
    assert about.device is not None
    about = replace(about, device=replace(about.device, name="NVIDIA H300"))
    case = Case(about)
    assert case.blocks is not None
    assert steady_reference(about, case.blocks, case.load).by is SteadyBy.RANGE
