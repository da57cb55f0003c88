"""Tests of the silences of each proof's evidence, and of the largest excursion hidden in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.derived.dark_time import clock_intervals, column_silences_ns, dark_ratio, list_intervals, power_intervals
from annotate.evidence import Column, Evidence, Gap, Lane, Trace
from tests.annotate.builders import BEGIN_NS, Signal, capped_ns, evidence
from tests.examples import share_of

few = settings(max_examples=share_of(40))
S = 1_000_000_000


def silent(begin_s: float, length_s: float, *lanes: Lane, window_s: float = 6.0, **signals: Signal) -> Evidence:
    gaps = [Gap(begin_ns=BEGIN_NS + round(begin_s * 1e9), end_ns=BEGIN_NS + round((begin_s + length_s) * 1e9), lane=lane)
            for lane in lanes]  # fmt: skip
    return evidence(length_s=window_s, gaps=gaps, signals=signals)


def without_power(about: Evidence, begin_s: float, end_s: float) -> Evidence:
    dense = about.trace.dense_power
    kept = (dense.at_ns < BEGIN_NS + begin_s * S) | (dense.at_ns > BEGIN_NS + end_s * S)
    return replace(about, trace=replace(about.trace, dense_power=Column(dense.at_ns[kept], dense.values[kept])))


def test_observed_window_has_no_dark_time() -> None:
    about = evidence()
    assert clock_intervals(about) == power_intervals(about) == list_intervals(about, 1.0) == ()


def test_silent_column_is_dark_from_edge_to_edge() -> None:
    about = evidence(signals={"sm_clock_mhz": None})
    assert column_silences_ns(about, "sm_clock_mhz") == [(about.window.begin_ns, about.window.end_ns)]


@few
@given(begin_s=st.floats(0.5, 4.0), length_s=st.floats(0.3, 1.4))
def test_missed_deadlines_are_dark_for_their_length(begin_s: float, length_s: float) -> None:
    about = silent(begin_s, length_s, Lane.FAST)
    (found,) = clock_intervals(about)
    assert found.length_ns / S == pytest.approx(length_s, abs=1e-6)


def test_short_silence_is_not_dark() -> None:
    assert clock_intervals(silent(2.0, 0.2, Lane.FAST)) == ()
    assert list_intervals(silent(2.0, 0.4, Lane.PROCESSES), 1.0) == ()


def test_counters_bridge_a_silence_of_the_clock() -> None:
    """An uncapped clock that was constant elsewhere was constant in the silence; a capped one may differ by 6 %."""
    (free,), (capped,) = (clock_intervals(silent(2.0, 1.0, Lane.FAST, power_cap_ns=each)) for each in (0, capped_ns()))
    assert free.bridged_by
    assert free.excursion_ratio == 0.0
    assert capped.excursion_ratio == pytest.approx(0.06)


@pytest.mark.parametrize("signals", [{"sw_thermal_ns": None, "hw_thermal_ns": None}, {"sw_thermal_ns": capped_ns(2.5)},
                                     {"power_cap_ns": None, "power_violation_ns": None}])  # fmt: skip
def test_heat_or_missing_counters_leave_the_full_excursion(signals: dict[str, Signal]) -> None:
    (found,) = clock_intervals(silent(2.0, 1.0, Lane.FAST, window_s=6.0, **signals))
    assert found.excursion_ratio == 1.0
    assert dark_ratio([found], 6 * S) == pytest.approx(1.0 / 6.0)


def test_energy_bridges_a_silence_of_power() -> None:
    """Usual energy across the silence shows that the GPU did not idle.  Without a known idle power, the GPU may have idled throughout."""
    about = without_power(evidence(), 2.0, 3.5)
    (bridged,), (alone,) = power_intervals(about, idle_w=120.0), power_intervals(about)
    assert bridged.bridged_by == "energy"
    assert bridged.excursion_ratio == pytest.approx(0.0, abs=0.03)
    assert alone.excursion_ratio == 1.0


def test_utilisation_limits_a_short_silence_better_than_energy() -> None:
    """Missing energy of 18 J allows 40 ms of idle time in a silence of 60 ms; full utilisation allows 2 ms."""

    def energy_j(t: float) -> float:
        return 1000.0 + 566.0 * (t + 100) - (18.0 if t > 2.0 else 0.0)

    def used(t: float) -> float:
        return 1.0

    about = without_power(evidence(signals={"energy_j": energy_j, "utilization_ratio": used}), 2.0, 2.03)
    (bridged,) = power_intervals(about, idle_w=120.0)
    assert bridged.bridged_by == "utilisation"
    assert bridged.excursion_ratio < 0.2


@pytest.mark.parametrize(("length_s", "bridged_by"), [(0.5, "energy"), (0.06, "utilisation")])
def test_utilisation_that_nobody_read_limits_no_silence(length_s: float, bridged_by: str) -> None:
    """A gap of the readings longer than half a refresh may hold the reading of an idle GPU."""

    def energy_j(t: float) -> float:
        return 1000.0 + 566.0 * (t + 100) - 446.0 * float(np.clip(t - 2.0, 0.0, 0.1))

    def used(t: float) -> float:
        return 1.0

    read = silent(1.98, length_s, Lane.FAST, energy_j=energy_j, utilization_ratio=used)
    (found,) = power_intervals(without_power(read, 2.0, 2.1), idle_w=120.0)
    assert found.bridged_by == bridged_by
    assert (found.excursion_ratio > 0.5) is (bridged_by == "energy")


def test_missing_energy_is_idle_time() -> None:
    """Half a second at 120 W inside a silence of 1.5 s gives an excursion of a third."""

    def energy_j(t: float) -> float:
        return 1000.0 + 566.0 * (t + 100) - 446.0 * float(np.clip(t - 2.5, 0.0, 0.5))

    about = without_power(evidence(signals={"energy_j": energy_j}), 2.0, 3.5)
    (found,) = power_intervals(about, idle_w=120.0)
    assert found.excursion_ratio == pytest.approx(1.0 / 3.0, abs=0.04)


def test_power_record_that_ends_early_is_dark_to_the_end() -> None:
    (found,) = power_intervals(without_power(evidence(), 5.5, 9.0))
    assert found.end_ns == BEGIN_NS + 6 * S
    assert found.length_ns / S == pytest.approx(0.5, abs=0.03)


def test_lists_are_dark_before_the_first_and_after_the_last() -> None:
    """A list is current for 1.5 heartbeats, and no list is current before the first."""
    about = evidence()
    kept = tuple(each for each in about.trace.process_lists if BEGIN_NS + S < each.at_ns < BEGIN_NS + 3 * S)
    found = list_intervals(replace(about, trace=replace(about.trace, process_lists=kept)), 1.0)
    assert [round((each.begin_ns - BEGIN_NS) / S, 1) for each in found] == [0.0, 4.3]
    assert [round((each.end_ns - BEGIN_NS) / S, 1) for each in found] == [1.2, 6.0]
    (all_of_it,) = list_intervals(replace(about, trace=Trace()), 1.0)
    assert all_of_it.length_ns == 6 * S


def test_dark_ratio_depends_on_the_windows_length() -> None:
    """0.3 s of 1 s count 30 %; 0.3 s of 10 h count 0.0008 %."""
    (found,) = clock_intervals(silent(0.4, 0.3, Lane.FAST, window_s=1.0, power_cap_ns=None, power_violation_ns=None))
    assert dark_ratio([found], S) == pytest.approx(0.3)
    assert dark_ratio([found], 36_000 * S) == pytest.approx(0.3 / 36_000)


@few
@given(first=st.tuples(st.floats(0, 5), st.floats(0.3, 1.4)), second=st.tuples(st.floats(0, 5), st.floats(0.3, 1.4)))
def test_additional_silence_never_reduces_dark_time(first: tuple[float, float], second: tuple[float, float]) -> None:
    one = silent(*first, Lane.FAST, Lane.PROCESSES)
    other = silent(*second, Lane.FAST, Lane.PROCESSES)
    both = replace(one, trace=replace(one.trace, gaps=(*one.trace.gaps, *other.trace.gaps)))
    for stretches in (clock_intervals, lambda about: list_intervals(about, 1.0)):
        lengths = [sum(each.length_ns for each in stretches(about)) for about in (one, both)]
        assert lengths[0] <= lengths[1] + 1
