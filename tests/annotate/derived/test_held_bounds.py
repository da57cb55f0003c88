"""Tests of the bounds of slow-downs, of memory clock, link and canary, and of a named clock."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import Bound, Number
from annotate.case import Case
from annotate.derived.condition_bounds import canary_bounds, link_bounds, memory_clock_bounds
from annotate.derived.held import Held
from annotate.derived.held_bounds import (
    held_bounds,
    hw_slowdown_bounds,
    power_brake_bounds,
    sync_boost_bounds,
    thermal_bounds,
)
from annotate.derived.named_clock import named_clock, named_clock_bounds, throttled_by
from annotate.evidence import Evidence, Fact
from tests.annotate.builders import Signal, capped_ns, evidence
from tests.examples import share_of

few = settings(max_examples=share_of(60))


def by_number(bounds: tuple[Bound, ...]) -> dict[Number, Bound]:
    return {bound.number: bound for bound in bounds}


def hot(low_mhz: float = 1650.0) -> Evidence:
    """Return a window in which heat lowers the clock for two of six seconds."""
    signals: dict[str, Signal] = {
        "sm_clock_mhz": lambda t: low_mhz if 2 <= t < 4 else 1980, "event_reasons_mask": lambda t: 0x20 if 2 <= t < 4 else 0,
        "sw_thermal_ns": lambda t: int(1e9 * min(max(t - 2, 0), 2)), "thermal_violation_ns": lambda t: int(1e9 * min(max(t - 2, 0), 2)),
    }  # fmt: skip
    return evidence(signals=signals)


def test_quiet_window_has_no_bounds() -> None:
    about = evidence()
    for found in (thermal_bounds, hw_slowdown_bounds, power_brake_bounds, sync_boost_bounds):
        assert found(about, 1.0) == ()
    for other in (memory_clock_bounds, link_bounds, canary_bounds):
        assert other(about) == ()
    assert throttled_by(about) == ((), ())


def test_heat_bound_is_its_time_times_its_slow_down() -> None:
    """A third of the window a fifth slower gives the mean an estimate of 6.7 %, and the median one that starts at 0."""
    found = by_number(thermal_bounds(hot(), 1.0))
    mean = found[Number.MEAN].estimate
    assert mean is not None
    assert mean.value_ratio == pytest.approx(0.2 / 3, abs=0.004)
    assert mean.low_ratio <= mean.value_ratio <= mean.high_ratio == found[Number.MEAN].ratio
    median = found[Number.MEDIAN].estimate
    assert median is not None
    assert median.low_ratio == 0.0


def test_heat_without_an_observed_clock_assumes_22_percent() -> None:
    found = by_number(
        thermal_bounds(evidence(signals={"sw_thermal_ns": capped_ns(-9.0), "thermal_violation_ns": capped_ns(-9.0)}), 1.0)
    )
    assert found[Number.MEAN].ratio == pytest.approx(0.22, abs=1e-6)


def test_brake_without_an_observed_clock_assumes_half() -> None:
    found = by_number(
        power_brake_bounds(evidence(signals={"power_brake_ns": capped_ns(-9.0), "event_reasons_mask": None}), 1.0)
    )
    assert found[Number.MEAN].ratio == pytest.approx(1.0, abs=1e-6)
    assert found[Number.THROUGHPUT].ratio == pytest.approx(0.5, abs=1e-6)


def test_sampled_slowdown_may_have_held_a_refresh_longer() -> None:
    about = evidence(
        signals={"event_reasons_mask": lambda t: 8 if 2 <= t < 4 else 0, "sm_clock_mhz": lambda t: 990 if 2 <= t < 4 else 1980}
    )
    found = by_number(hw_slowdown_bounds(about, 1.0))[Number.MEAN]
    assert found.ratio == pytest.approx((2.0 + 2 * 0.1) / 6.0, abs=0.05)


def test_boost_group_bound_assumes_the_boards_highest_clock() -> None:
    about = evidence(signals={"sync_boost_ns": capped_ns(-9.0), "event_reasons_mask": 0x10, "sm_clock_mhz": 1800})
    found = by_number(sync_boost_bounds(about, 1.0))[Number.MEAN]
    assert found.ratio == pytest.approx(0.1, abs=1e-3)
    assert found.estimate is None


@few
@given(parts=st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3), slow=st.floats(0.0, 3.0), more=st.floats(0.0, 1.0))
def test_longer_or_deeper_slowdown_never_bounds_less(parts: list[float], slow: float, more: float) -> None:
    least, value, most = sorted(parts)
    held = Held(value, least, most, "counter")
    longer = Held(value, least, min(1.0, most + more), "counter")
    for first, second in ((held_bounds("x", held, slow), held_bounds("x", longer, slow)),
                          (held_bounds("x", held, slow), held_bounds("x", held, slow + more))):  # fmt: skip
        for one, other in zip(first, second, strict=True):
            assert one.size_ratio <= other.size_ratio + 1e-12


def test_memory_clock_estimate_follows_the_bandwidth_in_use() -> None:
    """At 2201 of 3201 MHz for half of the time the bound is 22.7 %; 80 % of the bound is certain at 90 % bandwidth use."""
    about = evidence(signals={"mem_clock_mhz": lambda t: 2201 if t >= 3 else 3201})
    found = by_number(memory_clock_bounds(about))[Number.MEAN]
    assert found.ratio == pytest.approx(0.5 * (3201 / 2201 - 1), abs=0.01)
    assert found.estimate is not None
    assert found.estimate.low_ratio == pytest.approx(0.8 * found.size_ratio)
    light = by_number(memory_clock_bounds(evidence(signals={"mem_clock_mhz": 2201, "dram_activity_ratio": 0.3})))[Number.MEAN]
    assert light.estimate is not None
    assert light.estimate.low_ratio == 0.0


def test_link_bounds_need_a_change_of_the_link() -> None:
    moved = by_number(link_bounds(evidence(signals={"pcie_width_count": lambda t: 8 if t > 3.5 else 16})))
    assert moved[Number.THROUGHPUT].ratio == pytest.approx(0.5, abs=0.15)
    assert link_bounds(evidence(signals={"pcie_width_count": 8})) == ()


CANARY: dict[str, Fact] = {"canary_clock_mhz": 1900.0, "canary_record_clock_mhz": 1980.0, "canary_record_count": 5}


def test_slow_canary_is_bound_against_its_record() -> None:
    found = by_number(canary_bounds(evidence(declared=CANARY)))[Number.MEAN]
    assert found.ratio == pytest.approx(1980.0 / 1900.0 - 1.0 + 0.002)
    assert canary_bounds(evidence(declared={**CANARY, "canary_clock_mhz": 1978.0})) == ()


def test_canary_without_record_has_bounds_of_unknown_size() -> None:
    """A canary at 1700 MHz while the driver shows 1980 MHz uncapped has bounds of unknown size."""
    found = canary_bounds(evidence(declared={"canary_clock_mhz": 1700.0, "canary_record_count": 4}))
    assert {bound.ratio for bound in found} == {None}


def test_canary_under_heat_or_cap_has_no_bounds() -> None:
    assert canary_bounds(evidence(declared=CANARY, signals={"event_reasons_mask": 0x20})) == ()
    capped: dict[str, Signal] = {"power_violation_ns": capped_ns(), "power_cap_ns": capped_ns(), "event_reasons_mask": 4}
    assert canary_bounds(evidence(declared=CANARY, signals=capped)) == ()


def test_driver_lock_precedes_a_declared_clock() -> None:
    both = named_clock(evidence(signals={"sm_clock_lock_mhz": 1500}, declared={"locked_mhz": 1400.0}))
    assert both is not None
    assert (both.mhz, both.by) == (1500.0, "read")
    told = named_clock(evidence(declared={"locked_mhz": 1400.0}))
    assert told is not None
    assert (told.mhz, told.by) == (1400.0, "declared")
    assert named_clock(evidence(declared={"locked_mhz": "1400"})) is None
    assert named_clock(evidence(signals={"sm_clock_lock_mhz": lambda t: 1500 if t < 2 else 1400})) is None


def test_missed_clock_is_a_bias_of_mean_and_median_at_clock() -> None:
    blocks = Case(evidence(signals={"sm_clock_mhz": 1980})).blocks
    assert blocks is not None
    found = by_number(named_clock_bounds(blocks, 2079.0, 1.0))
    assert set(found) == {Number.MEAN, Number.MEDIAN_AT_CLOCK}
    assert found[Number.MEAN].ratio == pytest.approx(0.05, abs=1e-3)
