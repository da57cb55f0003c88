"""Tests of idle time by dips of the driver's power record, and of the time that a rhythm lost by utilisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from annotate.case import Case
from annotate.derived.busy_share import rhythm_lost_ratio
from annotate.derived.idle_gaps import IdleGaps
from annotate.derived.power_dips import power_dips
from annotate.evidence import Column, Evidence, WindowRecord
from tests.annotate.builders import BEGIN_NS, evidence


def record(low: Sequence[tuple[float, float]], length_s: float = 4.0, idle_w: float = 120.0) -> tuple[Column, WindowRecord]:
    """Return a 20 ms power record of 690 W from 5 s before a window, at idle power in these stretches (seconds)."""
    t = np.arange(-5.0, length_s, 0.02)
    power_w = 690.0 + np.random.default_rng(3).normal(0.0, 10.0, len(t))
    for begin_s, end_s in low:
        power_w[(t >= begin_s) & (t < end_s)] = idle_w
    return Column(BEGIN_NS + np.round(t * 1e9).astype(np.int64), power_w), WindowRecord(
        begin_ns=BEGIN_NS, end_ns=BEGIN_NS + round(length_s * 1e9)
    )


@pytest.mark.parametrize("stall_s", [0.06, 0.3, 1.5, 3.0])
def test_dip_of_power_is_as_long_as_the_stall(stall_s: float) -> None:
    """The length of a stall is found even if it takes most of the window."""
    found = power_dips(*record([(0.5, 0.5 + stall_s)]), idle_w=120.0)
    assert found is not None
    assert found.irregular_ratio * found.window_s == pytest.approx(stall_s, abs=0.021)
    assert abs(found.irregular_ratio * found.window_s - stall_s) <= found.error_ratio * found.window_s + 1e-3


def test_idle_power_is_seen_before_the_window() -> None:
    """A pause before the window shows idle power; without a pause, or with a shallow dip only, the result is None."""
    assert power_dips(*record([])) is None
    assert power_dips(*record([(1.0, 1.5)], idle_w=600.0)) is None
    found = power_dips(*record([(-2.0, -1.8), (1.0, 1.2)]))
    assert found is not None
    assert found.irregular_ratio == pytest.approx(0.05, abs=0.006)


def test_steady_power_has_no_dips() -> None:
    found = power_dips(*record([]), idle_w=120.0)
    assert found is not None
    assert found.irregular_ratio == 0.0


def test_rhythm_of_dips_is_regular() -> None:
    """Sleeps of 40 ms every 200 ms belong to the work; one of 400 ms among them is irregular."""
    rhythm = [(0.2 * i, 0.2 * i + 0.04) for i in range(1, 19)]
    found, stalled = power_dips(*record(rhythm), idle_w=120.0), power_dips(*record([*rhythm, (2.0, 2.4)]), idle_w=120.0)
    assert found is not None
    assert stalled is not None
    assert found.irregular_ratio == 0.0
    assert stalled.irregular_ratio == pytest.approx(0.1, abs=0.03)


def test_stalls_of_different_lengths_are_irregular() -> None:
    """Eight stalls of 60 to 300 ms are irregular although they are many."""
    stalls = [(0.45 * i, 0.45 * i + 0.06 + 0.034 * (5 * i % 8)) for i in range(8)]
    found = power_dips(*record(stalls), idle_w=120.0)
    assert found is not None
    assert found.irregular_ratio == pytest.approx(sum(end - begin for begin, end in stalls) / 4.0, abs=0.04)


def test_even_idle_time_of_unlike_stalls_is_irregular() -> None:
    """Idle time of eight stalls of 0.2 to 1.6 s can grow evenly by chance, but unlike lengths are not a rhythm."""
    begins_s = (0.81, 2.12, 2.56, 3.61, 4.28, 6.63, 7.53, 9.05)
    lengths_s = (1.24, 0.16, 0.86, 0.38, 1.63, 0.78, 1.14, 1.16)
    low = [(begin, begin + length) for begin, length in zip(begins_s, lengths_s, strict=True)]
    found = power_dips(*record(low, length_s=10.3), idle_w=120.0)
    assert found is not None
    assert found.usual_s == 0.0
    assert found.irregular.sum() >= len(lengths_s)


def test_many_waits_of_unlike_lengths_are_a_rhythm() -> None:
    """Waits of 10 to 80 ms for each batch, after training steps of 120 ms, are regular."""
    waits_s = np.random.default_rng(1).uniform(0.01, 0.08, 60)
    begins_s = 0.12 + np.concatenate([[0.0], np.cumsum(waits_s + 0.12)[:-1]])
    found = power_dips(
        *record(list(zip(begins_s.tolist(), (begins_s + waits_s).tolist(), strict=True)), length_s=10.0), idle_w=120.0
    )
    assert found is not None
    assert not found.irregular.any()


def test_stalls_at_random_times_are_irregular() -> None:
    """Twelve equal stalls of 5 ms are a rhythm if they come every 300 ms, and irregular at random times."""
    regular_s = [0.15 + 0.3 * i for i in range(12)]
    random_s = [0.2, 0.3, 0.42, 0.5, 0.9, 1.1, 1.16, 1.6, 2.9, 3.4, 3.5, 3.9]
    for begins_s, expected in ((regular_s, 0.0), (random_s, 12 * 5e-3 / 4.0)):
        found = power_dips(*shallow(begins_s, 0.25), idle_w=120.0)
        assert found is not None
        assert found.irregular_ratio == pytest.approx(expected, abs=2e-3)


def test_rhythm_that_begins_inside_is_irregular() -> None:
    """Sleeps of 40 ms every 100 ms that begin in the middle of the window are irregular."""
    found = power_dips(*record([(2.0 + 0.1 * i, 2.04 + 0.1 * i) for i in range(20)]), idle_w=120.0)
    assert found is not None
    assert found.irregular_ratio == pytest.approx(0.2, abs=0.02)


def shallow(begins_s: Sequence[float], depth: float) -> tuple[Column, WindowRecord]:
    """Return a record of 550 W; the samples at these times are lower by ``depth`` of the 430 W down to idle power."""
    column, window = record([])
    power_w = 550.0 + np.random.default_rng(4).normal(0.0, 2.0, len(column.values))
    at = np.searchsorted(column.at_ns, BEGIN_NS + np.round(np.array(begins_s) * 1e9))
    power_w[at] = 550.0 - depth * 430.0
    return Column(column.at_ns, power_w), window


def limited(stall_s: float, busy: float) -> IdleGaps:
    """Return the dips of a window with 300 instead of 600 W for ``stall_s``, and with utilisation at ``busy`` 0.4 s longer."""

    def is_low(t: float) -> bool:
        return 2.0 <= t < 2.0 + stall_s

    def watts(t: float) -> float:
        return 120.0 if t < -4.0 else 300.0 if is_low(t) else 600.0

    def utilisation(t: float) -> float:
        return busy if 2.0 <= t < 2.4 + stall_s else 1.0

    about: Evidence = evidence(signals={"power_w": watts, "utilization_ratio": utilisation})
    dips = Case(about).dips
    assert dips is not None
    return dips


def test_lower_power_of_busy_work_is_not_idle_time() -> None:
    """A fall of power alone is not idle time; a fall of power and utilisation is."""
    assert limited(0.5, busy=1.0).irregular_ratio < 1e-3
    idled = limited(0.5, busy=0.4)
    assert idled.irregular_ratio == pytest.approx(0.625 * 0.5 / 6.0, rel=0.15)


def test_short_dip_is_limited_by_utilisation() -> None:
    """Utilisation may miss a stall of 20 ms, so the dip keeps at most 10 ms, the rounding error."""
    short = limited(0.02, busy=1.0)
    assert 0.0 < short.irregular_ratio * short.window_s <= 0.01


@pytest.mark.parametrize(("late_ratio", "lost"), [(0.3, 0.0), (0.15, 0.233)])
def test_rhythm_that_slows_lost_time(late_ratio: float, lost: float) -> None:
    """A GPU busy 30 % of the time, with pauses of 30 ms, loses time if it is busy half as much after 3.4 s."""
    about = evidence(signals={"utilization_ratio": lambda t: 0.3 if t < 3.4 else late_ratio})
    assert rhythm_lost_ratio(about, 0.03) == pytest.approx(lost, abs=0.05)


def test_rhythm_may_vary_by_one_call_per_refresh() -> None:
    """A call of 10 ms every 110 ms loses nothing, although a refresh of 0.2 s holds one or two calls."""
    about = evidence(signals={"utilization_ratio": lambda t: (0.05, 0.1, 0.1)[int((t + 6.0) / 0.2) % 3]})
    assert rhythm_lost_ratio(about, 0.1) == 0.0
