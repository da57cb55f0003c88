"""Tests of pauses before a window, by the dense power record and by the gauges, and of turns of the power cap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from annotate.derived.onset import cap_turn, last_pause_end_ns
from annotate.evidence import Evidence, Trace
from tests.annotate.builders import BEGIN_NS, Signal, capped_ns, evidence


def paused(end_s: float, length_s: float, *, gauges: bool = False, **signals: Signal) -> Evidence:
    def idle(t: float) -> bool:
        return end_s - length_s <= t < end_s

    power: Callable[[float], float] = lambda t: 122.0 if idle(t) else 690.0  # noqa: E731
    about = evidence(length_s=2.0, signals={"power_w": power, **signals})
    return replace(about, trace=replace(about.trace, dense_power=Trace().dense_power)) if gauges else about


def ended_s(about: Evidence) -> float | None:
    end_ns = last_pause_end_ns(about, within_s=3.0, longest_s=0.05)
    return None if end_ns is None else (end_ns - BEGIN_NS) / 1e9


@pytest.mark.parametrize("length_s", [0.06, 0.3, 2.0])
@pytest.mark.parametrize("end_s", [-2.5, -1.0, 0.0])
def test_dense_record_shows_the_end_of_a_pause(length_s: float, end_s: float) -> None:
    assert ended_s(paused(end_s, length_s)) == pytest.approx(end_s, abs=0.045)


def test_last_of_two_pauses_counts() -> None:
    def power(t: float) -> float:
        return 122.0 if -2.5 < t < -2.0 or -1.2 < t < -1.0 else 690.0

    assert ended_s(paused(0.0, 0.0, power_w=power)) == pytest.approx(-1.0, abs=0.045)


def test_single_low_sample_is_not_a_pause() -> None:
    assert ended_s(paused(-1.0, 0.025)) is None


def test_pause_before_the_settling_time_is_ignored() -> None:
    assert ended_s(paused(-3.1, 1.0)) is None
    assert ended_s(paused(-3.1, 1.0, gauges=True)) is None


def test_power_above_half_is_not_a_pause() -> None:
    assert ended_s(paused(0.0, 0.0, power_w=lambda t: 400.0 if t < -1 else 690.0)) is None


def test_pause_by_gauges_ends_within_a_refresh() -> None:
    """Without the dense power record, the end of a pause is known to a refresh of the gauges."""
    assert ended_s(paused(-1.0, 0.5, gauges=True)) == pytest.approx(-1.0, abs=0.16)


def test_utilisation_alone_shows_a_pause() -> None:
    about = paused(0.0, 0.0, gauges=True, power_w=None, utilization_ratio=lambda t: 0.6 if -1.2 < t < -1.0 else 0.97)
    assert ended_s(about) == pytest.approx(-1.2, abs=0.1)


def test_trace_without_power_and_utilisation_has_no_pause() -> None:
    assert ended_s(paused(0.0, 0.0, gauges=True, power_w=None, utilization_ratio=None)) is None


def test_cap_turns_at_its_onset() -> None:
    about = evidence(length_s=4.0, signals={"power_cap_ns": capped_ns(since_s=1.7), "power_violation_ns": None})
    turn = cap_turn(about, capped_ratio=0.9, free_ratio=0.02)
    assert turn is not None
    assert (turn.at_ns - BEGIN_NS) / 1e9 == pytest.approx(1.7, abs=0.06)
    assert not turn.again


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_constant_cap_does_not_turn(share: float) -> None:
    about = evidence(length_s=4.0, signals={"power_cap_ns": capped_ns(share=share), "power_violation_ns": None})
    assert cap_turn(about, capped_ratio=0.9, free_ratio=0.02) is None


def test_partial_cap_in_every_refresh_turns_again() -> None:
    about = evidence(length_s=4.0, signals={"power_cap_ns": capped_ns(share=0.4), "power_violation_ns": None})
    turn = cap_turn(about, capped_ratio=0.9, free_ratio=0.02)
    assert turn is not None
    assert turn.again
