"""Rules about SM and memory clocks that change inside a window."""

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
    remedy="Find what moves the clock (heat, a power cap, other work), run until it stands, or compare by interleaving.",
)
def clock_drift(case: Case) -> Answer:
    """Finds an SM clock that drifted during the window instead of varying about one value.

    Why it matters:
        Most kernels follow the clock.  While it drifts, the number depends on when the window began, and two variants timed
        in turn differ by the drift.

    What it cannot see:
        A drift that the power controller's own swing hides: in up to 6 s one of 5 % is hidden beside a swing of 3 %, and found
        beside one of 2 %.  What the swing does to a window is its repeatability.  Without stamps the clock is the driver's,
        which reads 8-12 % above the true one under a cap, though it moves with it.

    Remedy:
        Run the same work before the window until clock and temperature are steady.  To compare two variants, alternate them
        in short blocks, so that both see the same drift.

    Source:
        The stamped clock of the entries, else NVML's while the GPU worked, in levels as ``clock-levels`` finds them.  The
        bias is named a drift where a straight line explains more of the clock than its levels do, or where two steps or
        more go one way.  The bound is the largest deviation from a level that holds a fifth of the window;
        ``docs/RULE_TABLE.md``, section 4.3, has the figures.
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
        the window then mixes waking up with work.

    What it cannot see:
        A ramp of less than two blocks (of one refresh, 100 ms, or 3 stamped entries): only the mean of a block shows.  On
        an H200 with a context the clock idles at its maximum: its first moments are too fast, not too slow, which is a
        change of regime.  A start held low for power or heat looks the same: the rules of these reasons name it, and the
        group counts once.

    Remedy:
        Warm up, or drop the first iterations and say so.

    Source:
        The stamped clock of the entries, else NVML's while the GPU worked, in levels as ``clock-levels`` finds them.  The
        bias is named a ramp where the clock steps up once, within the first half of the window.  An H200 without a context
        idled at 780-825 MHz and rose within one refresh.
    """
    return answer_clock_shift(case.blocks, case.clock_shift, clock_ramp.name, case.evidence.absence)


@rule(
    "mem-clock-change",
    kind=RuleKind.BIAS,
    needs=("mem_clock_mhz",),
    says="the memory clock was {mem_mhz:.0f} of {top_mhz:.0f} MHz for {low_ratio:.0%} of the working time",
    remedy="Find what lowers the memory clock (a lock, heat, a power profile), and measure again at the full clock.",
)
def mem_clock_change(
    case: Case,
    *,
    top_ratio: Annotated[
        Share, "clocks of one entry read alike to a few MHz of 3201; the next lower entry is 30 % away"
    ] = 0.999,
) -> Answer:
    """Finds work that ran while the memory clock was below its top entry.

    Why it matters:
        Bandwidth is proportional to it: 2201 instead of 3201 MHz on an H200 costs a copy 31 %, and a kernel bound by
        arithmetic nothing.

    What it cannot see:
        A change shorter than the driver's refresh (100 ms).  Idle moments are left out, by utilisation and the idle bit,
        both of which may be up to 200 ms late.  The effect on one kernel.  The bound is that of a kernel that uses all of
        the bandwidth; the estimate uses the share of time in which memory was busy.

    Remedy:
        Look for a clock lock (``nvidia-smi -q -d CLOCK``), a hot memory or a low-power profile.

    Source:
        NVML's memory clock against its maximum or, where that is unknown, the highest one seen around the window.  H200
        entries: 3201 and 2201 MHz.
    """
    evidence = case.evidence
    clock = evidence.within("mem_clock_mhz")
    known = clock.values > 0
    if 2 * known.sum() < len(clock) or not known.any():
        return Unobserved("the memory clock was not observed for most of the window")
    told_mhz = evidence.device.mem_clock_max_mhz if evidence.device else None
    top_mhz = float(told_mhz or np.nanmax(evidence.trace.column("mem_clock_mhz").values))
    low = known & (clock.values < top_ratio * top_mhz)
    facts: dict[str, Fact] = {"top_mhz": top_mhz, "mem_mhz": float(np.median(clock.values[low if low.any() else known]))}
    bounds = memory_clock_bounds(evidence, top_ratio=top_ratio)
    if not bounds:
        return Clear(facts) if told_mhz is not None else Unobserved("the highest memory clock of this GPU is not known")
    busy = busy_at(evidence, clock.at_ns)
    # Where nothing tells whether the GPU worked, the bound takes it that it did.
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
