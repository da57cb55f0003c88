"""Tests of the rules about the conditions that a window and its baseline should share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from annotate.budget import Bound, Group, Number
from annotate.claims import Claim
from annotate.evidence import Fact, Host
from annotate.rule import Answer, Clear, Found, Rule, Severity, Unobserved
from annotate.rules import comparison, comparison_design
from annotate.rules.comparison import boot_changed, clock_between_arms, hardware_mismatch, software_mismatch
from tests.annotate.builders import DEVICE, capped_ns, evidence
from tests.annotate.occurrences.comparison import compared, times
from tests.annotate.rules.asking import ask


def severity(answer: Answer) -> Severity | None:
    return answer.severity if isinstance(answer, Found) else None


@pytest.mark.parametrize("rule", [*comparison.RULES, *comparison_design.RULES], ids=lambda rule: rule.name)
def test_comparison_rules_without_a_baseline_are_unobserved(rule: Rule) -> None:
    answer = ask(rule, evidence(declared={"variants_count": 3}))
    assert answer == Unobserved("the window was not compared with another one")


class TestHardwareMismatch:
    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            ({"name": "NVIDIA H100 PCIe"}, Severity.REJECT),
            ({"power_limit_w": 600.0}, Severity.REJECT),
            ({"memory_total_bytes": 85_000_000_000}, Severity.REJECT),
            ({"parent_uuid": "GPU-board", "uuid": "MIG-1"}, Severity.REJECT),
            ({"uuid": "GPU-another"}, Severity.FLAG),
            ({"vbios_version": "96.00"}, None),  # not known for the baseline
            ({"ecc_mode": False}, Severity.FLAG),
            ({"power_limit_w": 700.3}, None),
            ({"pci_bus_id": "00000000:01:00.0"}, None),
        ],
    )
    def test_hardware_mismatch_severity_by_kind(self, change: dict[str, object], expected: Severity | None) -> None:
        """Another model, memory size, form or limit rejects, and another board or ECC mode flags."""
        about = compared(evidence(device=replace(DEVICE, **change)), evidence())  # type: ignore[arg-type]
        assert severity(ask(hardware_mismatch, about)) is expected

    def test_hardware_difference_names_both_values(self) -> None:
        answer = ask(hardware_mismatch, compared(evidence(device=replace(DEVICE, power_limit_w=600.0)), evidence()))
        assert isinstance(answer, Found)
        assert answer.facts["differing"] == "power limit 700 W -> 600 W"

    def test_same_gpu_is_clear_and_unknown_gpu_unobserved(self) -> None:
        assert isinstance(ask(hardware_mismatch, compared(evidence(), evidence())), Clear)
        assert isinstance(ask(hardware_mismatch, compared(evidence(device=None), evidence())), Unobserved)


class TestSoftwareMismatch:
    @pytest.mark.parametrize(
        ("before", "after", "expected"),
        [
            ({"torch_version": "2.5.0"}, {"torch_version": "2.6.0"}, Severity.FLAG),
            ({"cudnn_tf32": True}, {"cudnn_tf32": False}, Severity.FLAG),
            ({"environment": "A=1;B=2"}, {"environment": "A=1;B=3"}, Severity.FLAG),
            ({"environment": "A=1"}, {"environment": ""}, Severity.FLAG),
            ({"cache": "cold"}, {"cache": "warm"}, Severity.FLAG),
            ({"torch_version": "2.5.0"}, {"torch_version": "2.5.0"}, None),
            ({"torch_version": "2.5.0"}, {}, None),
            ({"environment": 7}, {"environment": "A=1"}, None),
        ],
    )
    def test_software_mismatch_flags_known_differences(
        self, before: dict[str, Fact], after: dict[str, Fact], expected: Severity | None
    ) -> None:
        """A version, flag or variable that is known for both windows and differs is flagged."""
        assert severity(ask(software_mismatch, compared(evidence(declared=after), evidence(declared=before)))) is expected

    def test_driver_differing_in_its_last_number_is_a_note(self) -> None:
        last = compared(evidence(device=replace(DEVICE, driver_version="580.159.05")), evidence())
        assert severity(ask(software_mismatch, last)) is Severity.NOTE
        first = compared(evidence(device=replace(DEVICE, driver_version="570.10.01")), evidence())
        assert severity(ask(software_mismatch, first)) is Severity.FLAG

    def test_unknown_software_is_unobserved(self) -> None:
        assert isinstance(ask(software_mismatch, compared(evidence(device=None), evidence(device=None))), Unobserved)


class TestBootChanged:
    @pytest.mark.parametrize("claim", Claim)
    def test_another_boot_is_flagged_under_every_claim(self, claim: Claim) -> None:
        about = compared(evidence(host=Host(boot_id="later")), evidence())
        assert severity(ask(boot_changed, about, claim)) is Severity.FLAG

    def test_change_of_the_machine_is_named(self) -> None:
        about = compared(evidence(host=Host(boot_id="b", hostname="two")), evidence(host=Host(boot_id="a", hostname="one")))
        answer = ask(boot_changed, about)
        assert isinstance(answer, Found)
        assert answer.facts["happened"] == "the machine changed"

    def test_reset_energy_counter_shows_a_driver_reload(self) -> None:
        about = compared(evidence(signals={"energy_j": lambda t: 10.0 + t}), evidence())
        answer = ask(boot_changed, about)
        assert isinstance(answer, Found)
        assert "driver" in str(answer.facts["happened"])

    def test_same_boot_is_clear_and_unknown_boot_unobserved(self) -> None:
        same = evidence(signals={"energy_j": lambda t: 90_000.0 + t})
        assert isinstance(ask(boot_changed, compared(same, evidence())), Clear)
        assert isinstance(ask(boot_changed, compared(evidence(host=Host()), evidence())), Unobserved)


def pair_bound(answer: Answer) -> Bound | None:
    if not isinstance(answer, Found):
        return None
    (bound,) = answer.bounds
    assert (bound.number, bound.group, answer.severity) == (Number.RATIO, Group.PAIR, Severity.NOTE)
    return bound


class TestClockBetweenArms:
    @pytest.mark.parametrize(("change", "expected"), [(0.0, None), (0.008, None), (0.02, 0.02), (0.05, 0.05)])
    def test_clock_between_bounds_the_effect_of_the_clock(self, change: float, expected: float | None) -> None:
        """A clock 2 % lower makes a kernel 2 % longer; with two constant clocks, the bound adds no error."""
        slow = evidence(timings=times(2e-3 * (1 + change), clock_mhz=1400 / (1 + change)))
        found = pair_bound(ask(clock_between_arms, compared(slow, evidence(timings=times(2e-3, clock_mhz=1400.0)))))
        assert (found.ratio if found else None) == (expected and pytest.approx(expected, abs=1e-4))
        if found is not None:
            assert found.estimate is not None
            assert found.estimate.value_ratio == pytest.approx(change)
            assert found.can_reject

    def test_slow_swing_widens_the_interval_of_the_clock(self) -> None:
        steady, restless = (times(2e-3, clock_mhz=mhz) for mhz in (1400.0, 1376.0))
        assert restless.sm_clock_mhz is not None
        swing = 0.04 * np.sin(np.linspace(0.0, 5.0, len(restless.at_ns)))
        restless = replace(restless, sm_clock_mhz=1376.0 * (1.0 + swing - swing.mean()))
        assert pair_bound(ask(clock_between_arms, compared(evidence(timings=restless), evidence(timings=steady)))) is None
        calm = times(2e-3 * 1.017, clock_mhz=1376.0)
        assert pair_bound(ask(clock_between_arms, compared(evidence(timings=calm), evidence(timings=steady)))) is not None

    def test_clock_between_under_a_cap_rejects_unless_sustained(self) -> None:
        """Under a steady cap a lower clock does not reject under ``sustained``: the kernel may cause the lower clock."""
        capped = {"power_cap_ns": capped_ns(), "power_violation_ns": capped_ns()}
        slow = evidence(timings=times(2.1e-3, clock_mhz=1300.0), signals=capped)
        about = compared(slow, evidence(timings=times(2e-3, clock_mhz=1400.0), signals=capped))
        for claim, can_reject in ((Claim.SUSTAINED, False), (Claim.FIXED_CLOCK, True)):
            found = pair_bound(ask(clock_between_arms, about, claim))
            assert found is not None
            assert found.can_reject is can_reject

    @pytest.mark.parametrize(("gauge_mhz", "expected"), [(1980, None), (1935, None), (1700, 1980 / 1700 - 1 + 0.03)])
    def test_gauge_differences_count_above_three_percent(self, gauge_mhz: int, expected: float | None) -> None:
        found = pair_bound(ask(clock_between_arms, compared(evidence(signals={"sm_clock_mhz": gauge_mhz}), evidence())))
        assert (found.ratio if found else None) == (expected and pytest.approx(expected))

    def test_no_clock_is_unobserved(self) -> None:
        about = compared(evidence(signals={"sm_clock_mhz": None}), evidence())
        assert isinstance(ask(clock_between_arms, about), Unobserved)
