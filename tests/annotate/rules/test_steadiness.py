"""Tests of the rules about onsets of the cap, steps of the clock, and regular pauses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from annotate.budget import Bound, Group, Number
from annotate.claims import Claim
from annotate.evidence import Evidence, Fact, Timings, Trace
from annotate.judge import judge
from annotate.rule import Answer, Clear, Found, Severity, Unobserved
from annotate.rules.steadiness import RULES, bursty_duty_cycle, regime_change
from annotate.user_policy import Policy
from annotate.verdict import Status
from tests.annotate.builders import BEGIN_NS, DEVICE, Signal, evidence
from tests.annotate.rules.asking import found

CAPPED_MHZ = 1560


def refreshed(counter: Callable[[float], float], period_s: float = 0.1, phase_s: float = 0.03) -> Callable[[float], float]:
    """Return a counter as the driver shows it, refreshed every ``period_s``."""
    return lambda t: counter(phase_s + period_s * np.floor((t - phase_s) / period_s))


def cap(since_s: float = -100.0, until_s: float = 1e9) -> dict[str, Signal]:
    def counted(t: float) -> float:
        return 5_000_000_000 + int(1e9 * max(0.0, min(t, until_s) - since_s))

    def on(t: float) -> bool:
        return since_s <= t - 0.1 < until_s

    return {
        "power_cap_ns": refreshed(counted),
        "power_violation_ns": counted,
        "event_reasons_mask": lambda t: 0x4 if on(t) else 0,
        "sm_clock_mhz": lambda t: CAPPED_MHZ if on(t) else 1980,
        "power_w": 695.0,
    }


def pause(until_s: float, length_s: float = 3.0) -> dict[str, Signal]:
    def idle(t: float) -> bool:
        return until_s - length_s <= t < until_s

    return {
        "power_w": lambda t: 122.0 if idle(t) else 695.0,
        "utilization_ratio": lambda t: 0.0 if idle(t - 0.2) else 0.98,
    }


def changed(about: Evidence, claim: Claim = Claim.SUSTAINED, **limits: float) -> Answer:
    return regime_change.ask(about, claim, limits)


def bound_of(answer: Answer, number: Number = Number.MEAN) -> Bound:
    (bound,) = [each for each in found(answer).bounds if each.number is number]
    return bound


def stamped(
    change_s: float, before_mhz: float, after_mhz: float, signals: Mapping[str, Signal], length_s: float = 6.0
) -> Evidence:
    at_s = np.arange(round(length_s * 1000)) * 1e-3
    clock_mhz = np.where(at_s < change_s, before_mhz, after_mhz)
    times = Timings(BEGIN_NS + np.round(at_s * 1e9).astype(np.int64), 0.75e-3 * 1980 / clock_mhz, clock_mhz)
    return evidence(length_s=length_s, signals=signals, timings=times)


def said(answer: Answer) -> str:
    return regime_change.says.format(**found(answer).facts)


def timings(took_s: Callable[[float], float], length_s: float, every_s: float | None = None) -> Timings:
    at_s, t = [], 0.0
    while t < length_s:
        at_s.append(t)
        t += every_s or took_s(t)
    return Timings(BEGIN_NS + np.array([int(t * 1e9) for t in at_s], np.int64), np.array([took_s(t) for t in at_s]))


class TestRegimeChange:
    @pytest.mark.parametrize("claim", Claim)
    def test_uncapped_copy_is_clear(self, claim: Claim) -> None:
        assert isinstance(changed(evidence(), claim), Clear)

    @pytest.mark.parametrize("claim", Claim)
    @pytest.mark.parametrize("length_s", [1.0, 1.7, 3.0, 6.0])
    def test_cap_long_before_and_throughout_is_clear(self, claim: Claim, length_s: float) -> None:
        assert isinstance(changed(evidence(length_s=length_s, signals=cap()), claim), Clear)

    @pytest.mark.parametrize("claim", Claim)
    def test_regime_onset_in_the_middle_is_bounded(self, claim: Claim) -> None:
        """A fall from 1980 to 1560 MHz after 2.5 of 6 s puts the mean 15.7 % above one level and 8.8 % below the other."""
        answer = changed(stamped(2.5, 1980, 1560, cap(since_s=2.5)), claim)
        bound = bound_of(answer)
        assert (bound.rule, bound.group, found(answer).severity) == ("regime-change", Group.CLOCK, Severity.NOTE)
        assert bound.ratio == pytest.approx(0.157, abs=0.002)
        assert bound.estimate is not None
        assert bound.estimate.value_ratio == pytest.approx(-0.088, abs=0.002)
        assert said(answer).startswith(
            "the power cap engaged 2.5 s into the window of 6 s: the SM clock fell from 1980 to 1560"
        )

    def test_released_cap_is_found(self) -> None:
        answer = changed(stamped(4.0, 1560, 1980, cap(until_s=4.0)))
        assert "let go 4" in said(answer)
        assert "warm up" not in str(found(answer).facts["advice"]).lower()

    def test_early_onset_after_a_pause_is_bounded(self) -> None:
        """The model's excess over the first 2 s of load is 1.3 %; the step adds a little."""
        answer = changed(evidence(length_s=2.0, signals={**cap(since_s=0.07), **pause(0.0)}))
        assert bound_of(answer).ratio == pytest.approx(0.014, abs=0.004)
        assert "the SM clock fell" in said(answer)
        assert str(found(answer).facts["advice"]).startswith("Warm up")

    def test_onset_in_a_window_of_a_minute_is_small(self) -> None:
        """An onset that takes 0.17 s at a 27 % higher clock changes a minute's mean by 0.06 %: clear, or a bound below 0.2 %."""
        answer = changed(evidence(length_s=60.0, signals={**cap(since_s=0.07), **pause(0.0)}))
        assert isinstance(answer, Clear) or (bound_of(answer).ratio or 0.0) < 0.002

    def test_regime_soon_after_a_pause_has_the_models_excess(self) -> None:
        """A window from the first to the third second of load has the model's excess as its bound."""
        answer = changed(evidence(length_s=2.0, signals={**cap(since_s=-0.9), **pause(-1.0)}))
        bound = bound_of(answer)
        assert 0.004 < (bound.ratio or 0.0) < 0.012
        assert "the window began 1.0 s after a pause" in said(answer)
        onset = changed(evidence(length_s=2.0, signals={**cap(since_s=-1.9), **pause(0.0)}))
        assert "the window began right after a pause" in said(onset)
        assert bound.estimate is not None
        assert bound.estimate.value_ratio <= 0.0

    def test_unknown_model_never_rejects_by_its_range(self) -> None:
        about = evidence(
            length_s=2.0,
            signals={**cap(since_s=-0.9), **pause(-1.0), "sm_clock_mhz": lambda t: 1500 + 30 * (int(t * 10) % 3)},
            device=replace(DEVICE, name="NVIDIA X900"),
        )
        assert not bound_of(changed(about)).can_reject

    def test_pause_before_uncapped_work_is_clear(self) -> None:
        signals = {**pause(0.0), "power_w": lambda t: 122.0 if -3.0 <= t < 0.0 else 400.0}
        assert isinstance(changed(evidence(length_s=2.0, signals=signals)), Clear)

    def test_clock_step_without_a_cap_is_found(self) -> None:
        """A fall from 1980 to 1800 MHz after 2 of 6 s puts the mean 6.7 % above the time at 1980 MHz."""
        answer = changed(stamped(2.0, 1980, 1800, {"sm_clock_mhz": lambda t: 1980 if t < 2 else 1800}))
        assert said(answer) == "the SM clock fell from 1980 to 1800 MHz"
        assert bound_of(answer).ratio == pytest.approx(0.067, abs=0.006)
        assert found(answer).span_ns is not None

    def test_swing_of_the_controller_is_not_a_step(self) -> None:
        def swing(t: float) -> int:
            return 15 * round(1500 * (1 + 0.03 * float(np.sin(6.3 * t))) / 15)

        answer = changed(evidence(signals={**cap(), "sm_clock_mhz": swing}))
        assert isinstance(answer, Clear) or (bound_of(answer).seen_ratio or 0.0) < 0.002

    @pytest.mark.parametrize(
        "clock", [lambda t: 1980 - 15 * round(t * 4), lambda t: 1980 if int(t) % 2 else 1500], ids=["drift", "toggle"]
    )
    def test_regime_change_is_clear_for_other_shapes(self, clock: Callable[[float], float]) -> None:
        assert isinstance(changed(evidence(signals={"sm_clock_mhz": clock})), Clear)

    def test_regime_change_is_clear_for_a_constant_stamped_clock(self) -> None:
        """For a constant stamped clock, only ``clock-levels`` replaces the driver's uncertainty."""
        at_ns = BEGIN_NS + np.arange(6000, dtype=np.int64) * 1_000_000
        stamped = Timings(at_ns, np.full(6000, 0.99e-3), np.full(6000, 1970.0))
        assert isinstance(changed(evidence(timings=stamped)), Clear)

    def test_regime_change_without_a_clock_is_unobserved(self) -> None:
        assert isinstance(changed(evidence(signals={"sm_clock_mhz": None})), Unobserved)
        nobody = replace(evidence(), trace=Trace(), absence="no daemon is running")
        assert changed(nobody) == Unobserved("no daemon is running")


class TestBurstyDutyCycle:
    def ask(
        self,
        claim: Claim = Claim.SUSTAINED,
        *,
        signals: Mapping[str, Signal] | None = None,
        declared: Mapping[str, Fact] | None = None,
        length_s: float = 4.0,
        times: Timings | None = None,
    ) -> Answer:
        about = evidence(length_s=length_s, signals=signals, declared=declared)
        return bursty_duty_cycle.ask(replace(about, timings=times), claim)

    RESTING = timings(lambda t: 0.011, 4.0, every_s=0.013)  # idle for 2 of every 13 ms

    @pytest.mark.parametrize("claim", Claim)
    @pytest.mark.parametrize("busy_ratio", [0.85, 0.97, 1.0])
    def test_back_to_back_work_is_clear(self, claim: Claim, busy_ratio: float) -> None:
        assert isinstance(self.ask(claim, signals={"utilization_ratio": busy_ratio}), Clear)

    def test_pauses_near_the_power_limit_are_bounded(self) -> None:
        """Pauses of 2 of 13 ms (15.4 %), minus 1.3 percentage points, count a third: a bound of 4.7 %."""
        answer = found(self.ask(signals={"utilization_ratio": 0.85, "power_w": 690.0}, times=self.RESTING))
        assert {bound.number for bound in answer.bounds} == {Number.THROUGHPUT, Number.MEAN, Number.MEDIAN}
        assert {bound.group for bound in answer.bounds} == {Group.DUTY}
        assert answer.bounds[0].ratio == pytest.approx((2 / 13 - 0.013) / 3, abs=0.0005)
        assert bursty_duty_cycle.says.format(**answer.facts).startswith(
            "regular pauses of the loop take 15.3% of the window, usually 2 ms"
        )

    @pytest.mark.parametrize(("busy_ratio", "idle_ratio"), [(0.6, 0.4), (0.75, 0.25), (1.0, 0.0)])
    def test_times_without_start_times_count_unseen_work_as_idle(self, busy_ratio: float, idle_ratio: float) -> None:
        """Times laid end to end over 60 % of 4 s leave as idle the share that utilisation does not show as work."""
        took_s = np.full(200, 0.012)
        laid = Timings(BEGIN_NS + np.round(np.arange(200) * 0.012 * 1e9).astype(np.int64), took_s)
        answer = self.ask(signals={"utilization_ratio": busy_ratio, "power_w": 690.0}, times=laid)
        ratio = found(answer).bounds[0].ratio if isinstance(answer, Found) and answer.bounds else 0.0
        assert ratio == pytest.approx(max(0.0, idle_ratio - 0.013) / 3.0, abs=0.005)
        cool = self.ask(signals={"utilization_ratio": busy_ratio, "power_w": 250.0}, times=laid)
        assert not (isinstance(cool, Found) and cool.bounds)

    def test_pauses_far_from_the_power_limit_are_clear(self) -> None:
        assert isinstance(self.ask(signals={"power_w": 400.0}, times=self.RESTING), Clear)

    @pytest.mark.parametrize(("claim", "declared"), [(Claim.BURST, {}), (Claim.SUSTAINED, {"every_s": 0.013})])
    def test_declared_pauses_are_clear(self, claim: Claim, declared: Mapping[str, Fact]) -> None:
        assert isinstance(self.ask(claim, signals={"power_w": 690.0}, declared=declared, times=self.RESTING), Clear)

    def test_unkept_period_does_not_clear(self) -> None:
        assert found(self.ask(signals={"power_w": 690.0}, declared={"every_s": 0.05}, times=self.RESTING)).bounds

    @pytest.mark.parametrize(("busy_ratio", "power_w"), [(0.11, 210.0), (0.6, 690.0)])
    def test_pauses_without_times_count_near_the_limit(self, busy_ratio: float, power_w: float) -> None:
        """A third of the idle time counts if the power of the work alone is near the limit."""
        answer = found(self.ask(signals={"utilization_ratio": busy_ratio, "power_w": power_w}))
        assert bursty_duty_cycle.says.format(**answer.facts) == f"the GPU was busy {busy_ratio:.0%} of the time"
        assert answer.bounds[0].ratio == pytest.approx((1.0 - busy_ratio) / 3, abs=0.001)

    def test_pauses_without_times_far_from_the_limit_are_a_label(self) -> None:
        assert found(self.ask(signals={"utilization_ratio": 0.6, "power_w": 210.0})).bounds == ()

    @pytest.mark.parametrize(("claim", "declared"), [(Claim.BURST, {}), (Claim.SUSTAINED, {"every_s": 0.013})])
    def test_declared_pauses_without_times_are_a_label(self, claim: Claim, declared: Mapping[str, Fact]) -> None:
        assert found(self.ask(claim, signals={"utilization_ratio": 0.6, "power_w": 690.0}, declared=declared)).bounds == ()

    @pytest.mark.parametrize("every_s", [0.0, 1e9])
    def test_impossible_period_does_not_excuse_pauses(self, every_s: float) -> None:
        """A period of zero, or one longer than the window, is not a claim about calls between pauses."""
        answer = self.ask(signals={"utilization_ratio": 0.6, "power_w": 690.0}, declared={"every_s": every_s})
        assert found(answer).bounds

    @pytest.mark.parametrize(
        ("signals", "length_s"),
        [
            ({"utilization_ratio": None, "sm_activity_ratio": 0.74}, 6.0),
            ({"utilization_ratio": 0.5}, 0.9),
            ({"utilization_ratio": lambda t: 0.0 if t < 0.45 else 1.0}, 1.4),
        ],
    )
    def test_doubtful_idle_time_has_no_bounds(self, signals: Mapping[str, Signal], length_s: float) -> None:
        """SM activity below 100 % can be dense work; utilisation at the edges of a short window may cover the time before."""
        answer = found(self.ask(signals={"power_w": 690.0, **signals}, length_s=length_s))
        assert answer.bounds == ()

    @pytest.mark.parametrize(("limit", "is_proven"), [(0.8, False), (0.5, True)])
    def test_busy_limit_also_changes_the_proof(self, limit: float, is_proven: bool) -> None:
        """Without the power record, a busy share below the policy's limit leaves proof 1 unproven."""
        about = evidence(signals={"utilization_ratio": 0.6, "power_w": None})
        status = judge(about, Policy(limits={"bursty-duty-cycle": {"busy_ratio": limit}})).status
        assert (status is not Status.UNPROVEN) is is_proven

    def test_busy_share_without_utilisation_is_declared_or_activity(self) -> None:
        declared = self.ask(signals={"utilization_ratio": None, "sm_activity_ratio": None}, declared={"busy_ratio": 0.3})
        assert found(declared).facts["by"] == "told"
        assert found(self.ask(signals={"utilization_ratio": None, "sm_activity_ratio": 0.2})).facts["by"] == "SM activity"

    def test_duty_needs_three_refreshes(self) -> None:
        signals: dict[str, Signal] = {"utilization_ratio": 0.1, "sm_activity_ratio": None}
        assert isinstance(self.ask(signals=signals, length_s=0.6), Unobserved)

    def test_steadiness_without_telemetry_is_unobserved(self) -> None:
        nobody = replace(evidence(), trace=Trace(), absence="no daemon is running")
        assert bursty_duty_cycle.ask(nobody, Claim.SUSTAINED) == Unobserved("no daemon is running")


def test_steadiness_family_lists_its_rules_in_order() -> None:
    assert [rule.name for rule in RULES] == ["regime-change", "bursty-duty-cycle"]
