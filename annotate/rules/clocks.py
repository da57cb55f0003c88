"""Rules about an SM clock that drifts or rises inside a window, and about a memory clock below its maximum."""

from collections.abc import Mapping
from typing import Annotated

import numpy as np

from annotate.case import Case
from annotate.derived.busy import busy_at, memory_use_ratio
from annotate.derived.clock_answer import answer_clock_shift
from annotate.derived.condition_bounds import memory_clock_bounds
from annotate.evidence import Fact
from annotate.ranges import Share
from annotate.rule import Answer, Clear, Found, Rule, RuleKind, Unobserved, rule


@rule(
    "clock-drift",
    kind=RuleKind.BIAS,
    says="{what}",
    remedy="Find the cause (heat, a power cap, other work), warm up until the clock is steady, or interleave a comparison.",
)
def clock_drift(case: Case) -> Answer:
    """Finds an SM clock that drifted during the window instead of varying about one value.

    Why it matters:
        Most kernels follow the clock.  While it drifts, the number depends on the window's start time, and two variants
        timed one after the other differ by the drift.

    Limits of detection:
        A drift within the swing of the power controller.  In windows of up to 10 s, a swing of 3 % hides a drift of 5 %.  In
        windows of up to 6 s, so does a swing of 2 % at some phases.  The effect of the swing itself is repeatability.  Without
        stamps the clock is the driver's, which reads 8-12 % above the true clock under a cap but follows its changes.

    Remedy:
        Run the same work before the window until clock and temperature are steady.  To compare two variants, alternate them
        in short blocks, so that both have the same drift.

    Source:
        The stamped clock of the entries, else NVML's while the GPU worked, in levels as for ``clock-levels``.  A change is a
        drift if a straight line explains more of it than levels do, or if two or more steps have one direction.  The bound
        is the largest deviation from a level that holds a fifth of the window.  Unless one level holds half of the window,
        the first and the last fifth count too.  ``docs/RULE_TABLE.md``, section 4.3, has the figures.
    """
    return answer_clock_shift(case.blocks, case.clock_shift, clock_drift.name, case.evidence.absence)


@rule(
    "clock-ramp",
    kind=RuleKind.BIAS,
    says="{what}",
    remedy="Run the same work for a second before the window begins.",
)
def clock_ramp(case: Case) -> Answer:
    """Finds a window that began before the SM clock had risen from idle.

    Why it matters:
        The first iterations run at an idle clock, up to sixteen times slower on boards that idle at 210 MHz.  A mean over
        the window then mixes the ramp with the steady work.

    Limits of detection:
        A ramp shorter than two blocks (each at least a refresh, 100 ms, and 3 stamped entries): a block shows only its mean.
        On an H200 with a context the clock idles at its maximum: the first moments are too fast, which is a change of regime.
        A low clock at the start for power or heat looks the same: the rules of these causes report it too, and the group
        counts once.

    Remedy:
        Warm up, or drop the first iterations and state that.

    Source:
        The stamped clock of the entries, else NVML's while the GPU worked, in levels as for ``clock-levels``.  A change is a
        ramp if the clock only rises, with 90 % of the rise in the first half of the window.  An H200 without a context idled
        at 780-825 MHz and rose within one refresh.
    """
    return answer_clock_shift(case.blocks, case.clock_shift, clock_ramp.name, case.evidence.absence)


@rule(
    "mem-clock-change",
    kind=RuleKind.BIAS,
    needs=("mem_clock_mhz",),
    says="the memory clock was {mem_mhz:.0f} of {top_mhz:.0f} MHz for {low_ratio:.0%} of the working time",
    remedy="Find the cause of the low memory clock (a lock, heat, a power profile), and measure again at the full clock.",
)
def mem_clock_change(
    case: Case,
    *,
    top_ratio: Annotated[
        Share, "readings of one memory clock of 3201 MHz differ by a few MHz; the next lower clock is 30 % away"
    ] = 0.999,
) -> Answer:
    """Finds work that ran while the memory clock was below its maximum.

    Why it matters:
        Bandwidth is proportional to the memory clock.  On an H200, 2201 instead of 3201 MHz slows a copy by 31 %, but not a
        kernel bound by arithmetic.

    Limits of detection:
        A change shorter than the driver's refresh (100 ms).  Idle moments are omitted by utilisation and the idle bit, which
        may both be 200 ms late.  The effect on one kernel: the bound assumes a kernel that uses all of the bandwidth.  The
        estimate uses the share of bandwidth in use, which only GPM shows.

    Remedy:
        Look for a clock lock (``nvidia-smi -q -d CLOCK``), hot memory or a low-power profile.

    Source:
        NVML's memory clock against its maximum; if that is unknown, against the highest clock seen around the window.  An
        H200 has memory clocks of 3201 and 2201 MHz.
    """
    evidence = case.evidence
    clock = evidence.within("mem_clock_mhz")
    known = clock.values > 0
    if 2 * known.sum() < len(clock) or not known.any():
        return Unobserved("the memory clock was not observed for most of the window")
    most_mhz = evidence.device.mem_clock_max_mhz if evidence.device else None
    top_mhz = float(most_mhz or np.nanmax(evidence.trace.column("mem_clock_mhz").values))
    low = known & (clock.values < top_ratio * top_mhz)
    facts: dict[str, Fact] = {"top_mhz": top_mhz, "mem_mhz": float(np.median(clock.values[low if low.any() else known]))}
    bounds = memory_clock_bounds(evidence, top_ratio=top_ratio)
    if not bounds:
        return Clear(facts) if most_mhz is not None else Unobserved("the highest memory clock of this GPU is not known")
    busy = busy_at(evidence, clock.at_ns)
    # If it is not known whether the GPU worked, assume that it did.
    slow, worked = (low & busy, known & busy) if (low & busy).any() else (low, known)
    facts |= {
        "low_ratio": float(slow.sum() / worked.sum()),
        "mem_mhz": float(np.median(clock.values[slow])),
        "dram_ratio": memory_use_ratio(evidence),
    }
    return Found(facts=facts, span_ns=bounds[0].span_ns, bounds=bounds)


RULES: tuple[Rule, ...] = (clock_drift, clock_ramp, mem_clock_change)
RETIRED_LIMITS: Mapping[str, tuple[str, ...]] = {
    clock_drift.name: ("flag_ratio", "reject_ratio", "fixed_ratio", "trend_p", "shortest_s", "few_s", "blocks_count"),
    clock_ramp.name: ("low_ratio", "unexplained_ratio", "reject_ratio"),
    mem_clock_change.name: ("bound_ratio",),
}
