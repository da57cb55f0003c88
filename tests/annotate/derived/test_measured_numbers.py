"""Tests of a window's numbers, their repeatability within and between windows, and the leading number."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import Number, NumberBudget
from annotate.case import Case
from annotate.derived.measured_numbers import TOO_FEW, TOO_SHORT, UNTIMED, WITHIN, WITHIN_AND_BETWEEN, between
from annotate.evidence import Evidence, RecordedWindow, Values, WorkRecord
from tests.annotate.builders import evidence
from tests.annotate.derived.test_time_levels import noisy, timed
from tests.examples import share_of

STEADY = noisy(np.full(3000, 1e-3))


def swinging(seed: int = 0, seconds: float = 3.0) -> tuple[Values, Values]:
    """Return times and clocks of a capped kernel: a swing of 2 % with a period of 1 s, β 0.9."""
    count = int(seconds * 1000)
    mhz = 1400.0 * (1.0 + 0.02 * np.sin(2.0 * np.pi * np.arange(count) / 1000.0))
    return noisy(1e-3 * (1400.0 / mhz) ** 0.9, 1e-3, seed), mhz


def number(about: Evidence, which: Number, reference_mhz: float | None = None) -> NumberBudget:
    return Case(about, reference_mhz=reference_mhz).numbers.number(which)


def record(values: list[float], clock_mhz: float | None = 1980.0) -> WorkRecord:
    windows = (RecordedWindow(1.0 / value, value, value, value) for value in values)
    return WorkRecord(tuple(windows), clock_mhz)


def test_numbers_are_those_of_the_times() -> None:
    about = timed(STEADY, calls_count=1)
    window_s = about.window.length_s
    assert number(about, Number.THROUGHPUT).value == pytest.approx(3000 / window_s)
    assert number(about, Number.MEAN).value == pytest.approx(STEADY.mean())
    assert number(about, Number.MEDIAN).value == pytest.approx(np.median(STEADY))
    assert [each.unit for each in Case(about).numbers.budgets] == ["calls/s", "s", "s", "s"]
    assert all(each.bounds == () and each.bound_ratio == 0.0 for each in Case(about).numbers.budgets)


def test_throughput_counts_the_calls_of_a_batch() -> None:
    about = timed(STEADY / 10.0, calls_count=10)
    assert number(about, Number.THROUGHPUT).value == pytest.approx(30_000 / about.window.length_s)


def test_window_without_times_has_no_leading_number() -> None:
    found = Case(evidence()).numbers
    assert [(each.number, each.value, each.repeatability.kind) for each in found.budgets] == [
        (Number.THROUGHPUT, None, UNTIMED)
    ]
    assert found.leading is None


def test_median_of_a_steady_clock_is_at_that_clock() -> None:
    """An uncapped board's median needs no exponent and is not converted to the model's reference clock."""
    found = number(timed(STEADY, mhz=1975.0), Number.MEDIAN_AT_CLOCK)
    assert found.clock_mhz == 1975.0
    assert found.value == pytest.approx(np.median(STEADY))


@pytest.mark.parametrize(("given", "mhz"), [(None, 1500.0), (1410.0, 1410.0), (1600.0, 1600.0)])
def test_fitted_median_is_at_the_reference_clock(given: float | None, mhz: float) -> None:
    """The reference clock is the model's, or the one that the user gives."""
    took_s, clock_mhz = swinging()
    found = number(timed(took_s, mhz=clock_mhz, capped=True), Number.MEDIAN_AT_CLOCK, given)
    assert found.clock_mhz == mhz
    assert found.value == pytest.approx(1e-3 * (1400.0 / mhz) ** 0.9, rel=2e-3)


def test_exponent_error_grows_with_the_clock_distance() -> None:
    took_s, clock_mhz = swinging()
    near, far = (number(timed(took_s, mhz=clock_mhz), Number.MEDIAN_AT_CLOCK, mhz).repeatability for mhz in (1410.0, 1700.0))
    assert near.within_ratio is not None
    assert far.within_ratio is not None
    assert far.within_ratio > 2.0 * near.within_ratio


@pytest.mark.parametrize("mhz", [800.0, 2500.0])
def test_reference_clock_out_of_reach_is_not_used(mhz: float) -> None:
    took_s, clock_mhz = swinging()
    found = number(timed(took_s, mhz=clock_mhz), Number.MEDIAN_AT_CLOCK, mhz)
    assert found.clock_mhz == pytest.approx(1400.0, abs=5.0)


def test_unstamped_window_gives_reason_for_no_median_at_clock() -> None:
    found = number(timed(STEADY, mhz=None), Number.MEDIAN_AT_CLOCK)
    assert (found.value, found.clock_mhz, found.repeatability.ratio) == (None, None, None)
    assert found.repeatability.kind == "nothing stamped the clock"


@pytest.mark.parametrize(("seconds", "known"), [(1.9, False), (2.1, True), (4.0, True)])
def test_capped_window_needs_two_cycles(seconds: float, known: bool) -> None:
    """Below two cycles, throughput and mean have no repeatability, but the number at one clock does."""
    took_s, clock_mhz = swinging(seconds=seconds)
    found = Case(timed(took_s, mhz=clock_mhz, capped=True)).numbers
    for which in (Number.THROUGHPUT, Number.MEAN):
        repeats = found.number(which).repeatability
        assert (repeats.ratio is not None, repeats.kind) == ((True, WITHIN) if known else (False, TOO_SHORT))
    assert found.number(Number.MEDIAN_AT_CLOCK).repeatability.ratio is not None


def test_mean_over_whole_cycles_ignores_the_swing() -> None:
    took_s, clock_mhz = swinging(seconds=4.0)
    found = number(timed(took_s, mhz=clock_mhz, capped=True), Number.MEAN).repeatability
    assert found.within_ratio is not None
    assert found.within_ratio < 1e-3


def test_fewer_than_six_times_have_no_repeatability() -> None:
    found = Case(timed(np.full(4, 0.2))).numbers
    assert {each.repeatability.kind for each in found.budgets[1:]} == {TOO_FEW}


def test_throughput_repeatability_excludes_a_pause() -> None:
    about = timed(STEADY)
    assert about.timings is not None
    at_ns = about.timings.at_ns + np.where(np.arange(3000) >= 1500, 300_000_000, 0)
    stalled = replace(
        about,
        timings=replace(about.timings, at_ns=at_ns),
        window=replace(about.window, end_ns=about.window.end_ns + 300_000_000),
    )
    ratio = number(stalled, Number.THROUGHPUT).repeatability.within_ratio
    assert ratio is not None
    assert ratio < 5e-4


def test_record_of_five_windows_adds_the_spread_between() -> None:
    """The ratio squared is within² plus between²; *between* is half of the 95 % prediction interval of a sixth number."""
    spread = [0.99e-3, 0.995e-3, 1e-3, 1.005e-3, 1.01e-3]
    plain = timed(STEADY)
    found = number(replace(plain, record=record(spread)), Number.MEAN).repeatability
    assert (found.kind, found.windows_count) == (WITHIN_AND_BETWEEN, 5)
    assert found.between_ratio == pytest.approx(2.776 * 1.2**0.5 * np.std(spread, ddof=1) / 1e-3, rel=1e-3)
    assert found.within_ratio == number(plain, Number.MEAN).repeatability.within_ratio
    assert found.ratio == pytest.approx(np.hypot(found.within_ratio or 0.0, found.between_ratio or 0.0))


@pytest.mark.parametrize(
    ("which", "capped", "dram", "between_ratio"),
    [
        (Number.THROUGHPUT, False, 0.2, 3e-3),
        (Number.MEAN, False, 0.2, 2.5e-3),
        (Number.MEAN, True, 0.2, 3.1e-3),
        (Number.MEDIAN, False, 0.2, 6e-4),
        (Number.MEDIAN, False, 0.6, 2.4e-3),
        (Number.MEDIAN, False, None, 2.4e-3),
        (Number.MEDIAN_AT_CLOCK, False, 0.2, 6e-4),
        (Number.MEDIAN_AT_CLOCK, False, 0.6, 2.4e-3),
        (Number.MEDIAN_AT_CLOCK, True, 0.6, 4.4e-3),
    ],
)
def test_window_without_record_uses_the_measured_between(
    which: Number, capped: bool, dram: float | None, between_ratio: float
) -> None:
    """Without a record, *between* is the measured difference for this number, cap and memory traffic."""
    plain = timed(STEADY, capped=capped)
    columns = {name: each for name, each in plain.trace.columns.items() if name != "mem_utilization_ratio"}
    held = columns.pop("dram_activity_ratio")
    if dram is not None:
        columns["dram_activity_ratio"] = replace(held, values=np.full(len(held), dram))
    found = number(replace(plain, trace=replace(plain.trace, columns=columns)), which).repeatability
    assert found.within_ratio is not None
    assert found.within_ratio < 1e-3
    assert found.ratio == pytest.approx(np.hypot(found.within_ratio, between_ratio))


def test_exponent_keeps_the_number_at_one_clock_steady() -> None:
    """Under a cap, a median converted by a fitted exponent repeats to 0.06 % between windows."""
    took_s, clock_mhz = swinging()
    found = number(timed(took_s, mhz=clock_mhz, capped=True), Number.MEDIAN_AT_CLOCK, 1410.0).repeatability
    assert found.within_ratio is not None
    assert found.ratio == pytest.approx(np.hypot(found.within_ratio, 6e-4))


def test_close_record_replaces_the_measured_between() -> None:
    close = record([0.9999e-3, 1e-3, 1e-3, 1e-3, 1.0001e-3])
    assert (number(replace(timed(STEADY), record=close), Number.MEAN).repeatability.ratio or 1.0) < 3e-4


def test_record_of_four_windows_adds_nothing() -> None:
    found = number(replace(timed(STEADY), record=record([0.9e-3, 1e-3, 1e-3, 1.1e-3])), Number.MEAN).repeatability
    assert (found.kind, found.between_ratio, found.windows_count) == (WITHIN, None, 0)


@pytest.mark.parametrize(("clock_mhz", "is_used"), [(1980.0, True), (1975.0, True), (1500.0, False), (None, False)])
def test_record_at_another_clock_is_not_used(clock_mhz: float | None, is_used: bool) -> None:
    about = replace(timed(STEADY), record=record([0.99e-3, 1e-3, 1e-3, 1e-3, 1.01e-3], clock_mhz))
    assert (number(about, Number.MEDIAN_AT_CLOCK).repeatability.between_ratio is not None) is is_used


def test_record_gives_no_repeatability_to_a_short_capped_window() -> None:
    took_s, clock_mhz = swinging(seconds=1.5)
    about = replace(timed(took_s, mhz=clock_mhz, capped=True), record=record([1e-3] * 5))
    found = number(about, Number.MEAN).repeatability
    assert (found.ratio, found.kind, found.between_ratio) == (None, TOO_SHORT, 0.0)


@pytest.mark.parametrize("seconds", [0.7, 1.5])
def test_swing_gives_within_of_a_short_capped_window(seconds: float) -> None:
    """Below two cycles a raw number has no repeatability, but the clock's swing gives *within*, larger for the median."""
    took_s, clock_mhz = swinging(seconds=seconds)
    parts = [number(timed(took_s, mhz=clock_mhz, capped=True), each).repeatability for each in (Number.MEAN, Number.MEDIAN)]
    assert [each.ratio for each in parts] == [None, None]
    mean, median = (each.within_ratio or 0.0 for each in parts)
    assert 0.003 < mean < median < 0.03


@pytest.mark.parametrize(
    ("mhz", "capped", "varies", "leading"),
    [
        (1980.0, False, None, Number.MEDIAN_AT_CLOCK),
        (None, True, None, Number.MEAN),
        (None, False, None, Number.MEDIAN),
        (1980.0, False, True, Number.MEAN),
        (1980.0, False, False, Number.MEDIAN_AT_CLOCK),
    ],
)
def test_leading_number(mhz: float | None, capped: bool, varies: bool | None, leading: Number) -> None:
    """The mean leads with ``varies``; else the median at one clock if stamped, the mean under a cap, or the median."""
    about = replace(timed(STEADY, mhz=mhz, capped=capped), declared={"varies": varies})
    assert Case(about).numbers.leading is leading


@settings(max_examples=share_of(40))
@given(values=st.lists(st.floats(1e-6, 10.0), max_size=12), factor=st.floats(0.1, 10.0))
def test_between_is_a_ratio(values: list[float], factor: float) -> None:
    plain, scaled = between(tuple(values)), between(tuple(value * factor for value in values))
    assert (plain is None) == (len(values) < 2)
    if plain is not None and scaled is not None:
        assert scaled == pytest.approx(plain, rel=1e-6, abs=1e-9)
