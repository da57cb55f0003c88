"""Comparison of numbers of two machines at one clock, and one-line refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from annotate.budget import Number
from annotate.compare.decision import Comparison, Decision, markdown
from annotate.compare.two_machines import MachineTerms
from annotate.compare.two_runs import of_runs
from annotate.evidence import Evidence, Fact, Host
from annotate.judge import judge
from tests.annotate.builders import DEVICE, evidence
from tests.annotate.compare.test_decision import stamped
from tests.annotate.occurrences.comparison import times
from tests.truth_windows import truth_windows

HERE = evidence(timings=stamped(2e-3, 1490.0), host=Host(boot_id="here"))
SPREAD_RATIO = 0.0034


def elsewhere(about: Evidence, **of_device: Any) -> Evidence:
    assert about.device is not None
    device = replace(about.device, **({"uuid": "GPU-2"} | of_device))
    return replace(about, device=device, host=replace(about.host, boot_id="there"))


def there(took_s: float = 2e-3, mhz: float = 1430.0, **of_device: Any) -> Evidence:
    return elsewhere(evidence(timings=stamped(took_s, mhz, seed=3)), **of_device)


def compared(b: Evidence, a: Evidence = HERE, **terms: Any) -> Comparison:
    return of_runs(a, b, terms=MachineTerms(**terms))


def refusal(found: Comparison) -> str:
    (line,) = [reason for reason in found.reasons if reason.startswith("not compared at one clock")]
    return line


class TestDecision:
    @pytest.mark.parametrize(
        ("change", "decision"),
        [(0.0, Decision.SAME), (-0.02, Decision.FASTER), (0.02, Decision.SLOWER), (0.004, Decision.INCONCLUSIVE)],
    )
    def test_machines_compare_between_their_clocks(self, change: float, decision: Decision) -> None:
        """Clocks that differ by 4 % change the raw times; at one clock only the difference of the code is left."""
        found = compared(there(2e-3 * (1 + change)))
        assert found.decision is decision
        assert found.ratio is not None
        assert found.ratio.centre == pytest.approx(1 + change, abs=0.001)
        at = found.one_clock
        assert at is not None
        assert (at.a_mhz, at.b_mhz) == (1462.0, 1462.0)
        assert at.card_spread_ratio == pytest.approx(math.hypot(SPREAD_RATIO, 0.002), rel=0.05)
        assert "two machines, at 1462 MHz" in str(found)
        assert "between cards 0.40 %" in str(found)

    def test_clock_far_from_a_card_widens_the_interval(self) -> None:
        """A common clock far from one card's clock widens the interval, because a kernel's exponents differ between cards."""
        far = compared(there(), clock_mhz=1500.0)
        assert far.one_clock is not None
        assert far.one_clock.card_spread_ratio == pytest.approx(0.0058, rel=0.02)
        assert far.decision is Decision.INCONCLUSIVE

    def test_interval_holds_the_spread_between_cards(self) -> None:
        """The interval of two quiet runs includes the full spread between cards."""
        found = compared(there())
        assert found.ratio is not None
        half = math.log(found.ratio.high / found.ratio.centre)
        assert SPREAD_RATIO < half < 2 * SPREAD_RATIO

    def test_untimed_work_widens_the_interval_in_full(self) -> None:
        """Busy time of 0.5 s after the last call may belong to the timed work, so it widens the interval in full."""
        early = elsewhere(evidence(timings=stamped(2e-3, 1430.0, seed=3, length_s=5.5)))
        found = compared(early)
        at = found.one_clock
        assert found.decision is Decision.INCONCLUSIVE
        assert at is not None
        assert at.a_bound_ratio == 0.0
        assert at.b_bound_ratio is not None
        assert at.b_bound_ratio > 0.5 / 6.0 - 0.03

    def test_given_spread_replaces_the_recorded_spread(self) -> None:
        found = compared(there(2e-3 * 1.02), card_spread_ratio=0.05)
        assert found.decision is Decision.INCONCLUSIVE
        assert "between cards 5.00 %" in str(found)

    def test_shorter_windows_widen_the_interval(self) -> None:
        """A shorter window has a larger repeatability, which widens the interval."""
        brief = elsewhere(evidence(timings=stamped(2e-3, 1430.0, seed=3, length_s=2.0), length_s=2.0))
        found = [compared(b) for b in (there(), brief)]
        long_run, short_run = (each.one_clock.b_repeatability_ratio for each in found if each.one_clock is not None)
        assert long_run is not None
        assert short_run is not None
        assert short_run > long_run
        widths = [each.ratio.high - each.ratio.low for each in found if each.ratio is not None]
        assert widths[1] > widths[0]

    def test_disturbances_of_a_window_widen_the_interval(self) -> None:
        """The interval includes the verdict's bound on the first window's median at one clock."""
        recorded = truth_windows()["neighbour-late-gemm4k"]
        budget = judge(recorded.before).budget
        assert budget is not None
        expected = budget.number(Number.MEDIAN_AT_CLOCK)
        found = of_runs(recorded.before, elsewhere(recorded.after))
        assert found.one_clock is not None
        assert expected is not None
        assert (found.one_clock.a_bound_ratio or 0.0) == pytest.approx(expected.bound_ratio)
        assert found.one_clock.a_bound_ratio
        assert found.ratio is not None
        assert math.log(found.ratio.high / found.ratio.centre) > SPREAD_RATIO + found.one_clock.a_bound_ratio

    def test_another_boot_of_one_card_is_another_machine(self) -> None:
        found = compared(there(uuid=DEVICE.uuid))
        assert found.decision is Decision.SAME
        assert found.one_clock is not None

    def test_one_card_in_one_boot_needs_no_spread(self) -> None:
        found = of_runs(HERE, evidence(timings=stamped(2e-3, 1480.0, seed=3), host=Host(boot_id="here")))
        assert found.one_clock is None
        assert found.design.startswith("sequential, corrected to")

    def test_different_conditions_are_listed_before_the_times(self) -> None:
        other = there(driver_version="570.1", power_limit_w=500.0)
        found = compared(
            replace(other, declared={"torch_version": "2.9", "cudnn_tf32": True}),
            replace(HERE, declared={"torch_version": "2.8", "cudnn_tf32": False}),
        )
        assert found.decision is Decision.SAME
        differing = {condition.name for condition in found.conditions if condition.differs}
        assert {"GPU", "driver", "power limit", "torch", "cuDNN's TF32", "boot"} <= differing
        assert str(found).index("differs: driver") < str(found).index("time at the same clock")


class TestRefusal:
    def test_raw_numbers_of_two_machines_stay_incomparable(self) -> None:
        found = of_runs(evidence(timings=times(2e-3)), elsewhere(evidence(timings=times(2e-3, seed=1))))
        assert found.decision is Decision.INCOMPARABLE
        assert any(reason.startswith("hardware-mismatch") for reason in found.reasons)
        assert refusal(found) == "not compared at one clock: a has no number at one clock: nothing stamped the clock"

    @pytest.mark.parametrize(
        ("other", "terms", "says"),
        [
            (there(name="NVIDIA H100"), {}, "two models of GPU (model H200 -> H100)"),
            (there(mig_mode=True), {}, "two models of GPU (MIG mode off -> on)"),
            (elsewhere(evidence(timings=times(2e-3, clock_mhz=1975.0))), {}, "was constant at 1975 MHz"),
            (
                there(),
                {"clock_mhz": 900.0},
                "at 1492 MHz, so its time at 900 MHz is unknown (use --clock 1492 for that clock)",
            ),
            (elsewhere(evidence()), {}, "b has no number at one clock: no times"),
            (there(name="NVIDIA H100"), {"is_ratio": True}, "no reference clock of NVIDIA H100 is on record"),
        ],
    )
    def test_refusal_is_one_line_with_its_reason(self, other: Evidence, terms: dict[str, Any], says: str) -> None:
        found = compared(other, **terms)
        assert found.decision in (Decision.INCOMPARABLE, Decision.INCONCLUSIVE)
        assert found.one_clock is None
        assert says in refusal(found)
        assert "\n" not in refusal(found)

    @pytest.mark.parametrize("fact", [("cache", "cold", "warm"), ("timer", "events", "host"), ("input_bytes", 1024, 4096)])
    def test_differently_taken_times_are_refused(self, fact: tuple[str, Fact, Fact]) -> None:
        a, b = (replace(each, declared={fact[0]: value}) for each, value in zip((HERE, there()), fact[1:], strict=True))
        assert "two different numbers" in refusal(compared(b, a))

    def test_rejected_run_is_not_compared_between_machines(self) -> None:
        hot = {"event_reasons_mask": 0x40, "hw_thermal_ns": lambda t: int(max(0, t) * 1e9)}
        found = compared(elsewhere(evidence(timings=stamped(2e-3, 1430.0), signals=hot)))
        assert found.decision is Decision.INCOMPARABLE
        assert any(reason.startswith("the second run is rejected") for reason in found.reasons)

    @pytest.mark.parametrize("took_s", [0.0, math.nan, math.inf, -1.0, 1e-300, 1e300])
    def test_impossible_times_are_refused(self, took_s: float) -> None:
        """Files with impossible times still give an answer as text and plain data."""
        wrong = stamped(2e-3, 1430.0)
        found = compared(elsewhere(evidence(timings=replace(wrong, took_s=np.full(len(wrong.took_s), took_s)))))
        assert found.decision in (Decision.INCOMPARABLE, Decision.INCONCLUSIVE)
        assert found.decision.value.upper() in str(found)
        assert found.to_dict()["one_clock"] is None

    def test_no_spread_on_record_is_inconclusive(self) -> None:
        a, b = (replace(each, device=replace(each.device, name="NVIDIA B300")) for each in (HERE, there()) if each.device)
        found = compared(b, a, clock_mhz=1450.0)
        assert (found.decision, found.design) == (Decision.INCONCLUSIVE, "two machines, at 1450 MHz")
        assert any("no spread between cards" in reason for reason in found.reasons)
        assert compared(b, a, clock_mhz=1450.0, card_spread_ratio=0.002).decision is Decision.SAME


class TestClocks:
    def test_constant_clocks_compare_at_that_clock(self) -> None:
        """Without a fitted exponent, a clock difference of 0.5 % widens the interval by the unknown exponent."""
        light = {"dram_activity_ratio": 0.2}  # more memory traffic would repeat less well
        a = evidence(timings=times(2e-3, clock_mhz=1980.0), signals=light)
        near, same = (
            elsewhere(evidence(timings=times(2e-3, clock_mhz=mhz, seed=1), signals=light)) for mhz in (1971.0, 1980.0)
        )
        found = [compared(b, a, clock_mhz=1980.0) for b in (near, same)]
        assert found[1].decision is Decision.SAME
        assert found[0].decision is Decision.INCONCLUSIVE
        widths = [each.ratio.high - each.ratio.low for each in found if each.ratio is not None]
        assert widths[0] > widths[1] + 0.002

    def test_redacted_names_do_not_make_two_cards_one(self) -> None:
        """Redacted names of two files can be equal for different cards."""
        b = replace(there(uuid=DEVICE.uuid), host=HERE.host)
        found = compared(b, is_identified=False)
        assert found.one_clock is not None
        assert not [each for each in found.conditions if each.name in ("GPU", "boot")]
        assert any("redacted" in reason for reason in found.reasons)


class TestRatioOfModels:
    def test_ratio_of_two_models_is_never_the_same(self) -> None:
        """A ratio of two models is FASTER at half of the time, and INCONCLUSIVE instead of SAME at equal times."""
        for took_s, decision in ((1e-3, Decision.FASTER), (2e-3, Decision.INCONCLUSIVE)):
            found = compared(there(took_s, name="NVIDIA H100"), is_ratio=True, clock_mhz=1450.0, card_spread_ratio=0.003)
            assert found.decision is decision
            assert found.one_clock is not None
            assert found.one_clock.card_spread_ratio == pytest.approx(0.006)
            assert any("a ratio of two models" in reason for reason in found.reasons)

    def test_set_clock_serves_a_model_without_a_recorded_one(self) -> None:
        """The ratio takes each model at its own clock: the set one of the H100, the recorded one of the H200."""
        found = compared(there(name="NVIDIA H100"), is_ratio=True, reference_clock_mhz={"NVIDIA H100": 1450.0})
        assert found.one_clock is not None
        assert (found.one_clock.a_mhz, found.one_clock.b_mhz) == (1500.0, 1450.0)


class TestFaces:
    def test_plain_data_and_markdown_hold_the_numbers(self) -> None:
        found = compared(there(driver_version="570|1"))
        data = found.to_dict()["one_clock"]
        assert (data["a_mhz"], data["card_spread_ratio"]) == (1462.0, pytest.approx(0.0040, rel=0.02))
        shown = markdown(found)
        assert shown.startswith("**SAME** b against a")
        assert "| driver | 580.159.04 | 570\\|1 |" in shown
        assert "between cards 0.40 %" in shown

    def test_recorded_launches_are_printed_with_the_ratio(self) -> None:
        """Runs with declared launches print the GPU's share of each run, on one machine or two."""
        launches: dict[str, Fact] = {"timer": "events", "timer_overhead_s": 1e-6, "issue_s": 9e-6, "starved_ratio": 0.0}
        a, b = (replace(each, declared=launches) for each in (HERE, there()))
        for found in (compared(b, a), of_runs(a, replace(a, declared=launches))):
            assert str(found).count("GPU's share 99.9 %: 1 µs of") == 2
            assert found.to_dict()["a_launch_share"]["issue_s"] == 9e-6
        assert compared(there()).to_dict()["a_launch_share"] is None


KERNELS = ("nothing-gemm4k", "stall-0.1-gemm4k", "periodic-10ms-att", "pause-0.7-att", "grows-9%-gemm4k", "litter-att")


@pytest.mark.parametrize("name", KERNELS)
def test_recorded_work_agrees_as_if_on_two_cards(name: str) -> None:
    """Recorded windows of an H200, compared as two machines, are SAME or INCONCLUSIVE; a slow-down of 3 % is SLOWER."""
    recorded = truth_windows()[name]
    found = of_runs(recorded.before, elsewhere(recorded.after))
    assert found.decision in (Decision.SAME, Decision.INCONCLUSIVE)
    assert found.ratio is not None
    assert abs(found.ratio.centre - 1.0) < 0.003
    assert recorded.after.timings is not None
    slower = replace(recorded.after, timings=replace(recorded.after.timings, took_s=1.03 * recorded.after.timings.took_s))
    assert of_runs(recorded.before, elsewhere(slower)).decision is Decision.SLOWER
