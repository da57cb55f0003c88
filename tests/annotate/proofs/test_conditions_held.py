"""Proof 3 on simulated windows: the specification's cases on clocks, and the evidence that the proof requires."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from annotate.answer import Found, Severity
from annotate.budget import Number, ProofState
from annotate.case import Case
from annotate.claims import Claim
from annotate.evidence import Evidence, Fact, Timings
from annotate.proofs.conditions_held import condition_bounds, prove
from annotate.verdict import Status
from tests.annotate.builders import BEGIN_NS, DEVICE, Signal, capped_ns, evidence
from tests.annotate.proofs.clock_status import bound_ratio, decision

Clock = Callable[[float], float]


def window(
    clock: Clock, *, length_s: float = 6.0, stamped: bool = False, declared: dict[str, Fact] | None = None, **signals: Signal
) -> Evidence:
    """Return a window with this clock; if stamped, kernels of 1 ms at 1980 MHz follow the clock."""
    timings = None
    if stamped:
        at_s, times = 0.0, []
        while at_s < length_s - 0.002:
            took_s = 1e-3 * 1980.0 / clock(at_s)
            times.append((at_s, took_s, clock(at_s + took_s / 2)))
            at_s += took_s + 5e-6
        begins, took, mhz = (np.array(column) for column in zip(*times, strict=True))
        timings = Timings(BEGIN_NS + (begins * 1e9).astype(np.int64), took, mhz)
    made = {"sm_clock_mhz": lambda t: round(clock(min(t, length_s - 1e-3))), **signals}
    return evidence(length_s=length_s, period_s=0.025, signals=made, timings=timings, declared=declared)


def toggling(t: float) -> float:
    return 1500.0 if int(max(t, 0.0)) % 2 else 1980.0


def dip(depth: float, low_s: float, high_s: float, top: float = 1980.0) -> Clock:
    return lambda t: top * (1.0 - depth) if low_s <= t < high_s else top


def capped(pause_end_s: float | None = None, pause_s: float = 0.0) -> dict[str, Signal]:
    def working(t: float) -> bool:
        return pause_end_s is None or not pause_end_s - pause_s <= t < pause_end_s

    return {
        "event_reasons_mask": lambda t: 4 if working(t) else 1,
        "power_cap_ns": capped_ns(-100.0),
        "power_violation_ns": capped_ns(-100.0),
        "power_w": lambda t: 690.0 if working(t) else 122.0,
        "utilization_ratio": lambda t: 0.97 if working(t) else 0.0,
    }


@pytest.mark.parametrize("claim", [Claim.SUSTAINED, Claim.FIXED_CLOCK])
@pytest.mark.parametrize("stamped", [True, False])
def test_toggling_clock_is_rejected(claim: Claim, *, stamped: bool) -> None:
    """A clock that alternates every second between 1500 and 1980 MHz is rejected, also as a fixed clock without a lock."""
    made = decision(window(toggling, stamped=stamped), claim)
    assert made.status is Status.REJECTED
    assert made.severities["clock-levels"] is Severity.REJECT


@pytest.mark.parametrize("stamped", [True, False])
def test_quarter_lower_middle_third_is_rejected(*, stamped: bool) -> None:
    """A clock lower by a quarter for a third is rejected: its bias is 11 % against one level and -17 % against the other."""
    assert decision(window(dip(0.25, 2.0, 4.0), stamped=stamped)).status is Status.REJECTED


def test_tenth_lower_third_is_flagged() -> None:
    """A clock lower by 10 % for a third is flagged: the nearer bias of 3.7 % stays below five tolerances."""
    about = window(dip(0.10, 2.0, 4.0), stamped=True)
    made = decision(about)
    assert made.status is Status.FLAGGED
    assert bound_ratio(made, Number.MEAN) == pytest.approx(0.067, abs=0.005)
    assert bound_ratio(made, Number.MEDIAN_AT_CLOCK) == 0.0


@pytest.mark.parametrize("stamped", [True, False])
def test_zeros_for_a_third_are_rejected(*, stamped: bool) -> None:
    """Inputs of zeros raise the capped clock for the middle third, and the estimated rise of throughput is 6.1 %."""
    about = window(lambda t: 1566.0 if 2.0 <= t < 4.0 else 1292.0, stamped=stamped, **capped())
    made = decision(about)
    assert made.status is Status.REJECTED
    throughput = made.budget.number(Number.THROUGHPUT)
    assert throughput is not None
    assert throughput.estimate is not None
    assert throughput.estimate.value_ratio == pytest.approx(0.061, abs=0.004)


def settling(t: float) -> float:
    """Return a capped clock after a pause: 6 % too fast for 0.3 s, 0.5 % up to 3 s."""
    return 1600.0 * (1.06 if t < 0.3 else 1.005 if t < 3.0 else 1.0)


@pytest.mark.parametrize("pause_s", [0.05, 0.3, 1.5, 2.4])
@pytest.mark.parametrize("length_s", [3.5, 4.0])
def test_capped_window_right_after_a_pause_is_valid(pause_s: float, length_s: float) -> None:
    """The fast seconds after a pause give a bound below the tolerance, as measured or by the model.

    The window of 4 s holds a cycle of the steady state; that of 3.5 s does not.
    """
    made = decision(window(settling, length_s=length_s, **capped(0.0, pause_s)))
    assert made.status is Status.VALID
    assert bound_ratio(made, Number.THROUGHPUT) == pytest.approx(0.0266 / length_s, abs=0.0015)


def test_capped_window_2_5_s_after_a_pause_is_valid() -> None:
    made = decision(window(lambda t: 1700.0, length_s=4.0, **capped(-2.5, 1.0)))
    assert made.status is Status.VALID
    assert bound_ratio(made, Number.THROUGHPUT) < 0.001


def test_short_capped_window_after_a_pause_is_flagged() -> None:
    """In a window of 2 s the excess is above the tolerance, and the steady state is unknown."""
    assert decision(window(lambda t: 1700.0, length_s=2.0, **capped(0.0, 0.3))).status is Status.FLAGGED


def test_uncapped_window_after_a_pause_is_its_own_reference() -> None:
    calm: dict[str, Signal] = {"power_w": lambda t: 566.0 if t >= 0 else 122.0}
    made = decision(window(lambda t: 1980.0, length_s=2.0, **calm))
    assert made.status is Status.VALID
    assert bound_ratio(made, Number.THROUGHPUT) < 0.0001


def test_steady_lock_is_shown_as_read_or_declared() -> None:
    """A lock is shown if every stamped block has the named clock and no throttle time was counted."""
    declared = prove(Case(window(lambda t: 1500.0, stamped=True, declared={"locked_mhz": 1500.0}), Claim.FIXED_CLOCK), {})
    read = prove(Case(window(lambda t: 1500.0, stamped=True, sm_clock_lock_mhz=1500), Claim.FIXED_CLOCK), {})
    assert declared.state is read.state is ProofState.SHOWN
    assert declared.says.endswith("1500 MHz declared")
    assert read.says.endswith("1500 MHz read")


@pytest.mark.parametrize(
    ("stamped", "declared", "lacks"),
    [(True, {}, "a named clock (locked_mhz=)"), (False, {"locked_mhz": 1500.0}, "stamps of the true clock")],
)
def test_fixed_clock_without_name_or_stamps_is_unproven(stamped: bool, declared: dict[str, Fact], lacks: str) -> None:
    about = window(lambda t: 1500.0, stamped=stamped, declared=declared)
    assert prove(Case(about, Claim.FIXED_CLOCK), {}).missing == (lacks,)
    assert decision(about, Claim.FIXED_CLOCK).status is Status.UNPROVEN


def test_missed_lock_breaks_the_proof() -> None:
    """A clock 1 % off the named one breaks the proof and flags; 8 % off rejects."""
    near = window(lambda t: 1485.0, stamped=True, declared={"locked_mhz": 1500.0})
    assert prove(Case(near, Claim.FIXED_CLOCK), {}).broken_by == ("locked-clock-missed",)
    assert decision(near, Claim.FIXED_CLOCK).status is Status.FLAGGED
    far = window(lambda t: 1380.0, stamped=True, declared={"locked_mhz": 1500.0})
    assert decision(far, Claim.FIXED_CLOCK).status is Status.REJECTED


def test_throttle_time_breaks_a_fixed_clock() -> None:
    about = window(lambda t: 1500.0, stamped=True, declared={"locked_mhz": 1500.0}, **capped())
    assert prove(Case(about, Claim.FIXED_CLOCK), {}).broken_by == ("power-limited",)
    assert decision(about, Claim.FIXED_CLOCK).status is Status.FLAGGED


@pytest.mark.parametrize(
    ("signals", "lacks"),
    [
        ({"sm_clock_mhz": None}, "the SM clock for half of the window"),
        ({"mem_clock_mhz": lambda t: 3201 if t < 1 else None}, "the memory clock for half of the window"),
        ({"power_limit_w": None}, "the power limit before and after the work"),
        ({"power_brake_ns": None, "event_reasons_mask": None}, "time under the power brake"),
    ],
)
def test_proof_names_its_missing_evidence(signals: dict[str, Signal], lacks: str) -> None:
    shown = prove(Case(evidence(signals=signals)), {})
    assert shown.state is ProofState.UNPROVEN
    assert lacks in shown.missing
    assert shown.says == ""


def test_burst_does_not_require_cap_time() -> None:
    unknown: dict[str, Signal] = {"power_cap_ns": None, "power_violation_ns": None, "event_reasons_mask": None}
    sustained, burst = (prove(Case(evidence(signals=unknown), claim), {}) for claim in (Claim.SUSTAINED, Claim.BURST))
    assert set(sustained.missing) - set(burst.missing) == {"time under the power cap"}


def test_quiet_window_shows_a_steady_clock() -> None:
    shown = prove(Case(evidence()), {})
    assert shown.state is ProofState.SHOWN
    assert shown.says == "clock steady to 0.1 %"


def test_changed_setting_breaks_the_proof() -> None:
    changed = {"setting-changed": Found(Severity.REJECT)}
    assert prove(Case(evidence()), changed).broken_by == ("setting-changed",)
    assert prove(Case(evidence()), {"setting-changed": Found(Severity.NOTE)}).state is ProofState.SHOWN


def test_clock_without_a_bound_has_no_figure() -> None:
    """Sync boost on a board of unknown highest clock has no bound, so the proof has no figure."""
    about = evidence(signals={"sync_boost_ns": capped_ns(3.0)}, device=replace(DEVICE, sm_clock_max_mhz=None))
    shown = prove(Case(about), {})
    assert (shown.says, shown.facts["clock_bound_ratio"]) == ("clock not steady", None)


def test_every_condition_gives_bounds_under_its_rule() -> None:
    troubled: dict[str, Signal] = {
        "sw_thermal_ns": capped_ns(2.0, 0.5), "thermal_violation_ns": capped_ns(2.0, 0.5), "power_brake_ns": capped_ns(4.0),
        "sync_boost_ns": capped_ns(3.0), "mem_clock_mhz": lambda t: 2201 if t > 3 else 3201,
        "pcie_width_count": lambda t: 8 if t > 3.5 else 16, "event_reasons_mask": lambda t: 8 if t > 5 else 0,
    }  # fmt: skip
    canary: dict[str, Fact] = {"canary_clock_mhz": 1600.0, "canary_record_clock_mhz": 1980.0, "canary_record_count": 9,
                               "canary_copy_bytes_count": 3e12, "canary_record_copy_bytes_count": 4e12}  # fmt: skip
    found = condition_bounds(Case(evidence(signals=troubled)))
    assert {bound.rule for bound in found} >= {
        "throttle-thermal", "throttle-hw-slowdown", "throttle-power-brake", "sync-boost-limited", "mem-clock-change",
        "numa-pcie-affinity",
    }  # fmt: skip
    slow = {bound.rule: bound for bound in condition_bounds(Case(evidence(declared=canary)))}
    assert slow["clock-low-no-reason"].ratio == pytest.approx(1.0 / 3.0 + 0.002)
