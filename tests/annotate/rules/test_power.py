"""Tests of the rules about the power limit, sync boost, and windows too short for power readings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import Number
from annotate.claims import Claim
from annotate.evidence import Column, Evidence, Reason, Timings, Trace
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.power import RULES, power_limited, power_reading_stale, sync_boost_limited
from tests.annotate.builders import BEGIN_NS, Signal, capped_ns, evidence
from tests.examples import share_of

NO_COUNTERS: dict[str, Signal] = {"power_cap_ns": None, "power_violation_ns": None}


def ask(rule: Rule, about: Evidence, claim: Claim = Claim.SUSTAINED, **limits: float) -> Answer:
    return rule.ask(about, claim, limits)


def found(answer: Answer) -> Found:
    assert isinstance(answer, Found), answer
    assert answer.severity is Severity.NOTE
    return answer


def stepped(share: float = 1.0, *, phase_s: float = 0.0) -> Signal:
    """Return a counter that is refreshed only every 100 ms."""
    exact = capped_ns(share=share)
    return lambda t: exact((t + phase_s) // 0.1 * 0.1 - phase_s)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("claim", Claim)
def test_uncapped_copy_is_clear_under_every_claim(rule: Rule, claim: Claim) -> None:
    assert isinstance(rule.ask(evidence(), claim), Clear)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_power_without_telemetry_returns_the_absence(rule: Rule) -> None:
    nobody = replace(evidence(), trace=Trace(), absence="no daemon is running")
    assert ask(rule, nobody) == Unobserved("no daemon is running")


CAPPED: Mapping[str, Signal] = {"power_cap_ns": stepped(), "power_violation_ns": capped_ns(), "sm_clock_mhz": 1485}


class TestPowerLimited:
    @pytest.mark.parametrize("claim", Claim)
    def test_steady_cap_is_a_label_under_every_claim(self, claim: Claim) -> None:
        answer = found(ask(power_limited, evidence(signals=CAPPED), claim))
        assert answer.bounds == ()

    def test_label_names_clock_and_power(self) -> None:
        answer = found(ask(power_limited, evidence(signals={**CAPPED, "power_w": 692.0})))
        assert power_limited.says.format(**answer.facts) == "power-capped: 1485 MHz by the driver's clock, 692 W"
        assert answer.facts["of_maximum_ratio"] == pytest.approx(0.75)

    def test_label_quotes_a_stamped_clock_as_true(self) -> None:
        at_ns = BEGIN_NS + np.arange(600, dtype=np.int64) * 10_000_000
        stamped = evidence(signals=CAPPED, timings=Timings(at_ns, np.full(600, 0.01), np.full(600, 1330.0)))
        says = power_limited.says.format(**found(ask(power_limited, stamped)).facts)
        assert says == "power-capped: 1330 MHz true, 566 W"
        declared = evidence(signals=CAPPED, declared={"true_clock_mhz": 1340.0, "stamped_s": 6.0})
        assert "1340 MHz true" in power_limited.says.format(**found(ask(power_limited, declared)).facts)

    def test_clock_and_power_are_those_while_the_cap_held(self) -> None:
        """In a window capped from 3 s on, clock and power are those of the capped part."""
        signals: dict[str, Signal] = {
            "power_cap_ns": capped_ns(3.0),
            "power_violation_ns": capped_ns(3.0),
            "sm_clock_mhz": lambda t: 1980 if t < 3 else 1485,
            "power_w": lambda t: 400.0 if t < 3 else 690.0,
        }
        answer = found(ask(power_limited, evidence(signals=signals)))
        assert answer.facts["clock_mhz"] == pytest.approx(1485.0, abs=15.0)
        assert answer.facts["power_w"] == pytest.approx(690.0)
        assert power_limited.says.format(**answer.facts).startswith("power-capped for 50% of the time: 1")

    def test_label_omits_an_unknown_clock(self) -> None:
        answer = found(ask(power_limited, evidence(signals={**CAPPED, "sm_clock_mhz": None})))
        assert power_limited.says.format(**answer.facts) == "power-capped: 566 W"
        bare = found(ask(power_limited, evidence(signals={**CAPPED, "sm_clock_mhz": None, "power_w": None})))
        assert power_limited.says.format(**bare.facts) == "power-capped"

    def test_share_of_the_maximum_clock_needs_a_device(self) -> None:
        assert found(ask(power_limited, evidence(signals=CAPPED, device=None))).facts["of_maximum_ratio"] is None

    def test_clock_below_three_refreshes_is_not_quoted(self) -> None:
        assert found(ask(power_limited, evidence(signals=CAPPED, length_s=0.25))).facts["clock_mhz"] is None

    def test_violation_time_at_the_edges_is_taken_before_the_counter(self) -> None:
        signals: dict[str, Signal] = {"power_cap_ns": stepped(0.3), "power_violation_ns": capped_ns()}
        facts = found(ask(power_limited, evidence(signals=signals))).facts
        assert facts["by"] == "violation time"
        assert facts["capped_ratio"] == pytest.approx(1.0)

    def test_counter_counts_without_violation_time(self) -> None:
        facts = found(ask(power_limited, evidence(signals={**CAPPED, "power_violation_ns": None}))).facts
        assert facts["by"] == "counter"
        assert facts["capped_ratio"] == pytest.approx(1.0, abs=0.04)

    @settings(max_examples=share_of(20))
    @given(phase_s=st.floats(0.0, 0.1), length_s=st.floats(0.5, 4.0))
    def test_power_limited_at_any_phase_of_refresh(self, phase_s: float, length_s: float) -> None:
        """At any phase of its refresh, the counter covers a full cap within its error."""
        signals = {**NO_COUNTERS, "power_cap_ns": stepped(phase_s=phase_s), "event_reasons_mask": None}
        answer = found(ask(power_limited, evidence(signals=signals, length_s=length_s)))
        ratio, error = answer.facts["capped_ratio"], answer.facts["error_ratio"]
        assert isinstance(ratio, float)
        assert isinstance(error, float)
        assert ratio <= 1.0 <= ratio + 2 * error + 0.02

    @settings(max_examples=share_of(20))
    @given(before_s=st.floats(0.2, 4.0), length_s=st.floats(0.5, 4.0))
    def test_cap_released_before_the_window_does_not_count(self, before_s: float, length_s: float) -> None:
        def let_go(t: float) -> int:
            return capped_ns()(min((t // 0.1) * 0.1, -before_s))

        signals = {**NO_COUNTERS, "power_cap_ns": let_go, "event_reasons_mask": None}
        assert isinstance(ask(power_limited, evidence(signals=signals, length_s=length_s)), Clear)

    def test_power_limited_reset_counter_uses_reasons(self) -> None:
        def reset(t: float) -> int:
            return 5_000_000_000 if t < 3 else 0

        signals: dict[str, Signal] = {
            "power_cap_ns": reset,
            "power_violation_ns": reset,
            "event_reasons_mask": int(Reason.SW_POWER_CAP),
        }
        facts = found(ask(power_limited, evidence(signals=signals))).facts
        assert (facts["by"], facts["capped_ratio"]) == ("samples", 1.0)

    def test_sampled_reasons_count_without_counters(self) -> None:
        def half(t: float) -> int:
            return int(Reason.SW_POWER_CAP) if t >= 3 else 0

        facts = found(ask(power_limited, evidence(signals={**NO_COUNTERS, "event_reasons_mask": half}))).facts
        assert facts["capped_ratio"] == pytest.approx(0.5, abs=0.02)

    def test_power_reasons_need_three_refreshes(self) -> None:
        signals = {**NO_COUNTERS, "event_reasons_mask": int(Reason.SW_POWER_CAP)}
        assert isinstance(ask(power_limited, evidence(signals=signals, length_s=0.25)), Unobserved)

    def test_neither_counters_nor_reasons_is_unobserved(self) -> None:
        answer = ask(power_limited, evidence(signals={**NO_COUNTERS, "event_reasons_mask": None}))
        assert answer == Unobserved("time under the power cap was not observed")

    def test_cap_below_two_percent_of_the_time_is_clear(self) -> None:
        brief = evidence(signals={**NO_COUNTERS, "power_violation_ns": capped_ns(share=0.015)})
        assert isinstance(ask(power_limited, brief, Claim.FIXED_CLOCK), Clear)
        assert isinstance(ask(power_limited, brief, Claim.FIXED_CLOCK, free_ratio=0.01), Found)


class TestSyncBoostLimited:
    @pytest.mark.parametrize("claim", Claim)
    def test_time_held_to_another_clock_is_bounded_by_the_highest(self, claim: Claim) -> None:
        """Half of the time at 1650 of 1980 MHz has a bound of 10 %, without an estimate."""
        signals: dict[str, Signal] = {"sync_boost_ns": stepped(0.5), "sm_clock_mhz": 1650}
        answer = found(ask(sync_boost_limited, evidence(signals=signals), claim))
        assert answer.facts["limited_s"] == pytest.approx(3.0, abs=0.2)
        ratios = {bound.number: bound.ratio for bound in answer.bounds}
        assert set(ratios) == {Number.THROUGHPUT, Number.MEAN, Number.MEDIAN}
        assert ratios[Number.MEAN] == pytest.approx(0.1, abs=0.01)
        assert all(bound.estimate is None for bound in answer.bounds)

    def test_sync_boost_with_unknown_clock_has_no_size(self) -> None:
        about = evidence(signals={"sync_boost_ns": stepped(0.5), "sm_clock_mhz": None})
        assert {bound.ratio for bound in found(ask(sync_boost_limited, about)).bounds} == {None}

    def test_sync_boost_reason_replaces_a_missing_counter(self) -> None:
        signals: dict[str, Signal] = {"sync_boost_ns": None, "event_reasons_mask": int(Reason.SYNC_BOOST), "sm_clock_mhz": 1650}
        answer = found(ask(sync_boost_limited, evidence(signals=signals)))
        says = sync_boost_limited.says.format(**answer.facts)
        assert says == "for 6.00 of 6.00 s the clock followed the slowest GPU of a boost group, at 1650 MHz"

    def test_other_reasons_are_not_sync_boost(self) -> None:
        signals: dict[str, Signal] = {"sync_boost_ns": None, "event_reasons_mask": int(Reason.SW_POWER_CAP)}
        assert isinstance(ask(sync_boost_limited, evidence(signals=signals)), Clear)

    def test_sync_boost_without_evidence_is_unobserved(self) -> None:
        signals: dict[str, Signal] = {"sync_boost_ns": None, "event_reasons_mask": None}
        assert isinstance(ask(sync_boost_limited, evidence(signals=signals)), Unobserved)

    def test_counter_reset_in_the_window_does_not_clear(self) -> None:
        signals: dict[str, Signal] = {"sync_boost_ns": lambda t: 9 if t < 3 else 0, "event_reasons_mask": None}
        assert isinstance(ask(sync_boost_limited, evidence(signals=signals)), Unobserved)


class TestPowerReadingStale:
    def test_window_of_50_ms_is_too_short_for_any_sensor(self) -> None:
        answer = found(ask(power_reading_stale, evidence(length_s=0.05)))
        assert power_reading_stale.says.format(**answer.facts) == "0.05 s are too short to quote power or energy"
        assert answer.facts["needed_s"] == pytest.approx(0.1)

    def test_dense_record_suffices_for_120_ms(self) -> None:
        assert isinstance(ask(power_reading_stale, evidence(length_s=0.12)), Clear)

    @pytest.mark.parametrize(
        ("missing", "short_s", "enough_s"),
        [((), 0.9, 1.1), (("power_w",), 1.9, 2.1)],
        ids=["instant reading", "mean of a second"],
    )
    def test_coarser_sensors_need_longer_windows(self, missing: tuple[str, ...], short_s: float, enough_s: float) -> None:
        def about(length_s: float) -> Evidence:
            whole = evidence(length_s=length_s, signals=dict.fromkeys(missing))
            return replace(whole, trace=replace(whole.trace, dense_power=Trace().dense_power))

        assert found(ask(power_reading_stale, about(short_s))).facts["needed_s"] == pytest.approx(enough_s, abs=0.15)
        assert isinstance(ask(power_reading_stale, about(enough_s)), Clear)

    def test_power_record_without_samples_uses_the_next_sensor(self) -> None:
        whole = evidence(length_s=0.4)
        old = whole.trace.dense_power.at_ns < whole.window.begin_ns
        dense = Column(whole.trace.dense_power.at_ns[old], whole.trace.dense_power.values[old])
        facts = found(ask(power_reading_stale, replace(whole, trace=replace(whole.trace, dense_power=dense)))).facts
        assert facts["needed_s"] == pytest.approx(1.0)
