"""Tests of levels and growth of times, at one clock and raw, and of their bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import Bound, Group, Number
from annotate.case import Case
from annotate.derived.beyond_clock import at_drivers_clock, beyond_bounds, beyond_clock_ratio
from annotate.derived.time_levels import TimeLevels
from annotate.derived.time_modes import mode_bounds
from annotate.evidence import Evidence, Timings, Values
from annotate.rule import Clear, Found
from annotate.rules.levels import iteration_levels
from tests.annotate.builders import BEGIN_NS, Signal, capped_ns, evidence
from tests.examples import share_of

few = settings(max_examples=share_of(40))


def timed(took_s: Values, *, mhz: Values | float | None = 1980.0, capped: bool = False, calls_count: int = 1) -> Evidence:
    """Return a window of entries with launch gaps of 5 µs and little memory traffic."""
    ends_ns = np.cumsum((took_s * calls_count + 5e-6) * 1e9).astype(np.int64)
    at_ns = BEGIN_NS + np.concatenate([[0], ends_ns[:-1]])
    clock = None if mhz is None else np.broadcast_to(np.asarray(mhz, np.float64), took_s.shape).copy()
    signals: dict[str, Signal] = {"dram_activity_ratio": 0.2}
    if capped:
        signals |= {"power_cap_ns": capped_ns(), "power_violation_ns": capped_ns()}
    made = evidence(length_s=6.0, signals=signals, timings=Timings(at_ns, took_s, clock, calls_count))
    return replace(made, window=replace(made.window, end_ns=int(BEGIN_NS + ends_ns[-1])))


def noisy(shape: Values, sd: float = 2e-3, seed: int = 0) -> Values:
    return np.asarray(shape * (1.0 + sd * np.random.default_rng(seed).standard_normal(len(shape))), np.float64)


def levels_of(about: Evidence) -> TimeLevels:
    found = Case(about).time_levels
    assert found is not None
    return found


def by_number(bounds: tuple[Bound, ...]) -> dict[Number, Bound]:
    return {bound.number: bound for bound in bounds}


GROWING = noisy(1e-3 * np.linspace(1.0, 1.3, 3000))
STEPPING = noisy(1e-3 * np.where(np.arange(3000) < 1500, 1.0, 1.1))
TOGGLING = noisy(1e-3 * np.where(np.arange(6000) // 1000 % 2, 1.0, 1.1))


def test_steady_times_have_no_bounds() -> None:
    found = levels_of(timed(noisy(np.full(3000, 1e-3))))
    assert found.is_steady
    assert found.bounds("iteration-levels") == ()
    assert found.hidden_ratio < 1e-3


def test_growth_by_30_percent_at_a_constant_clock() -> None:
    """The last times are 30 % longer than the first, at a constant clock.

    The mean is 12 % above the first fifth and 9 % below the last.  The ends of the line give the bound.
    """
    found = levels_of(timed(GROWING))
    assert found.is_line
    assert found.grows
    assert found.growth_ratio == pytest.approx(0.3, abs=0.02)
    bounds = by_number(found.bounds("iteration-growth"))
    assert set(bounds) == {Number.THROUGHPUT, Number.MEAN, Number.MEDIAN, Number.MEDIAN_AT_CLOCK}
    mean = bounds[Number.MEAN]
    assert mean.group is Group.TIMES
    assert mean.estimate is not None
    assert mean.estimate.nearer_ratio > 0.08
    assert mean.ratio is not None
    assert 0.14 <= mean.ratio < 0.18
    assert bounds[Number.MEDIAN].size_ratio >= 0.14


def test_shrinking_times_are_negative_growth() -> None:
    found = levels_of(timed(GROWING[::-1].copy()))
    assert found.grows
    assert found.growth_ratio == pytest.approx(1 / 1.3 - 1, abs=0.02)


def test_step_is_two_levels() -> None:
    found = levels_of(timed(STEPPING))
    assert not found.grows
    assert [each.share_ratio for each in found.levels if each.share_ratio > 0.1] == pytest.approx([0.45, 0.5], abs=0.05)
    assert found.apart_ratio == pytest.approx(0.1, abs=2e-3)
    bounds = by_number(found.bounds("iteration-levels"))
    assert bounds[Number.MEAN].ratio == pytest.approx(0.05, abs=2e-3)
    assert bounds[Number.THROUGHPUT].ratio == pytest.approx(0.05, abs=4e-3)
    estimate = bounds[Number.MEAN].estimate
    assert estimate is not None
    assert abs(estimate.value_ratio) == pytest.approx(0.045, abs=2e-3)


def test_telegraph_is_two_levels() -> None:
    """Separate segments form one level, and changes back and forth are not growth."""
    found = levels_of(timed(TOGGLING))
    assert len(found.shifts) == 2
    assert not found.grows
    assert found.apart_ratio == pytest.approx(0.1, abs=3e-3)


@pytest.mark.parametrize("stairs", [3, 5])
def test_stairs_in_one_direction_are_growth(stairs: int) -> None:
    shape = 1.0 + 0.1 * (np.arange(6000) * stairs // 6000)
    found = levels_of(timed(noisy(np.asarray(5e-4 * shape, np.float64))))
    assert found.grows
    assert found.growth_ratio == pytest.approx(0.1 * (stairs - 1), rel=0.15)


def test_times_explained_by_the_clock_are_steady() -> None:
    """A clock that is 9 % lower for a third lengthens raw times; times at one clock are steady."""
    mhz = np.where((np.arange(6000) > 2000) & (np.arange(6000) < 4000), 1600.0, 1760.0)
    mhz = mhz * (1.0 + 0.003 * np.random.default_rng(3).standard_normal(6000))
    took_s = noisy(1e-3 * (1760.0 / mhz) ** 0.9, 5e-4)
    assert levels_of(timed(took_s, mhz=mhz)).largest_ratio < 2e-3
    raw = levels_of(timed(took_s, mhz=None))
    assert not raw.is_at_one_clock
    assert {bound.group for bound in raw.bounds("iteration-levels")} == {Group.CLOCK}
    assert raw.largest_ratio > 0.03


def test_swing_of_the_power_controller_is_not_a_level() -> None:
    """Raw times of a capped kernel that swing by 2 % every second are steady."""
    swing = noisy(1e-3 * (1.0 + 0.02 * np.sin(2.0 * np.pi * np.arange(6000) / 1000.0)), 1e-3)
    assert levels_of(timed(swing, mhz=None, capped=True)).is_steady


def test_changes_beyond_the_stamped_clock_are_levels() -> None:
    """Raw capped times that toggle every half second are steady; with a stamped clock that swings by 1 % they are levels."""
    along = 2.0 * np.pi * np.arange(6000) / 1000.0
    took_s = noisy(1e-3 * np.where(np.sin(along) > 0.0, 1.08, 0.92))
    mhz = 1500.0 * (1.0 + 0.01 * np.cos(along))
    assert levels_of(timed(took_s, mhz=None, capped=True)).is_steady
    found = levels_of(timed(took_s, mhz=mhz, capped=True))
    assert found.largest_ratio > 0.04
    assert {bound.group for bound in found.bounds("iteration-levels")} == {Group.TIMES}


@pytest.mark.parametrize(("depth", "ratio"), [(0.08, 0.03), (0.02, 0.0)])
def test_times_that_vary_beyond_their_clock(depth: float, ratio: float) -> None:
    """A saw of 8 % in raw capped times has no levels but varies more than the driver's clock; one of 2 % does not."""
    about = timed(noisy(1e-3 * (1.0 + depth * (np.arange(2000) / 300.0 % 1.0))), mhz=None, capped=True)
    found, case = levels_of(about), Case(about)
    assert found.is_steady
    beyond_ratio = beyond_clock_ratio(found, case.blocks, case.timings)
    assert beyond_ratio == pytest.approx(ratio, abs=0.012)
    assert len(beyond_bounds(beyond_ratio, "iteration-levels", ())) == 3
    assert isinstance(iteration_levels.ask_about(case, None), Found if ratio else Clear)
    assert beyond_clock_ratio(found, None, case.timings) == beyond_clock_ratio(None, case.blocks, case.timings) == 0.0
    assert beyond_clock_ratio(levels_of(timed(np.full(900, 1e-3))), case.blocks, case.timings) == 0.0


def swung(step_ratio: float, beta: float, length_s: float = 6.0, drop_ratio: float = 0.0) -> Case:
    """Return a capped window without stamps: the driver's clock swings by 6 % and drops, and the times have a step of their own."""
    count = round(length_s * 1000)
    drop = np.where(np.arange(count) < count // 2, 1.0, 1.0 - drop_ratio)
    clock = drop * (1.0 + 0.06 * np.sin(2.0 * np.pi * np.arange(count) / 1000.0 * 0.77))
    took_s = noisy(1e-3 * clock**-beta * np.where(np.arange(count) < count // 2, 1.0, 1.0 + step_ratio))
    about = timed(took_s, mhz=None, capped=True)
    shown = {
        "sm_clock_mhz": lambda t: (
            1500.0 * (1.0 - drop_ratio * (t - 0.05 > length_s / 2.0)) * (1.0 + 0.06 * np.sin(2.0 * np.pi * 0.77 * (t - 0.05)))
        )
    }
    column = evidence(length_s=6.0, signals=shown).trace.column("sm_clock_mhz")
    return Case(replace(about, trace=replace(about.trace, columns={**about.trace.columns, "sm_clock_mhz": column})))


@pytest.mark.parametrize("beta", [0.3, 1.0])
def test_drivers_clock_separates_levels_of_the_work(beta: float) -> None:
    """Under a swing of 6 % in the driver's clock, a step of 3 % of the work is found, and the swing alone is no level."""
    still, stepped = swung(0.0, beta), swung(0.03, beta)
    assert levels_of(still.evidence).is_steady
    assert isinstance(iteration_levels.ask_about(still, None), Clear)
    assert levels_of(stepped.evidence).largest_ratio == pytest.approx(0.015, abs=0.008)
    assert {bound.group for bound in levels_of(stepped.evidence).bounds("iteration-levels")} == {Group.CLOCK}


def test_work_that_lowers_the_clock_shifts_the_mean_by_both() -> None:
    heavier = levels_of(swung(0.06, 1.0, drop_ratio=0.06).evidence)
    assert not heavier.is_steady
    assert heavier.largest_ratio == pytest.approx(0.06, abs=0.015)


def test_drivers_clock_converts_only_what_it_shows() -> None:
    """Capped times lose the swing; stamped times, an unobserved clock and windows of two cycles are not converted."""
    case = swung(0.0, 1.0)
    assert case.driven is not None
    assert case.driven.took_s.std() < 0.5 * case.timings.took_s.std()
    stamped = replace(case.timings, sm_clock_mhz=np.full(len(case.timings.at_ns), 1500.0))
    assert at_drivers_clock(stamped, case.blocks) is None
    assert at_drivers_clock(case.timings, None) is None
    assert swung(0.0, 1.0, length_s=2.0).driven is None


@pytest.mark.parametrize("seed", range(3))
def test_calls_that_vary_by_themselves_are_steady(seed: int) -> None:
    """Calls of 40 ms that vary by 10 % give blocks of eight calls that vary by 4 %, without a change of the work."""
    about = timed(noisy(np.full(100, 40e-3), 0.1, seed), mhz=None, capped=True)
    assert isinstance(iteration_levels.ask_about(Case(about), None), Clear)


def test_long_calls_at_one_clock_have_blocks_of_100_ms() -> None:
    """A saw with a period of 2 s is found in calls of 38 ms, although thirty calls fill over half of a period."""
    saw = 1.0 + 0.1 * (np.arange(210) * 38e-3 / 2.0 % 1.0)
    found = levels_of(timed(noisy(np.asarray(38e-3 * saw), 4e-3)))
    assert found.width_ns < 0.13e9
    assert found.largest_ratio > 0.02


@pytest.mark.parametrize(("growth_ratio", "is_steady"), [(0.06, True), (0.6, False)])
def test_part_of_a_cycle_is_not_growth(growth_ratio: float, is_steady: bool) -> None:
    """Raw capped times with a small trend over 0.7 s are steady; a larger trend, or either without a cap, is not."""
    took_s = noisy(1e-3 * np.linspace(1.0, 1.0 + growth_ratio, 700))
    assert levels_of(timed(took_s, mhz=None, capped=True)).is_steady is is_steady
    assert not levels_of(timed(took_s, mhz=None)).is_steady


def test_late_iterations_are_not_a_level() -> None:
    """One iteration in fifty that takes ten times as long is an outlier, not a level."""
    took_s = noisy(np.full(3000, 1e-3))
    took_s[::50] *= 10.0
    assert levels_of(timed(took_s)).is_steady


@pytest.mark.parametrize(("count", "took_s", "has_levels"), [(5, 0.1, False), (6, 0.1, True), (2, 1.5, False), (3, 1.5, True)])
def test_six_iterations_or_three_long_ones_have_levels(count: int, took_s: float, has_levels: bool) -> None:
    assert (Case(timed(np.full(count, took_s))).time_levels is not None) is has_levels


def test_short_window_has_smaller_blocks() -> None:
    """Sixty iterations in 0.66 s form 12 blocks: two blocks of thirty could not show a change."""
    shape = np.where(np.arange(60) < 30, 1.0, 1.2)
    found = levels_of(timed(noisy(1e-2 * shape)))
    assert len(found.took_s) == 12
    assert found.apart_ratio == pytest.approx(0.2, abs=0.01)


def test_hidden_ratio_of_too_few_blocks_is_infinite() -> None:
    assert levels_of(timed(np.full(6, 0.1))).hidden_ratio == float("inf")


def test_batches_of_calls_are_placed_by_their_length() -> None:
    """An entry of ten calls lasts ten times as long as its time per call."""
    found = levels_of(timed(STEPPING / 10.0, calls_count=10))
    assert [each.share_ratio for each in found.levels if each.share_ratio > 0.1] == pytest.approx([0.45, 0.5], abs=0.05)


@few
@given(share=st.floats(0.25, 0.75), size=st.floats(0.01, 0.8), seed=st.integers(0, 99))
def test_bound_covers_either_level(share: float, size: float, seed: int) -> None:
    """The bounds of mean, throughput and median cover the true deviations from either of two levels."""
    slow = np.arange(4000) >= share * 4000
    took_s = noisy(1e-3 * np.where(slow, 1.0 + size, 1.0), 1e-3, seed)
    bounds = by_number(levels_of(timed(took_s)).bounds("iteration-levels"))
    rounding = 1e-3 + 0.005 * size  # one block may hold both levels
    for level_s in (1e-3, 1e-3 * (1.0 + size)):
        assert abs(float(took_s.mean()) / level_s - 1.0) <= bounds[Number.MEAN].size_ratio + rounding
        assert abs(level_s / float(took_s.mean()) - 1.0) <= bounds[Number.THROUGHPUT].size_ratio + rounding
        assert abs(float(np.median(took_s)) / level_s - 1.0) <= bounds[Number.MEDIAN].size_ratio + rounding


@few
@given(factor=st.floats(0.3, 3.0), seed=st.integers(0, 99))
def test_levels_are_ratios(factor: float, seed: int) -> None:
    """Scaled times have the same largest deviation if the blocks hold the same entries."""
    shape = noisy(np.where(np.arange(3000) < 1500, 1.0, 1.05), 2e-3, seed)
    plain = levels_of(timed(1e-3 * shape))
    scaled = levels_of(replace(timed(1e-3 * shape), timings=replace_times(timed(1e-3 * shape), factor)))
    assert scaled.largest_ratio == pytest.approx(plain.largest_ratio, abs=1e-5)


def replace_times(about: Evidence, factor: float) -> Timings:
    """Return the times with scaled durations around the same middles."""
    assert about.timings is not None
    middles_ns = about.timings.at_ns + (about.timings.took_s * 5e8).astype(np.int64)
    took_s = about.timings.took_s * factor
    return Timings(middles_ns - (took_s * 5e8).astype(np.int64), took_s, about.timings.sm_clock_mhz)


def test_two_modes_bound_medians_and_mean_by_half() -> None:
    """If half of the iterations take 10 % longer, in random order, all numbers have a bound of 5 %."""
    slow = np.random.default_rng(5).random(3000) < 0.5
    about = timed(noisy(1e-3 * np.where(slow, 1.1, 1.0)))
    assert levels_of(about).is_steady
    bounds = by_number(mode_bounds("bimodal", Case(about).one_clock))
    assert set(bounds) == {Number.MEDIAN, Number.MEDIAN_AT_CLOCK, Number.MEAN, Number.THROUGHPUT}
    assert all(bound.ratio == pytest.approx(0.05, abs=3e-3) for bound in bounds.values())


def test_regular_or_small_modes_do_not_shift_the_median() -> None:
    """Slow times at every third iteration give no bounds; a random tenth of slow times hardly shifts the median."""

    def bounds(slow: npt.NDArray[np.bool_]) -> dict[Number, Bound]:
        return by_number(mode_bounds("bimodal", Case(timed(noisy(1e-3 * np.where(slow, 1.1, 1.0)))).one_clock))

    assert bounds(np.arange(3000) % 3 == 0) == {}
    assert bounds(np.random.default_rng(6).random(3000) < 0.1)[Number.MEDIAN].size_ratio < 1e-3


LONG = 1.3 / 500  # seconds per call, in entries of 500 calls


@pytest.mark.parametrize("factors", [(1, 1, 0.8), (1, 1, 1, 0.85), (0.8, 1, 1), (1, 1.2, 1, 1), (1, 1, 1, 1, 0.7)])
@pytest.mark.parametrize("mhz", [None, 1980.0])
def test_each_of_few_long_entries_is_a_level(factors: tuple[float, ...], mhz: float | None) -> None:
    """If one of three to five entries of 1.3 s differs, the mean's bound exceeds 90 % of the mean's deviation."""
    took_s = noisy(LONG * np.array(factors), 1e-4)
    found = levels_of(timed(took_s, mhz=mhz, calls_count=500))
    true_ratio = abs(float(np.mean(factors)) - 1.0)
    assert by_number(found.bounds("iteration-levels"))[Number.MEAN].size_ratio > 0.9 * true_ratio


@pytest.mark.parametrize("count", [3, 4, 5])
@pytest.mark.parametrize(("capped", "sd"), [(False, 2e-4), (True, 8e-3)])
def test_similar_long_entries_are_steady(count: int, capped: bool, sd: float) -> None:
    """Small differences of long entries are noise or, under a cap, a remainder of the controller's cycle."""
    found = levels_of(timed(noisy(np.full(count, LONG), sd), mhz=None, capped=capped, calls_count=500))
    assert found.largest_ratio < 1e-3


@pytest.mark.parametrize("count", [6, 8, 12, 20])
def test_entries_of_many_calls_are_separate_blocks(count: int) -> None:
    """Entries of 400 calls are separate blocks, so a last quarter with less work is a level."""
    took_s = noisy(1e-3 * np.where(np.arange(count) < 0.75 * count, 1.0, 0.8), 1e-4)
    found = levels_of(timed(took_s, mhz=None, calls_count=400))
    assert by_number(found.bounds("iteration-levels"))[Number.MEAN].size_ratio > 0.04


@pytest.mark.parametrize(("share_ratio", "fast"), [(0.55, 0.45), (0.3, 0.8), (0.1, 0.02), (0.8, 0.6)])
def test_modes_bound_the_mean_of_calls_that_return_early(share_ratio: float, fast: float) -> None:
    """The bounds of mean and throughput cover the deviation from the calls that worked, if others return early at random."""
    quick = np.random.default_rng(3).random(4000) < share_ratio
    bounds = by_number(mode_bounds("bimodal", Case(timed(noisy(1e-3 * np.where(quick, fast, 1.0)))).one_clock))
    true_ratio = 1.0 - float(np.where(quick, fast, 1.0).mean())
    assert 0.97 * true_ratio < bounds[Number.MEAN].size_ratio
    assert bounds[Number.THROUGHPUT].size_ratio > 0.97 * (1.0 / (1.0 - true_ratio) - 1.0)


def test_modes_do_not_bound_the_mean_for_few_slow_calls() -> None:
    slow = np.random.default_rng(3).random(4000) < 0.1
    bounds = by_number(mode_bounds("bimodal", Case(timed(noisy(1e-3 * np.where(slow, 1.3, 1.0)))).one_clock))
    assert Number.MEAN not in bounds
