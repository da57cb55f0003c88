"""Variants of the windows that fooled the judge about conditions, records, gauges and neighbours, and their honest counterparts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from annotate.evidence import Evidence, Lane, Times, Values, signals
from annotate.judge import judge
from annotate.verdict import Status, Verdict
from tests.proof.fooling_stage import (
    WORK,
    Act,
    Edit,
    Setting,
    act,
    beside,
    column,
    listed,
    recorded,
    without,
)
from tests.proof.testified import Variant

VALID = Status.VALID
_EVER_S = 1e3


def throughout(level: str, value: float) -> Edit:
    return Edit(begin_s=-_EVER_S, end_s=_EVER_S, level=level, value=value)


def reach(verdict: Verdict, number: str = "throughput") -> float:
    """Return the bound plus the repeatability of a number from the verdict, infinite without a bound."""
    assert verdict.budget is not None
    found = next(each for each in verdict.budget.numbers if each.number.value == number)
    if found.bound_ratio is None:
        return float("inf")
    return found.bound_ratio + (found.repeatability.ratio or 0.0)


def is_covered(verdict: Verdict, truth: float, number: str = "throughput") -> bool:
    """Return True if the window is rejected, unproven, or flagged with bound plus repeatability at least the true deviation."""
    if verdict.status is VALID:
        return False
    return verdict.status is not Status.FLAGGED or reach(verdict, number) >= abs(truth)


# --- the record ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "edit", "power_w", "clock_mhz"),
    [
        ("attention", throughout("slower", 1.06), 690.0, 1640.0),
        ("decoding", throughout("slower", 0.93), 430.0, 1976.0),
        ("fp32 gemm", throughout("clock", 0.96), 571.0, 1978.0),
        ("softmax", throughout("slices", 0.2), 528.0, 1976.0),
    ],
)
def test_steady_disturbance_is_found_by_the_record(work: str, edit: Edit, power_w: float, clock_mhz: float) -> None:
    """A disturbance of the whole window raises ``record-shift`` if a record of the same work exists."""
    found = act(Setting(work=WORK[work], variant=Variant.TIMES, length_s=5.0), [edit])
    evidence = replace(found.evidence(), record=recorded(found, power_w=power_w, clock_mhz=clock_mhz))
    assert judge(found.evidence()).status is VALID or abs(found.truth["throughput"]) < 0.01 or edit.level == "slices"
    verdict = judge(evidence)
    assert verdict.finding("record-shift").severity in ("flag", "reject")
    assert is_covered(verdict, found.truth["mean"], "mean")


@pytest.mark.parametrize("work", ["attention", "decoding", "softmax", "fp32 gemm"])
@pytest.mark.parametrize("variant", [Variant.TIMES, Variant.STAMPED, Variant.PLAIN])
def test_window_like_its_record_stays_valid(work: str, variant: Variant) -> None:
    found = act(Setting(work=WORK[work], variant=variant, length_s=5.0))
    mhz = float(np.mean(found.ran.iterations.clock_mhz))
    record = recorded(found, power_w=500.0, clock_mhz=mhz)
    verdict = judge(replace(found.evidence(), record=record))
    assert verdict.status is VALID
    assert verdict.budget is not None
    assert verdict.budget.scope.kind == ("itself" if variant is Variant.PLAIN else "record")


def test_driver_clock_below_the_record_is_not_valid() -> None:
    """A driver's clock 15 % below the record's shows a lower clock without stamps."""
    found = act(Setting(work=WORK["softmax"], stamped=False), [throughout("clock", 0.85)])
    record = recorded(found, power_w=528.0, clock_mhz=1976.0)
    assert judge(replace(found.evidence(), record=record)).status is not VALID


# --- gauges ----------------------------------------------------------------------------------------------------------------


def freeze_page(evidence: Evidence, from_s: float) -> Evidence:
    """Return the evidence with every fast-lane signal constant from this time on."""

    def frozen(at_ns: Times, values: Values) -> Values:
        last = values[max(0, int(np.searchsorted(at_ns, from_s * 1e9)) - 1)]
        return np.where(at_ns < from_s * 1e9, values, last)

    for name in signals(Lane.FAST):
        if name in evidence.trace.columns:
            evidence = column(evidence, name, frozen)
    return evidence


def test_frozen_page_against_energy_is_not_valid() -> None:
    """The clock falls by 20 % at 1.5 s of 6 s, and the driver's page is frozen from 1.3 s on."""
    found = act(Setting(work=WORK["softmax"], length_s=6.0), [Edit(begin_s=1.5, end_s=_EVER_S, level="clock", value=0.8)])
    assert judge(freeze_page(without(found.evidence(), "dense_power"), 1.3)).status is not VALID


def test_frozen_page_with_steady_energy_is_valid() -> None:
    found = act(Setting(work=WORK["softmax"], length_s=6.0))
    assert judge(freeze_page(found.evidence(), 1.0)).status is VALID


# --- the rate without times ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "begin_s", "end_s", "ratio"),
    [("fp32 gemm", 0.4, 6.0, 0.95), ("decoding", 3.4, 6.0, 0.9), ("softmax", 2.0, 3.6, 0.85)],
)
def test_clock_drop_missing_from_the_page_is_found_by_power(work: str, begin_s: float, end_s: float, ratio: float) -> None:
    edit = Edit(begin_s=begin_s, end_s=end_s, level="clock", value=ratio)
    found = act(Setting(work=WORK[work], length_s=6.0, stamped=False), [edit])
    evidence = column(found.evidence(), "sm_clock_mhz", lambda at_ns, mhz: np.full_like(mhz, 1980.0))
    assert is_covered(judge(evidence), found.truth["throughput"])


def test_slow_memory_is_found_by_traffic() -> None:
    """Work that is 10 % slower from 4 s of 9 s on, at the same power and clock, is found."""
    found = act(Setting(work=WORK["decoding"], length_s=9.0), [Edit(begin_s=4.0, end_s=_EVER_S, level="slower", value=1.1)])

    def fallen(at_ns: Times, share: Values) -> Values:
        return np.where((at_ns > 4.2e9) & (share > 0.3), share / 1.1, share)

    evidence = column(found.evidence(), "dram_activity_ratio", fallen)
    assert is_covered(judge(evidence), found.truth["throughput"])


def spun(begin_s: float, end_s: float) -> tuple[Edit, Edit]:
    return (
        Edit(begin_s=begin_s, end_s=end_s, level="slower", value=1e6),
        Edit(begin_s=begin_s, end_s=end_s, level="load", value=0.2),
    )


def test_spinning_under_a_cap_is_found_by_power() -> None:
    edits = [edit for at_s in (0.9, 2.2, 4.7) for edit in spun(at_s, at_s + 0.16)]
    found = act(Setting(work=WORK["gemm"], length_s=6.0), edits)
    assert is_covered(judge(found.evidence()), found.truth["throughput"])


def stalls(begins_s: np.ndarray, length_s: float) -> list[Edit]:
    return [Edit(begin_s=float(at_s), end_s=float(at_s) + length_s, level="working", value=0.0) for at_s in begins_s]


def test_pauses_absent_before_the_window_are_not_a_rhythm() -> None:
    """Pauses of 70 ms every half second inside the window alone are covered, without the power record."""
    found = act(Setting(work=WORK["softmax"], length_s=9.0, stamped=False), stalls(0.3 + 0.5 * np.arange(17), 0.07))
    assert is_covered(judge(without(found.evidence(), "dense_power")), found.truth["throughput"])


def test_pauses_since_the_warm_up_are_valid() -> None:
    """Pauses of 70 ms that also occur before the window are part of the work, such as data loading."""
    always = stalls(-5.9 + 0.5 * np.arange(29), 0.07)
    found = act(Setting(work=WORK["softmax"], length_s=9.0, stamped=False), (), always)
    assert judge(found.evidence()).status is VALID


# --- edges of the clock ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("low_s", [0.06, 0.15, 0.25])
def test_ramp_at_the_window_start_is_bounded(low_s: float) -> None:
    edits = [
        Edit(begin_s=0.0, end_s=low_s, level="clock", value=0.4),
        Edit(begin_s=-4.0, end_s=0.0, level="working", value=0.0),
    ]
    found = act(Setting(work=WORK["fp32 gemm"], length_s=2.0, stamped=False), edits)
    assert reach(judge(without(found.evidence(), "dense_power"))) >= abs(found.truth["throughput"])


# --- neighbours ------------------------------------------------------------------------------------------------------------


def drawing(found: Act, use: float | None) -> Status:
    return judge(listed(found.evidence(), beside(lambda at_s: use, name="Xwayland", graphics=True))).status


def test_display_with_unknown_utilisation_is_flagged() -> None:
    """A display process without a utilisation reading flags the window; a reading of 0 leaves the window valid."""
    found = act(Setting(work=WORK["softmax"]))
    assert drawing(found, None) is Status.FLAGGED
    assert drawing(found, 0.0) is VALID


@pytest.mark.parametrize(("slices", "status"), [(0.0, VALID), (0.3, None)])
def test_record_shows_the_share_of_a_listed_neighbour(slices: float, status: Status | None) -> None:
    """With a record, a window with a listed neighbour at utilisation 0 is valid only if the neighbour took no time slices."""
    edits = [throughout("slices", slices)] if slices else []
    found = act(Setting(work=WORK["decoding"], variant=Variant.TIMES, length_s=5.0), edits)
    evidence = listed(found.evidence(), beside(lambda at_s: 0.0, memory_bytes=9_000_000_000))
    verdict = judge(replace(evidence, record=recorded(found, power_w=430.0, clock_mhz=1976.0)))
    assert (verdict.status is VALID) is (status is VALID)
    assert reach(verdict, "mean") >= abs(found.truth["mean"]) or verdict.status is Status.REJECTED
