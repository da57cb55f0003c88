"""Tests of the time for which a reason held: counters with their refresh, violation time at the edges, sampled bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.derived.held import Held, began_ns, by_bits, by_counter, by_violation, power_cap, running
from annotate.evidence import Column, Evidence, Gap, Reason
from tests.annotate.builders import BEGIN_NS, Signal, capped_ns, evidence
from tests.examples import share_of

BIT = Reason.SW_POWER_CAP


def shown(counter: Callable[[float], float], phase_s: float) -> Callable[[float], float]:
    """Return a nanosecond counter as the driver shows it: refreshed every 100 ms."""
    return lambda t: counter(phase_s + 0.1 * np.floor((t - phase_s) / 0.1))


def seen(length_s: float = 3.0, **signals: Signal) -> Evidence:
    blank: dict[str, Signal] = {"power_violation_ns": None, "power_cap_ns": None, "event_reasons_mask": None}
    return evidence(length_s=length_s, period_s=0.01, signals={**blank, **signals})


def known(held: Held | None) -> Held:
    assert held is not None
    return held


@settings(max_examples=share_of(40))
@given(
    length_s=st.floats(0.25, 3.0),
    phase_s=st.floats(0.0, 0.1),
    since_s=st.floats(-1.0, 3.0),
    for_s=st.floats(0.0, 4.0),
)
def test_bounds_of_a_stepping_counter_hold_the_true_share(
    length_s: float, phase_s: float, since_s: float, for_s: float
) -> None:
    def counter(t: float) -> int:
        return 7_000_000_000 + int(1e9 * min(max(0.0, t - since_s), for_s))

    truth_ratio = (counter(length_s) - counter(0.0)) / 1e9 / length_s
    held = known(by_counter(seen(length_s, power_cap_ns=shown(counter, phase_s)), "power_cap_ns"))
    slack_ratio = 0.02 / length_s  # readings lie 10 ms apart
    assert held.least_ratio - slack_ratio <= truth_ratio <= held.most_ratio + slack_ratio
    assert held.least_ratio <= held.ratio <= held.most_ratio


@pytest.mark.parametrize("phase_s", [0.0, 0.03, 0.06, 0.09])
def test_held_cap_before_the_window_is_uncertain(phase_s: float) -> None:
    """A cap that ended when the window began has a lower bound of 0 inside."""
    counter = shown(lambda t: 10**10 + int(1e9 * min(t, 0.0)), phase_s)
    assert known(by_counter(seen(1.0, power_cap_ns=counter), "power_cap_ns")).least_ratio == 0.0


def test_constant_counter_proves_that_nothing_held() -> None:
    """A constant counter proves that the reason never held, even in a window of 50 ms."""
    held = known(by_counter(seen(0.05, power_cap_ns=5), "power_cap_ns"))
    assert held.most_ratio == 0.0


def test_reset_counter_gives_no_answer() -> None:
    assert by_counter(seen(power_cap_ns=lambda t: 10**9 if t < 1 else 0), "power_cap_ns") is None


def test_held_slow_counter_before_the_window_is_uncertain() -> None:
    """A slow counter that grew before the window has a lower bound of 0 in the window."""
    about = evidence(length_s=3.0, signals={"hw_thermal_ns": lambda t: 0 if t < -0.5 else 10**8})
    assert known(by_counter(about, "hw_thermal_ns")).least_ratio == 0.0


def test_increase_of_a_slow_counter_in_the_middle_is_certain() -> None:
    about = evidence(length_s=4.0, signals={"hw_thermal_ns": lambda t: 0 if t < 2.0 else 10**8})
    assert known(by_counter(about, "hw_thermal_ns")).least_ratio == pytest.approx(0.025)


def test_violation_time_at_both_edges_is_accurate_to_20_ms() -> None:
    held = known(by_violation(seen(0.5, power_violation_ns=capped_ns()), "power_violation_ns"))
    assert held.ratio == pytest.approx(1.0)
    assert held.least_ratio == pytest.approx(0.96)


def test_violation_time_read_far_from_the_edges_is_not_used() -> None:
    whole = seen(6.0, power_violation_ns=capped_ns())
    assert by_violation(whole.part(BEGIN_NS + 10**9, BEGIN_NS + 2 * 10**9), "power_violation_ns") is None


def test_held_order_of_witnesses() -> None:
    """Violation time takes precedence over the counter, and the counter over the bits."""
    every: dict[str, Signal] = {"power_violation_ns": capped_ns(), "power_cap_ns": capped_ns(), "event_reasons_mask": 4}
    assert known(power_cap(seen(**every))).by == "violation time"
    assert known(power_cap(seen(**{**every, "power_violation_ns": None}))).by == "counter"
    assert known(power_cap(seen(event_reasons_mask=4))).by == "samples"
    assert power_cap(seen()) is None


def test_sampled_bits_err_by_a_refresh() -> None:
    held = known(by_bits(seen(2.0, event_reasons_mask=lambda t: 4 if t > 1.05 else 0), BIT))
    assert held.ratio == pytest.approx(0.5, abs=0.03)
    assert held.error_ratio == pytest.approx(0.05)


def test_held_bits_need_three_refreshes() -> None:
    """Sampled bits give no answer in less than three refreshes or if mostly unobserved."""
    assert by_bits(seen(0.29, event_reasons_mask=4), BIT) is None
    gap = Gap(begin_ns=BEGIN_NS + 10**9, end_ns=BEGIN_NS + 3 * 10**9)
    about = seen(3.0, event_reasons_mask=4)
    assert by_bits(replace(about, trace=replace(about.trace, gaps=(gap,))), BIT) is None


@pytest.mark.parametrize("phase_s", [0.0, 0.04, 0.08])
def test_onset_time_follows_from_the_size_of_the_first_step(phase_s: float) -> None:
    about = seen(2.0, power_cap_ns=shown(capped_ns(since_s=0.513), phase_s))
    assert began_ns(about, "power_cap_ns") == pytest.approx(BEGIN_NS + 513_000_000, abs=11_000_000)


def test_constant_counter_has_no_onset() -> None:
    assert began_ns(seen(power_cap_ns=3), "power_cap_ns") is None


def test_running_follows_the_counter_or_else_the_bits() -> None:
    on = running(seen(power_cap_ns=shown(capped_ns(since_s=1.0), 0.05)), "power_cap_ns", BIT)
    assert on.values.tolist() == [0.0] * 10 + [1.0] * 20
    bits = running(seen(event_reasons_mask=lambda t: 4 if t >= 1.0 else 0), "power_cap_ns", BIT)
    assert bits.at_ns[np.argmax(bits.values)] == BEGIN_NS + 10**9


def test_held_empty_evidence_gives_no_answer() -> None:
    """A window without length and a trace without rows give no answer."""
    about = seen(power_cap_ns=1, power_violation_ns=1, event_reasons_mask=4)
    assert power_cap(about.part(BEGIN_NS, BEGIN_NS)) is None
    empty = Column(np.empty(0, np.int64), np.empty(0))
    bare = replace(about, trace=replace(about.trace, columns={"power_cap_ns": empty}))
    assert power_cap(bare) is None
