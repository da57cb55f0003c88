"""Bounds of slow-downs with a known reason: the time for which it can have held, times the loss of clock meanwhile."""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from annotate.budget import Bound, Estimate, Group, Number
from annotate.derived.held import Held, by_bits, by_counter, by_violation, longest, reasons
from annotate.evidence import Evidence, Reason
from annotate.evidence.asked import kept

_HEAT = Reason.SW_THERMAL | Reason.HW_THERMAL


def thermal_bounds(
    evidence: Evidence,
    beta: float,
    *,
    unseen_ratio: Annotated[float, "heat lowered the clock by 15 to 22 % on boards that showed it"] = 0.22,
) -> tuple[Bound, ...]:
    """Return the bounds of ``throttle-thermal``; none without thermal slow-down or without evidence."""
    software = [by_violation(evidence, "thermal_violation_ns"), by_counter(evidence, "sw_thermal_ns")]
    hardware = by_counter(evidence, "hw_thermal_ns") or by_bits(evidence, Reason.HW_THERMAL)
    held = longest([longest(software) or by_bits(evidence, _HEAT), hardware])
    if held is None or not held.ratio:
        return ()
    return _slowed_bounds("throttle-thermal", held, slow_down(evidence, _HEAT, beta, unseen_ratio))


def hw_slowdown_bounds(
    evidence: Evidence,
    beta: float,
    *,
    unseen_ratio: Annotated[float, "the hardware's protection halves the clock"] = 1.0,
) -> tuple[Bound, ...]:
    """Return any bounds of ``throttle-hw-slowdown``; a slow-down in sampled bits may have lasted a refresh longer."""
    counted = longest([by_counter(evidence, name) for name in ("hw_thermal_ns", "power_brake_ns")])
    held = counted if counted and counted.ratio else by_bits(evidence, Reason.HW_SLOWDOWN)
    if held is not None and held.by == "samples" and held.ratio:
        more_ratio = evidence.trace.refresh_of_ns("event_reasons_mask") / evidence.window.length_ns
        held = replace(held, most_ratio=min(1.0, held.most_ratio + more_ratio))
    if held is None or not held.ratio:
        return ()
    return _slowed_bounds("throttle-hw-slowdown", held, slow_down(evidence, Reason.HW_SLOWDOWN, beta, unseen_ratio))


def power_brake_bounds(
    evidence: Evidence,
    beta: float,
    *,
    unseen_ratio: Annotated[float, "an external brake halves the clock or worse"] = 1.0,
) -> tuple[Bound, ...]:
    """Return the bounds of ``throttle-power-brake``; none without a power brake or without evidence."""
    held = by_counter(evidence, "power_brake_ns") or by_bits(evidence, Reason.HW_POWER_BRAKE)
    if held is None or not held.ratio:
        return ()
    return _slowed_bounds("throttle-power-brake", held, slow_down(evidence, Reason.HW_POWER_BRAKE, beta, unseen_ratio))


def sync_boost_bounds(evidence: Evidence, beta: float) -> tuple[Bound, ...]:
    """Return the bounds of ``sync-boost-limited`` against the board's highest clock; none without sync boost or evidence."""
    held = by_counter(evidence, "sync_boost_ns") or by_bits(evidence, Reason.SYNC_BOOST)
    most_mhz = evidence.device.sm_clock_max_mhz if evidence.device else None
    if held is None or not held.ratio:
        return ()
    at_ns, masks = reasons(evidence)
    clock = evidence.trace.at("sm_clock_mhz", at_ns)
    inside = clock[((masks & int(Reason.SYNC_BOOST)) != 0) & (clock > 0)]
    low_mhz = float((inside if len(inside) else clock[clock > 0]).mean()) if (clock > 0).any() else None
    if not most_mhz or not low_mhz:
        return _unbounded("sync-boost-limited")
    slow_ratio = max(0.0, float((most_mhz / low_mhz) ** beta) - 1.0)
    # The clock without the sync group is not known, so there is no estimate.
    return tuple(replace(bound, estimate=None) for bound in held_bounds("sync-boost-limited", held, slow_ratio))


@dataclass(frozen=True, slots=True)
class SlowDown:
    """The slow-down of work while a reason held; ``is_most`` marks an upper limit."""

    ratio: float
    is_most: bool = False


def slow_down(evidence: Evidence, bits: Reason, beta: float, unseen_ratio: float) -> SlowDown:
    """Return the slow-down from the clocks while a reason held and while it did not.

    If the reason held throughout, compare with the board's highest clock.  Without a clock to compare, return ``unseen_ratio``.
    """
    inside_mhz, outside_mhz = clocks_beside(evidence, bits)
    if inside_mhz is not None and outside_mhz is not None:
        return SlowDown(max(0.0, float((outside_mhz / inside_mhz) ** beta) - 1.0))
    highest_mhz = evidence.device.sm_clock_max_mhz if evidence.device is not None else None
    if inside_mhz is None or not highest_mhz:
        return SlowDown(unseen_ratio)
    return SlowDown(min(unseen_ratio, max(0.0, float((highest_mhz / inside_mhz) ** beta) - 1.0)), is_most=True)


def _slowed_bounds(rule: str, held: Held, slow: SlowDown) -> tuple[Bound, ...]:
    """Return the bounds of a slow-down, without estimates if its ratio is an upper limit."""
    bounds = held_bounds(rule, held, slow.ratio)
    return tuple(replace(bound, estimate=None) for bound in bounds) if slow.is_most else bounds


@kept
def clocks_beside(evidence: Evidence, bits: Reason) -> tuple[float | None, float | None]:
    """Return the mean of the driver's clock while a reason held and the median otherwise, of a working GPU; None if unknown."""
    at_ns, masks = reasons(evidence)
    clock = evidence.trace.at("sm_clock_mhz", at_ns)
    slowed = (masks & int(bits)) != 0
    resting = (masks & int(Reason.GPU_IDLE)) != 0
    inside, outside = (clock[during & (clock > 0) & ~resting] for during in (slowed, ~slowed))
    return float(inside.mean()) if len(inside) else None, float(np.median(outside)) if len(outside) else None


def held_bounds(
    rule: str,
    held: Held,
    slow_ratio: float,
    *,
    half: Annotated[float, "a reason that held for less leaves the median among undisturbed calls, with a margin"] = 0.4,
) -> tuple[Bound, ...]:
    """Return the bounds of throughput, mean and median for a slow-down of ``slow_ratio`` while ``held``."""
    least, value, most = (part * slow_ratio for part in (held.least_ratio, held.ratio, held.most_ratio))
    middle = slow_ratio if held.most_ratio >= half else most
    surely = slow_ratio if held.least_ratio > 0.5 else 0.0
    estimates = {
        Number.THROUGHPUT: Estimate(*(-each / (1.0 + each) for each in (most, value, least))),
        Number.MEAN: Estimate(least, value, most),
        Number.MEDIAN: Estimate(surely, middle if held.ratio > 0.5 else surely, middle),
    }
    return tuple(
        Bound(
            number=number,
            rule=rule,
            group=Group.CLOCK,
            ratio=max(abs(estimate.low_ratio), abs(estimate.high_ratio)),
            estimate=estimate,
        )
        for number, estimate in estimates.items()
    )


def _unbounded(rule: str) -> tuple[Bound, ...]:
    numbers = (Number.THROUGHPUT, Number.MEAN, Number.MEDIAN)
    return tuple(Bound(number=number, rule=rule, group=Group.CLOCK, ratio=None) for number in numbers)
