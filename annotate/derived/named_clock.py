"""The clock that a ``fixed-clock`` claim names, read from the driver or declared, and the window's deviation from it."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from annotate.budget import Bound, Estimate, Group, Number
from annotate.declared import amount
from annotate.derived.clock_blocks import ClockBlocks
from annotate.derived.held import by_bits, by_counter, by_violation
from annotate.derived.settings_throughout import target_clock_mhz
from annotate.evidence import Evidence, Reason
from annotate.evidence.asked import kept
from annotate.times.durations import LEAST_MHZ, MOST_MHZ

_DEVIATES = 1.96

# Causes that take a clock off its lock: the rule, its counters (the first observed one counts) and its reason bits.
THROTTLES: tuple[tuple[str, tuple[str, ...], Reason], ...] = (
    ("power-limited", ("power_violation_ns", "power_cap_ns"), Reason.SW_POWER_CAP),
    ("throttle-thermal", ("thermal_violation_ns", "sw_thermal_ns"), Reason.SW_THERMAL),
    ("throttle-thermal", ("hw_thermal_ns",), Reason.HW_THERMAL),
    ("throttle-hw-slowdown", (), Reason.HW_SLOWDOWN),
    ("throttle-power-brake", ("power_brake_ns",), Reason.HW_POWER_BRAKE),
    ("sync-boost-limited", ("sync_boost_ns",), Reason.SYNC_BOOST),
)


@dataclass(frozen=True, slots=True)
class NamedClock:
    """The clock a claim names, and its origin: ``read`` from the driver's record or ``declared`` by the caller."""

    mhz: float
    by: str


@kept
def named_clock(evidence: Evidence) -> NamedClock | None:
    """Return the named clock, or None if none is known.  A clock range locked from outside cannot be read back."""
    read_mhz = target_clock_mhz(evidence)
    if read_mhz:
        return NamedClock(read_mhz, "read")
    declared_mhz = amount(evidence.declared, "locked_mhz")
    return NamedClock(declared_mhz, "declared") if declared_mhz and LEAST_MHZ <= declared_mhz <= MOST_MHZ else None


def off_blocks_ratio(
    blocks: ClockBlocks,
    mhz: float,
    *,
    off_ratio: Annotated[float, "the specification: a stamped block may deviate this far from the named clock"] = 0.005,
) -> float:
    """Return the share of the stamped blocks that deviate from this clock by more than ``off_ratio``; 0 without any."""
    stamped_mhz = blocks.mhz[blocks.stamped]
    return float((np.abs(stamped_mhz / mhz - 1.0) > off_ratio).mean()) if len(stamped_mhz) else 0.0


def named_clock_bounds(
    blocks: ClockBlocks, mhz: float, beta: float, *, quoted_mhz: float | None = None, rule: str = "locked-clock-missed"
) -> tuple[Bound, ...]:
    """Return the bias of mean and median at one clock against the named clock.

    ``quoted_mhz`` is the clock of the quoted median, the window's own under ``fixed-clock``; by default the mean clock.
    """
    known_mhz = blocks.mhz[blocks.known]
    half_ratio = _DEVIATES * beta * (blocks.variance() / len(known_mhz)) ** 0.5
    at_own_ratio = float((mhz / (quoted_mhz or known_mhz.mean())) ** beta) - 1.0
    return tuple(
        Bound(
            number=number,
            rule=rule,
            group=Group.CLOCK,
            ratio=abs(ratio) + half_ratio,
            seen_ratio=max(0.0, abs(ratio) - half_ratio),
            estimate=Estimate(ratio - half_ratio, ratio, ratio + half_ratio),
        )
        for number, ratio in (
            (Number.MEAN, blocks.mean_shift_ratio(mhz, beta)),
            (Number.MEDIAN_AT_CLOCK, at_own_ratio),
        )
    )


@kept
def throttled_by(evidence: Evidence) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the rules whose slow-downs held for any time, and the rules with an unobserved slow-down."""
    held, unknown = dict[str, None](), dict[str, None]()
    for rule, counters, bits in THROTTLES:
        witnesses = (by_violation(evidence, name) if "violation" in name else by_counter(evidence, name) for name in counters)
        found = next((each for each in witnesses if each is not None), None) or by_bits(evidence, bits)
        if found is None:
            unknown[rule] = None
        elif found.ratio > 0.0:
            held[rule] = None
    return tuple(held), tuple(unknown)
