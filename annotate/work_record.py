"""The record of one work on one card: the key of the record, and the numbers that each VALID window adds.

A record supplies facts that one window cannot show: a bound for an unbounded cause, the difference between windows, and
the steady clock.  A record never lowers a bound that rests on other facts, so regular pauses are not recorded.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np

from annotate.budget import Number
from annotate.budget_data import ClaimFacts
from annotate.case import Case
from annotate.derived.claimed_work import is_untrusted
from annotate.derived.idle_gaps import SAMPLE_NS
from annotate.derived.settings_throughout import power_limit_w
from annotate.derived.steady_reference import steady_reference
from annotate.evidence import Evidence, RecordedWindow, WorkRecord
from annotate.evidence.circumstances import RECORD_COUNT
from annotate.times.durations import usable
from annotate.verdict import Status, Verdict

DIGEST_LENGTH = 32  # hexadecimal: 128 bits, without collisions in practice


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkKey:
    """The facts that the windows of one record share.

    The key includes the whole policy.  A window that is VALID at a wide tolerance, or with an accepted hazard, is not a
    reference for a stricter policy.
    """

    label: str
    program: str
    device_uuid: str
    driver_version: str
    power_limit_w: float
    policy: Mapping[str, Any]
    claim_facts: ClaimFacts

    @property
    def digest(self) -> str:
        """Return the key as text of fixed length."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:DIGEST_LENGTH]


def work_key(evidence: Evidence, policy: Mapping[str, Any]) -> WorkKey | None:
    """Return the key of a window's record, or None if any fact of the key is unknown, because two unknowns may differ."""
    window, device, limit_w = evidence.window, evidence.device, power_limit_w(evidence)
    if not window.label or not window.program or device is None or not device.driver_version or not limit_w:
        return None
    return WorkKey(
        label=window.label,
        program=window.program,
        device_uuid=device.uuid,
        driver_version=device.driver_version,
        power_limit_w=float(limit_w),
        policy=dict(policy),
        claim_facts=ClaimFacts.of(evidence.declared),
    )


def recorded_window(evidence: Evidence, verdict: Verdict) -> RecordedWindow | None:
    """Return the numbers that a VALID window adds to the record, or None for another status, untrusted code, or no number."""
    if verdict.status is not Status.VALID or verdict.budget is None or is_untrusted(evidence):
        return None
    values = {each.number: each.value for each in verdict.budget.numbers}
    at_clock = verdict.budget.number(Number.MEDIAN_AT_CLOCK)
    found = RecordedWindow(
        calls_rate_hz=_amount(values.get(Number.THROUGHPUT)),
        mean_s=_amount(values.get(Number.MEAN)),
        median_s=_amount(values.get(Number.MEDIAN)),
        median_at_clock_s=_amount(values.get(Number.MEDIAN_AT_CLOCK)),
        steady_clock_mhz=_steady_clock_mhz(evidence),
        clock_mhz=at_clock.clock_mhz if at_clock is not None else None,
    )
    return replace(found, power_w=_power_w(evidence)) if found != RecordedWindow() else None


def work_record(
    windows: Sequence[RecordedWindow],
    *,
    same_ratio: Annotated[float, "stamps of a constant clock differ by less; by default no smaller bound is printed"] = 1e-3,
) -> WorkRecord | None:
    """Return the record of these windows, oldest first, or None for fewer than five.

    The record keeps only medians at the clock that most windows share; on a tie, the newest clock wins.
    """
    if len(windows) < RECORD_COUNT:
        return None
    clocks_mhz = [each.clock_mhz for each in reversed(windows) if each.clock_mhz is not None]

    def is_same(one_mhz: float, other_mhz: float) -> bool:
        return abs(one_mhz - other_mhz) <= same_ratio * one_mhz

    clock_mhz = max(clocks_mhz, key=lambda mhz: sum(is_same(mhz, other) for other in clocks_mhz), default=None)
    kept = (
        each
        if clock_mhz is not None and each.clock_mhz is not None and is_same(clock_mhz, each.clock_mhz)
        else replace(each, median_at_clock_s=None)
        for each in windows
    )
    return WorkRecord(tuple(kept), clock_mhz)


def _amount(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) and value > 0.0 else None


def _steady_clock_mhz(evidence: Evidence) -> float | None:
    """Return the mean true clock after 3 s of load, over whole controller cycles or the whole window; None if unknown."""
    case = Case(replace(evidence, timings=usable(evidence.timings, evidence.window), record=None))
    blocks = case.blocks
    if blocks is None or not blocks.is_true:
        return None
    try:
        places = steady_reference(case.evidence, blocks, case.load).places
    except (ArithmeticError, ValueError):  # odd evidence: the verdict does not need this clock
        return None
    return float(blocks.mhz[blocks.known][places].mean()) if places is not None else None


def _power_w(evidence: Evidence) -> float | None:
    """Return the window's median power, if known: by the dense record if it covers half of the window, else by the gauge."""
    window, dense = evidence.window, evidence.trace.dense_power
    low, high = np.searchsorted(dense.at_ns, (window.begin_ns, window.end_ns))
    is_dense = 2 * int(high - low) * SAMPLE_NS >= window.length_ns
    values = dense.values[low:high] if is_dense else evidence.within("power_w").observed.values
    return _amount(float(np.median(values))) if len(values) else None
