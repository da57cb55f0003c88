"""Tests of the rules about control of the clock: locks, limits, hidden slow states, an untrue driver's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.budget import Number
from annotate.claims import Claim
from annotate.evidence import Fact, Timings, Trace
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules.clock_control import (
    RULES,
    clock_controller_present,
    clock_low_no_reason,
    locked_clock_missed,
    nvml_clock_untrue,
)
from tests.annotate.builders import BEGIN_NS, DEVICE, Signal, capped_ns, evidence
from tests.annotate.occurrences.clock_control import stamped
from tests.annotate.rules.asking import ask
from tests.examples import share_of

CAPPED: Mapping[str, Signal] = {"power_cap_ns": capped_ns(), "power_violation_ns": capped_ns(), "sm_clock_mhz": 1485}
NONSENSE: tuple[object, ...] = ("1980", True, float("nan"), float("inf"), -5.0, 0, 10**400, [1980])


def found(answer: Answer) -> Found:
    assert isinstance(answer, Found), answer
    assert answer.severity is Severity.NOTE  # the judge derives the severity of a bias
    return answer


def value_ratio(answer: Answer, number: Number) -> float:
    (bound,) = (each for each in found(answer).bounds if each.number is number)
    assert bound.estimate is not None
    return bound.estimate.value_ratio


def unobserved(answer: Answer) -> str:
    assert isinstance(answer, Unobserved), answer
    return answer.reason


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("claim", Claim)
def test_uncapped_copy_has_no_clock_control_hazard(rule: Rule, claim: Claim) -> None:
    assert not isinstance(ask(rule, evidence(timings=stamped(1978.0)), claim), Found)


@pytest.mark.parametrize("rule", [locked_clock_missed, clock_controller_present], ids=lambda rule: rule.name)
def test_clock_control_without_telemetry_returns_the_absence(rule: Rule) -> None:
    nobody = replace(evidence(), trace=Trace(), device=None, absence="no daemon is running")
    assert unobserved(ask(rule, nobody)) == "no daemon is running"


class TestLockedClockMissed:
    def test_held_lock_is_clear(self) -> None:
        about = evidence(signals={"sm_clock_lock_mhz": 1500, "sm_clock_mhz": 1500})
        assert isinstance(ask(locked_clock_missed, about, Claim.FIXED_CLOCK), Clear)

    def test_missing_lock_is_unobserved(self) -> None:
        assert "cannot be read back" in unobserved(ask(locked_clock_missed, evidence()))
        assert "locked_mhz was not declared" in unobserved(ask(locked_clock_missed, evidence(), Claim.FIXED_CLOCK))

    def test_missed_lock_is_a_bias_of_a_fixed_clock(self) -> None:
        """At 1330 instead of 1980 MHz, the mean and the median at one clock are 48.9 % longer than at the lock."""
        about = evidence(signals={**CAPPED, "sm_clock_lock_mhz": 1980}, timings=stamped(1330.0))
        answer = found(ask(locked_clock_missed, about, Claim.FIXED_CLOCK))
        assert {bound.number for bound in answer.bounds} == {Number.MEAN, Number.MEDIAN_AT_CLOCK}
        assert value_ratio(answer, Number.MEAN) == pytest.approx(1980 / 1330 - 1, abs=0.001)
        assert value_ratio(answer, Number.MEDIAN_AT_CLOCK) == pytest.approx(1980 / 1330 - 1, abs=0.001)
        assert (answer.facts["by"], answer.facts["named_by"]) == ("the stamped iterations", "read")

    @pytest.mark.parametrize("claim", [Claim.SUSTAINED, Claim.BURST])
    def test_missed_lock_is_a_label_under_other_claims(self, claim: Claim) -> None:
        about = evidence(signals={**CAPPED, "sm_clock_lock_mhz": 1980}, timings=stamped(1330.0))
        answer = found(ask(locked_clock_missed, about, claim))
        assert answer.bounds == ()
        assert answer.facts["advice"] == "1260 MHz or less"

    def test_declared_clock_is_the_named_clock(self) -> None:
        """A declared lock that the driver does not report, missed by 2 % throughout, gives a bias of 2 %."""
        about = evidence(declared={"locked_mhz": 1530.0}, timings=stamped(1500.0))
        answer = found(ask(locked_clock_missed, about, Claim.FIXED_CLOCK))
        assert value_ratio(answer, Number.MEAN) == pytest.approx(0.02, abs=0.001)
        assert answer.facts["named_by"] == "declared"

    def test_clock_one_step_off_its_lock_counts_if_fixed(self) -> None:
        """One step of 15 MHz is clear as rounding, but under ``fixed-clock`` at 360 MHz it is a bias of 4.3 %."""
        about = evidence(signals={"sm_clock_lock_mhz": 360, "sm_clock_mhz": 345})
        assert isinstance(ask(locked_clock_missed, about), Clear)
        assert value_ratio(ask(locked_clock_missed, about, Claim.FIXED_CLOCK), Number.MEAN) == pytest.approx(0.0435, abs=0.001)

    def test_locked_clock_advice_allows_for_the_drivers_error(self) -> None:
        """Without stamps, the advice allows for the error of the driver's clock: 1260 MHz at a reading of 1485 MHz."""
        answer = found(ask(locked_clock_missed, evidence(signals={**CAPPED, "sm_clock_lock_mhz": 1980})))
        assert answer.facts["advice"] == "1260 MHz or less"

    def test_clock_above_its_lock_advises_to_check_the_lock(self) -> None:
        answer = found(ask(locked_clock_missed, evidence(signals={"sm_clock_lock_mhz": 1500})))
        assert "and check that it is in force" in locked_clock_missed.remedy.format(**answer.facts)

    def test_lock_above_the_boards_maximum_means_the_maximum(self) -> None:
        about = evidence(signals={"sm_clock_lock_mhz": 2400})
        assert isinstance(ask(locked_clock_missed, about, Claim.FIXED_CLOCK), Clear)

    def test_changed_lock_is_unobserved(self) -> None:
        about = evidence(signals={"sm_clock_lock_mhz": lambda t: 1980 if t < 3 else 1500})
        assert isinstance(ask(locked_clock_missed, about), Unobserved)

    def test_stamps_at_the_lock_do_not_hide_the_cap(self) -> None:
        about = evidence(signals={**CAPPED, "sm_clock_lock_mhz": 1980}, timings=stamped(1980.0))
        assert isinstance(ask(locked_clock_missed, about), Found)
        assert isinstance(ask(locked_clock_missed, about, Claim.FIXED_CLOCK), Found)


class TestClockControllerPresent:
    @pytest.mark.parametrize("claim", Claim)
    def test_power_limit_below_the_default_is_a_label(self, claim: Claim) -> None:
        answer = found(ask(clock_controller_present, evidence(signals={"power_limit_w": 500.0}), claim))
        assert clock_controller_present.says.format(**answer.facts) == "power limit 500 of 700 W"

    def test_controller_uses_the_devices_limit_if_unread(self) -> None:
        """If the limit was not read around the window, the limit of the device record counts."""
        about = evidence(signals={"power_limit_w": None}, device=replace(DEVICE, power_limit_w=500.0))
        assert isinstance(ask(clock_controller_present, about), Found)

    def test_controller_leaves_changes_to_setting_changed(self) -> None:
        """A limit that changes inside the window is unobserved here: ``setting-changed`` reports it."""
        about = evidence(signals={"power_limit_w": lambda t: 700.0 if t < 2 else 500.0})
        assert isinstance(ask(clock_controller_present, about), Unobserved)

    def test_lock_and_limit_are_one_label(self) -> None:
        about = evidence(signals={"sm_clock_lock_mhz": 1500, "power_limit_w": 500.0})
        says = clock_controller_present.says.format(**found(ask(clock_controller_present, about)).facts)
        assert says == "power limit 500 of 700 W, SM clock set to 1500 of 1980 MHz"

    def test_unreadable_lock_is_found_by_its_event_reason(self) -> None:
        assert isinstance(ask(clock_controller_present, evidence(signals={"event_reasons_mask": 0x2})), Found)

    def test_virtual_gpu_without_a_limit_is_unobserved(self) -> None:
        about = evidence(
            signals={"power_limit_w": None}, device=replace(DEVICE, power_limit_w=None, power_limit_default_w=None)
        )
        assert isinstance(ask(clock_controller_present, about), Unobserved)


RECORD: Mapping[str, Fact] = {
    "canary_clock_mhz": 1978.0,
    "canary_copy_bytes_count": 4.2e12,
    "canary_record_clock_mhz": 1980.0,
    "canary_record_copy_bytes_count": 4.2e12,
    "canary_record_count": 7,
}


class TestClockLowNoReason:
    @pytest.mark.parametrize(
        ("changes", "slower_ratio", "than"),
        [
            ({"canary_clock_mhz": 1727.0}, 1980 / 1727 - 1, "its own record for the clock"),
            ({"canary_clock_mhz": 1920.0}, 1980 / 1920 - 1, "its own record for the clock"),
            ({"canary_copy_bytes_count": 3.9e12}, 4.2 / 3.9 - 1, "its own record for a copy"),
        ],
    )
    def test_canary_below_its_record_has_its_size(self, changes: Mapping[str, Fact], slower_ratio: float, than: str) -> None:
        answer = found(ask(clock_low_no_reason, evidence(declared={**RECORD, **changes})))
        assert value_ratio(answer, Number.MEAN) == pytest.approx(slower_ratio)
        assert value_ratio(answer, Number.THROUGHPUT) == pytest.approx(1 / (1 + slower_ratio) - 1)
        assert [bound.ratio for bound in answer.bounds] == pytest.approx([slower_ratio + 0.002] * 3)
        assert answer.facts["than"] == than

    def test_canary_at_its_record_is_clear(self) -> None:
        assert isinstance(ask(clock_low_no_reason, evidence(declared=RECORD)), Clear)

    def test_canary_faster_than_its_record_is_clear(self) -> None:
        assert isinstance(ask(clock_low_no_reason, evidence(declared={**RECORD, "canary_record_clock_mhz": 1500.0})), Clear)

    def test_canary_during_a_known_slow_down_is_unobserved(self) -> None:
        about = evidence(declared={**RECORD, "canary_clock_mhz": 1500.0}, signals={"event_reasons_mask": 0x20})
        assert isinstance(ask(clock_low_no_reason, about), Unobserved)

    def test_requested_clock_explains_a_slow_canary(self) -> None:
        asked = {**RECORD, "canary_clock_mhz": 1498.0}
        lock: dict[str, Signal] = {"sm_clock_mhz": 1500, "sm_clock_lock_mhz": 1500}
        assert isinstance(ask(clock_low_no_reason, evidence(declared=asked, signals=lock)), Clear)
        assert isinstance(ask(clock_low_no_reason, evidence(declared=asked, signals={"event_reasons_mask": 0x2})), Unobserved)
        slow = {**RECORD, "canary_clock_mhz": 1300.0}
        assert isinstance(ask(clock_low_no_reason, evidence(declared=slow, signals=lock)), Found)

    def test_canary_under_a_cap_counts_by_its_copy_alone(self) -> None:
        """Under a cap only the canary's copy counts: the window's load affects the canary's clock."""
        about = evidence(declared={**RECORD, "canary_clock_mhz": 1500.0}, signals=CAPPED)
        assert isinstance(ask(clock_low_no_reason, about), Clear)
        slow = evidence(declared={**RECORD, "canary_copy_bytes_count": 3e12}, signals=CAPPED)
        assert value_ratio(ask(clock_low_no_reason, slow), Number.MEAN) == pytest.approx(0.4)
        copyless = {name: value for name, value in RECORD.items() if "copy" not in name}
        assert isinstance(ask(clock_low_no_reason, evidence(declared=copyless, signals=CAPPED)), Unobserved)

    def test_canary_with_unknown_cap_counts_by_its_copy_alone(self) -> None:
        unseen: dict[str, Signal] = dict.fromkeys(("power_violation_ns", "power_cap_ns", "event_reasons_mask"))
        about = evidence(declared={**RECORD, "canary_clock_mhz": 1500.0}, signals=unseen)
        assert isinstance(ask(clock_low_no_reason, about), Clear)

    def test_canary_without_record_against_the_drivers_clock(self) -> None:
        """A canary below the driver's clock is found with bounds of unknown size."""
        about = evidence(declared={"canary_clock_mhz": 1727.0, "canary_record_count": 2, "canary_record_clock_mhz": 1000.0})
        answer = found(ask(clock_low_no_reason, about))
        assert {bound.ratio for bound in answer.bounds} == {None}
        assert "slower than at the driver's clock of 1980 MHz" in clock_low_no_reason.says.format(**answer.facts)

    def test_canary_without_record_below_maximum_is_a_label(self) -> None:
        """A canary below the board's maximum, at the driver's clock, is a label: some boards never reach the maximum."""
        about = evidence(declared={"canary_clock_mhz": 1725.0}, signals={"sm_clock_mhz": 1725})
        assert found(ask(clock_low_no_reason, about)).bounds == ()

    def test_canary_at_the_lock_is_clear(self) -> None:
        about = evidence(declared={"canary_clock_mhz": 1500.0}, signals={"sm_clock_mhz": 1500, "sm_clock_lock_mhz": 1500})
        assert isinstance(ask(clock_low_no_reason, about), Clear)

    def test_missing_canary_is_unobserved(self) -> None:
        assert isinstance(ask(clock_low_no_reason, evidence()), Unobserved)

    @pytest.mark.parametrize("name", RECORD)
    @pytest.mark.parametrize("nonsense", NONSENSE)
    def test_nonsense_canary_is_never_found(self, name: str, nonsense: object) -> None:
        about = replace(evidence(), declared={**RECORD, name: nonsense})  # type: ignore[dict-item]  # what a client may send
        assert not isinstance(ask(clock_low_no_reason, about), Found)

    @given(st.floats(1.0, 1e300))
    @settings(max_examples=share_of(20))
    def test_any_canary_clock_gives_a_short_sentence(self, clock_mhz: float) -> None:
        for declared in ({**RECORD, "canary_clock_mhz": clock_mhz}, {**RECORD, "canary_record_clock_mhz": clock_mhz}):
            answer = ask(clock_low_no_reason, evidence(length_s=1.0, declared=declared))
            if isinstance(answer, Found):
                assert len(clock_low_no_reason.says.format(**answer.facts)) < 240


class TestNvmlClockUntrue:
    def test_capped_product_has_an_untrue_nvml_clock(self) -> None:
        answer = found(ask(nvml_clock_untrue, evidence(signals=CAPPED, timings=stamped(1330.0))))
        assert nvml_clock_untrue.says.format(**answer.facts) == "true clock 10% below NVML's"
        assert answer.facts["off_ratio"] == pytest.approx(1485 / 1330 - 1)

    def test_uncapped_clocks_agree(self) -> None:
        assert isinstance(ask(nvml_clock_untrue, evidence(timings=stamped(1976.0))), Clear)

    def test_two_stamps_of_a_busy_window_give_the_true_clock(self) -> None:
        about = evidence(signals=CAPPED, declared={"true_clock_mhz": 1330.0, "stamped_s": 5.9})
        assert found(ask(nvml_clock_untrue, about)).facts["by"] == "the window's stamps"

    def test_clocks_of_a_window_with_idle_time_are_unobserved(self) -> None:
        idle: dict[str, Signal] = {**CAPPED, "utilization_ratio": 0.4}
        two = evidence(signals=idle, declared={"true_clock_mhz": 1330.0, "stamped_s": 5.9})
        pauses = stamped(1330.0)
        apart = evidence(signals=idle, timings=replace(pauses, took_s=pauses.took_s / 2))
        for about in (two, apart):
            assert "idled" in unobserved(ask(nvml_clock_untrue, about))

    def test_true_clock_below_a_second_is_unobserved(self) -> None:
        about = evidence(length_s=0.6, signals=CAPPED, timings=stamped(1330.0, length_s=0.6))
        assert "too short" in unobserved(ask(nvml_clock_untrue, about))

    def test_drivers_clock_is_compared_with_its_lag(self) -> None:
        # Both clocks change every 0.2 s, and the driver's is 75 ms late.
        true = stamped(1980.0)
        late = np.where((true.at_ns - BEGIN_NS) // 200_000_000 % 2 == 0, 1980.0, 1320.0)
        about = evidence(
            period_s=0.01,
            signals={"sm_clock_mhz": lambda t: 1980 if (t - 0.075) // 0.2 % 2 == 0 else 1320},
            timings=replace(true, sm_clock_mhz=late),
        )
        assert isinstance(ask(nvml_clock_untrue, about), Clear)

    def test_true_clock_without_stamps_is_unobserved(self) -> None:
        assert isinstance(ask(nvml_clock_untrue, evidence()), Unobserved)

    @pytest.mark.parametrize("name", ["true_clock_mhz", "stamped_s"])
    @pytest.mark.parametrize("nonsense", [*NONSENSE, 1e299])
    def test_nonsense_stamps_are_never_found(self, name: str, nonsense: object) -> None:
        declared = {"true_clock_mhz": 1980.0, "stamped_s": 5.0, name: nonsense}
        about = replace(evidence(), declared=declared)  # type: ignore[arg-type]  # what a client may send
        assert not isinstance(ask(nvml_clock_untrue, about), Found)

    @pytest.mark.parametrize("clocks", [[float("nan")] * 3, [-1.0, 0.0, 1e12]])
    def test_misread_stamps_are_left_out(self, clocks: list[float]) -> None:
        at_ns = BEGIN_NS + np.arange(3, dtype=np.int64) * 10_000_000
        about = evidence(timings=Timings(at_ns, np.full(3, 0.01), np.array(clocks)))
        assert isinstance(ask(nvml_clock_untrue, about), Unobserved)
