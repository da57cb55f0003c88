"""The iterations of a window in order, and figures of their times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate.amount_words import amount_text, duration_text, ordinal, span_text
from annotate.evidence import Timings
from annotate.stats.robust import effective_count
from annotate.times.durations import every_count, inside, readable, readable_pair, usable, worth_count
from tests.annotate.builders import BEGIN_NS, evidence


def test_inside_orders_iterations_with_their_clocks() -> None:
    at_ns = BEGIN_NS + np.array([3, 1, 2, -5], np.int64) * 1_000_000
    timings = Timings(at_ns, np.array([0.3, 0.1, 0.2, 9.0]), np.array([1300.0, 1100.0, 1200.0, 900.0]), calls_count=4)
    kept = inside(evidence(timings=timings))
    assert kept.took_s.tolist() == [0.1, 0.2, 0.3]
    assert kept.sm_clock_mhz is not None
    assert kept.sm_clock_mhz.tolist() == [1100.0, 1200.0, 1300.0]
    assert kept.calls_count == 4


def test_inside_is_empty_without_times() -> None:
    assert len(inside(evidence()).took_s) == 0


@pytest.mark.parametrize("phi", [0.0, 0.9])
def test_worth_count_by_blocks_is_near_the_exact_count(phi: float) -> None:
    """The effective count of a long series by blocks is near that of single values."""
    rng = np.random.default_rng(4)
    noise = rng.standard_normal(40_000)
    values = noise.copy()
    for i in range(1, len(values)):
        values[i] = phi * values[i - 1] + noise[i]
    assert worth_count(values) == pytest.approx(effective_count(values), rel=0.25)


def test_every_count_finds_a_rhythm_but_not_chance() -> None:
    assert every_count(np.arange(3, 600, 10)) == 10
    assert every_count(np.sort(np.random.default_rng(1).choice(600, 60, replace=False))) is None
    assert every_count(np.arange(20)) is None
    assert every_count(np.array([], np.intp)) is None


@given(st.floats(1e-9, 1e4))
def test_readable_duration_is_read_back(seconds: float) -> None:
    number, unit = readable(seconds).split()
    assert float(number) * {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit] == pytest.approx(seconds, rel=0.006)


def test_pair_of_durations_looks_different() -> None:
    """Two durations get as many digits as tell them apart, at most six."""
    pairs = [(1.61e-3, 1.7e-3), (1.6101e-3, 1.6104e-3), (1.6100001e-3, 1.6100002e-3)]
    assert [readable_pair(*pair) for pair in pairs] == [
        ("1.61 ms", "1.7 ms"),
        ("1.6101 ms", "1.6104 ms"),
        ("1.61 ms", "1.61 ms"),
    ]


def test_span_has_one_unit_for_both_ends() -> None:
    assert [span_text(0.0, 0.0195), span_text(0.02, 3.98)] == ["0 to 19.5 ms", "0.02 to 3.98 s"]


def test_amounts_have_a_fitting_unit_and_no_exponent() -> None:
    """An amount that rounds to 1 takes that unit, and the largest unit has as many digits as needed."""
    assert [readable(seconds) for seconds in (999.4e-6, 999.6e-6, 0.99996, 999.6, 6e3)] == [
        "999 µs",
        "1 ms",
        "1 s",
        "1000 s",
        "6000 s",
    ]
    assert [duration_text(seconds) for seconds in (0.99996e-3, 12345.6)] == ["1 ms", "12346 s"]
    rates = [amount_text(rate, "B/s") for rate in (9.999e11, 5e5, 12.0, 3e18)]
    assert rates == ["1 TB/s", "500 kB/s", "12 B/s", "3000 PB/s"]
    assert [ordinal(number) for number in (2, 3, 4, 11, 21, 112)] == ["2nd", "3rd", "4th", "11th", "21st", "112th"]


def test_usable_turns_invalid_values_into_nan() -> None:
    window = evidence(length_s=1.0).window
    at_ns = np.array([2**63 - 1, BEGIN_NS, -(2**63), BEGIN_NS - 5], np.int64)
    took_s = np.array([1e-3, 2e5, 1e-3, float("inf")])
    kept = usable(Timings(at_ns, took_s, np.array([1500.0, 1e308, 1e-308, -1.0]), calls_count=10), window)
    assert kept is not None
    assert kept.sm_clock_mhz is not None
    assert (np.diff(kept.at_ns) >= 0).all()
    assert int(kept.at_ns[-1]) - int(kept.at_ns[0]) < 2**62
    assert np.isnan(kept.took_s).tolist() == [False, True, True, False]
    assert kept.sm_clock_mhz[-1] == 1500.0
    assert np.isnan(kept.sm_clock_mhz[:-1]).all()
    for calls_count in (0, -1, 10**400):
        assert usable(Timings(at_ns, took_s, None, calls_count), window) is None
    assert usable(Timings(at_ns, took_s[1:]), window) is None
