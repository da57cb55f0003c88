"""How long a reason held: counters with their refresh, violation time at the edges, sampled bits."""

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
    """A counter of nanoseconds as the driver shows it: brought up to date every 100 ms."""
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
def test_the_bounds_of_a_counter_that_steps_hold_the_truth(
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
    """A cap that ended just before the window is certain of nothing inside."""
    counter = shown(lambda t: 10**10 + int(1e9 * min(t, 0.0)), phase_s)
    assert known(by_counter(seen(1.0, power_cap_ns=counter), "power_cap_ns")).least_ratio == 0.0


def test_held_standing_counter_proves_nothing_happened() -> None:
    """A counter that stood still proves that there was nothing however short the window."""
    held = known(by_counter(seen(0.05, power_cap_ns=5), "power_cap_ns"))
    assert held.most_ratio == 0.0


def test_a_counter_that_fell_was_reset_and_says_nothing() -> None:
    assert by_counter(seen(power_cap_ns=lambda t: 10**9 if t < 1 else 0), "power_cap_ns") is None


def test_held_slow_counter_before_the_window() -> None:
    """A slow counter that grew before the window is not held against it."""
    about = evidence(length_s=3.0, signals={"hw_thermal_ns": lambda t: 0 if t < -0.5 else 10**8})
    assert known(by_counter(about, "hw_thermal_ns")).least_ratio == 0.0


def test_a_slow_counter_that_grew_in_the_middle_is_certain() -> None:
    about = evidence(length_s=4.0, signals={"hw_thermal_ns": lambda t: 0 if t < 2.0 else 10**8})
    assert known(by_counter(about, "hw_thermal_ns")).least_ratio == pytest.approx(0.025)


def test_violation_time_read_at_both_edges_is_good_to_20_ms() -> None:
    held = known(by_violation(seen(0.5, power_violation_ns=capped_ns()), "power_violation_ns"))
    assert held.ratio == pytest.approx(1.0)
    assert held.least_ratio == pytest.approx(0.96)


def test_violation_time_read_far_from_the_edges_is_left_alone() -> None:
    whole = seen(6.0, power_violation_ns=capped_ns())
    assert by_violation(whole.part(BEGIN_NS + 10**9, BEGIN_NS + 2 * 10**9), "power_violation_ns") is None


def test_held_order_of_witnesses() -> None:
    """Violation time comes before the counter and the counter before the bits."""
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
    """Sampled bits say nothing in less than three refreshes or when mostly unobserved."""
    assert by_bits(seen(0.29, event_reasons_mask=4), BIT) is None
    gap = Gap(begin_ns=BEGIN_NS + 10**9, end_ns=BEGIN_NS + 3 * 10**9)
    about = seen(3.0, event_reasons_mask=4)
    assert by_bits(replace(about, trace=replace(about.trace, gaps=(gap,))), BIT) is None


@pytest.mark.parametrize("phase_s", [0.0, 0.04, 0.08])
def test_an_onset_is_timed_by_how_far_the_first_step_went(phase_s: float) -> None:
    about = seen(2.0, power_cap_ns=shown(capped_ns(since_s=0.513), phase_s))
    assert began_ns(about, "power_cap_ns") == pytest.approx(BEGIN_NS + 513_000_000, abs=11_000_000)


def test_a_counter_that_never_moved_began_nowhere() -> None:
    assert began_ns(seen(power_cap_ns=3), "power_cap_ns") is None


def test_running_follows_the_counter_and_without_it_the_bits() -> None:
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
