"""Proof 5 and the repeatability on recorded windows of an H200 and on simulated pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from annotate.budget import Number, Repeatability
from annotate.case import Case
from annotate.derived.measured_numbers import MeasuredNumbers
from annotate.derived.time_modes import mode_bounds
from annotate.evidence import RecordedWindow, WorkRecord
from tests.proof.disturbances import drawn, family_name
from tests.proof.pairs import Pair, length_s, pair
from tests.truth_windows import TruthWindow, truth_names, truth_windows

# Excluded: launches of 15 µs in parallel with 32 busy processes, because their times include launch gaps.
TIMED = [name for name in truth_names(timed=True) if name != "hogs-small-kernel"]
DEVIATION_FIELDS = {
    Number.THROUGHPUT: "throughput",
    Number.MEAN: "mean",
    Number.MEDIAN: "median",
    Number.MEDIAN_AT_CLOCK: "median_at_one_clock",
}


@lru_cache(maxsize=100)
def numbers(name: str, index: int) -> MeasuredNumbers:
    return Case(truth_windows()[name].clean[index]).numbers


def record(window: TruthWindow) -> WorkRecord:
    """Return a record of every clean window of the same kernel in other recordings."""
    others = [each for each in TIMED if each != window.name and each.split("-")[-1] == window.name.split("-")[-1]]
    found = [numbers(name, index) for name in others for index in (0, 1)]
    values = ([each.number(number).value for number in DEVIATION_FIELDS] for each in found)
    clock_mhz = found[0].number(Number.MEDIAN_AT_CLOCK).clock_mhz if found else None
    return WorkRecord(tuple(RecordedWindow(*each) for each in values), clock_mhz)


@lru_cache(maxsize=100)
def numbers_with_record(name: str, index: int) -> MeasuredNumbers:
    window = truth_windows()[name]
    return Case(replace(window.clean[index], record=record(window))).numbers


def repeated(number: Number) -> Iterator[tuple[float, Repeatability]]:
    """Yield the difference of the two clean windows of each pair, and the repeatability of each window with its record."""
    for window in map(truth_windows().__getitem__, TIMED):
        values = [numbers(window.name, index).number(number).value for index in (0, 1)]
        assert values[0] is not None
        assert values[1] is not None
        for index in (0, 1):
            yield abs(values[0] / values[1] - 1.0), numbers_with_record(window.name, index).number(number).repeatability


@pytest.mark.parametrize(
    ("number", "within_ratio", "both_ratio", "usual_ratio"),
    [
        (Number.THROUGHPUT, 0.67, 0.95, 0.0111),
        (Number.MEAN, 0.57, 0.925, 0.0063),
        (Number.MEDIAN, 0.75, 0.97, 0.0086),
        (Number.MEDIAN_AT_CLOCK, 0.64, 0.975, 0.0015),
    ],
)
def test_repeatability_needs_the_between_part(
    number: Number, within_ratio: float, both_ratio: float, usual_ratio: float
) -> None:
    """One window's interval covers 57 to 75 % of the differences between clean windows; with a record, 93 to 98 %."""
    found = list(repeated(number))
    within = [apart <= each.within_ratio for apart, each in found if each.within_ratio is not None]
    both = [apart <= each.ratio for apart, each in found if each.ratio is not None and each.between_ratio is not None]
    assert np.mean(within) == pytest.approx(within_ratio, abs=0.06)
    assert np.mean(both) == pytest.approx(both_ratio, abs=0.04)
    usual = float(np.median([each.ratio for _, each in found if each.ratio is not None]))
    assert usual == pytest.approx(usual_ratio, rel=0.15)


def test_median_at_the_reference_clock_differs_little() -> None:
    """Clean pairs differ at 1500 MHz by 0.05 % in the median and 0.2 % at most, due to the error of the exponent."""
    apart = [each for each, _ in repeated(Number.MEDIAN_AT_CLOCK)]
    assert float(np.median(apart)) == pytest.approx(0.00053, abs=1e-4)
    assert max(apart) < 0.0021


def test_clean_windows_have_steady_times() -> None:
    """The times of 36 of 42 clean windows are at one level; four change by less than 0.08 %, and two by less than 0.16 %."""
    worst = []
    for window in map(truth_windows().__getitem__, TIMED):
        for clean in window.clean:
            found = Case(clean).time_levels
            assert found is not None
            worst.append(found.largest_ratio)
    worst.sort()
    assert worst[35] == 0.0
    assert worst[39] < 8e-4
    assert worst[41] < 1.6e-3


def test_time_levels_report_growth_of_a_growing_kernel() -> None:
    """A GEMM that grows in three steps is growth, and the bounds cover the true changes of mean, median and throughput."""
    found = Case(truth_windows()["grows-9%-gemm4k"].disturbed).time_levels
    assert found is not None
    assert found.grows
    bounds = {bound.number: bound for bound in found.bounds("iteration-growth")}
    assert bounds[Number.MEAN].size_ratio == pytest.approx(0.108, abs=0.005)
    assert bounds[Number.MEDIAN].size_ratio >= 0.0983
    assert bounds[Number.THROUGHPUT].size_ratio >= 0.0746
    estimate = bounds[Number.MEAN].estimate
    assert estimate is not None
    assert estimate.nearer_ratio > 0.05


def changing(seeds: range) -> Iterator[Pair]:
    """Yield simulated pairs whose work changes during the window; only a record can show a constant change."""
    for seed in seeds:
        if family_name(seed) not in ("work-growth", "work-modes"):
            continue
        window_s, (what,) = length_s(seed), drawn(family_name(seed), seed, length_s(seed))
        rest_s = what.begin_s + max(0.0, window_s - what.begin_s - what.length_s)
        if what.begin_s < 0.0 or rest_s < 0.25 * window_s or window_s < 2.0 or what.kind.startswith("every"):
            continue
        made = pair(seed)
        if made.disturbed.timings is not None:
            yield made


def test_bounds_cover_work_that_changes() -> None:
    """Bounds and repeatability cover at least 90 % of the odd seeds; the constants were tuned on even seeds."""
    covered: dict[Number, list[bool]] = {number: [] for number in DEVIATION_FIELDS}
    for made in changing(range(1, 4000, 2)):
        case = Case(made.disturbed)
        assert case.time_levels is not None
        found = (*case.time_levels.bounds("times"), *mode_bounds("modes", case.one_clock))
        for each in case.numbers.budgets:
            if each.value is None:
                continue
            bound = max((bound.size_ratio for bound in found if bound.number is each.number), default=0.0)
            true_ratio = getattr(made.truth, DEVIATION_FIELDS[each.number])
            covered[each.number].append(abs(true_ratio) <= bound + (each.repeatability.ratio or 0.0) + 1e-9)
    assert all(len(each) >= 10 for each in covered.values())
    assert all(np.mean(each) >= 0.9 for each in covered.values())
