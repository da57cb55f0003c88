"""Rules about clocks that move: only these judge how SM and memory clock change inside a window."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from annotate.claims import Claim
from annotate.derived.busy import busy_at, has_reason, idle_at, memory_use_ratio
from annotate.derived.sm_clock import sudden, working
from annotate.evidence import Column, Evidence, Fact, Reason
from annotate.ranges import Blocks, Duration, Share
from annotate.rule import Answer, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule
from annotate.stats.robust import block_means, centre, trend, without_cycle

# Under a power cap an H200's clock swings about its mean, with a period near one second.
_CYCLE_NS = 1_000_000_000
_CYCLE_S = np.linspace(0.8, 1.25, 10)
_SLOWED = Reason.SW_POWER_CAP | Reason.HW_SLOWDOWN | Reason.SW_THERMAL | Reason.HW_THERMAL | Reason.HW_POWER_BRAKE


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftLimits:
    """The limits of ``clock-drift``."""

    flag_ratio: Annotated[Share, "readers care for 1 %; half of it must be sure, all of it in a window of few swings"] = 0.01
    reject_ratio: Annotated[Share, "capped but steady GEMMs on an H200 reached 2.3 % over 2 s"] = 0.03
    fixed_ratio: Annotated[Share, "under a fixed-clock claim, which any drift rejects, half as much counts"] = 0.005
    trend_p: Annotated[Share, "one false trend in twenty before the size has to agree, which leaves one in a hundred"] = 0.05
    shortest_s: Annotated[
        Duration, "two periods of the power controller's swing: within fewer it cannot be told from a trend"
    ] = 2.0
    few_s: Annotated[Duration, "a window of ten swings of up to 1.25 s averages what the swing leaves"] = 12.5
    blocks_count: Annotated[Blocks, "a corrected trend test of fewer blocks hardly ever becomes significant"] = 8.0


@rule(
    "clock-drift",
    kind=RuleKind.BIAS,
    needs=("sm_clock_mhz",),
    says="the SM clock drifted by {drift_ratio:+.1%} over {span_s:.3g} s, from {begin_mhz:.0f} to {end_mhz:.0f} MHz",
    remedy="Warm up for longer before the window, or compare by interleaving.",
)
def clock_drift(evidence: Evidence, claim: Claim, *, limits: DriftLimits) -> Answer:
    """Finds an SM clock that went somewhere during the window instead of moving about one value.

    Why it matters:
        Most kernels take as long as the clock lets them: while it drifts, the figure depends on when the window was
        opened, and two variants timed one after the other differ by the drift.

    What it cannot see:
        A third of all drifts of 2 % in windows of 2 to 6 seconds (a tenth in 10 to 20), where the clock's own swing hides
        them.  What the SMs really ran at: under a power cap the driver's clock reads 8-12 % above the truth, though it moves
        with it.  A sudden step is a change of regime: only the longer side of it is judged here.

    Remedy:
        Run the same work for some seconds before the window, until clock and temperature stand.  To compare, alternate
        the two in short turns, so that both see the same drift.

    Source:
        NVML's SM clock, refreshed every 100 ms in steps of 15 MHz, less the controller's swing (period 0.8-1.25 s); over
        blocks, Theil-Sen slope, its standard error, and the Mann-Kendall test as corrected by Hamed and Rao.  Found in 2 of
        299 overlapping windows of 2-6 s of warmed copies and GEMMs on an H200 (driver 580.159.04), 1 of 870 made from its
        in-kernel clocks, 18 of 1200 simulated (swing 1.5-3 %, noise 0.5-0.9 %) and 1 of 600 of 10-20 s.  Of as many simulated
        drifts of 2, 3 and 5 % each it missed 37, 10 and 0.4 % in 2-6 s, and 11, 1.3 and 0 % in 10-20 s.  Those of 10-20 s were
        counted when ten seconds were enough for half of the limit: a swing just shorter than a block passed for a drift then.
        In the campaign, windows of 3.2-8 s of seven kernels: 8 of 3000 clean ones; no drift of 2 % was missed without a cap,
        and 3.9 % of those of 6 % under it.
    """
    window = evidence.window
    if window.length_s < limits.shortest_s:
        return Unobserved(f"{window.length_s:.2g} s are too short to tell a drift from the power controller's swing")
    clock = working(evidence)
    if not len(clock) or not (clock.values > 0).any():
        return Unobserved("the clock of a working GPU was not observed for half of the window")
    clock = _longer_level(evidence, clock)
    blocks = _blocks(evidence, clock, int(limits.blocks_count))
    span_s, refresh_s = _span_ns(clock) / 1e9, evidence.trace.refresh_of_ns("sm_clock_mhz") / 1e9
    if len(blocks) < max(4, limits.blocks_count) or span_s < limits.shortest_s - refresh_s:
        return Unobserved(f"only {span_s:.1f} s of steady work were observed, too few to tell a drift")
    found = trend((blocks.at_ns - blocks.at_ns[0]) / 1e9, blocks.values)
    typical_mhz = centre(blocks.values)
    # What of a drift is sure: its size less so many standard errors (99 % one-sided, with the few blocks of short windows).
    drift_ratio, least_ratio = (slope * span_s / typical_mhz for slope in (found.slope, found.least(2.5)))
    # The fitted line may end where no clock ever was.
    begin_mhz, end_mhz = (
        float(np.clip(typical_mhz * (1.0 + side * drift_ratio / 2), blocks.values.min(), blocks.values.max()))
        for side in (-1, 1)
    )
    facts: dict[str, Fact] = {
        "drift_ratio": drift_ratio,
        "span_s": span_s,
        "begin_mhz": begin_mhz,
        "end_mhz": end_mhz,
        "p": found.p,
        "blocks_count": len(blocks),
    }
    fixed = claim is Claim.FIXED_CLOCK
    limit_ratio = limits.fixed_ratio if fixed else limits.flag_ratio
    sure_ratio = limit_ratio if window.length_s < limits.few_s else limit_ratio / 2
    if found.p >= limits.trend_p or abs(drift_ratio) < limit_ratio or least_ratio < sure_ratio:
        return Clear(facts)
    severity = Severity.REJECT if fixed or abs(drift_ratio) >= limits.reject_ratio else Severity.FLAG
    # Against the clock it was heading for, the window's mean is off by half the drift.
    return Found(severity, facts, effect_ratio=drift_ratio / 2, span_ns=(int(clock.at_ns[0]), int(clock.at_ns[-1])))


@rule(
    "clock-ramp",
    kind=RuleKind.BIAS,
    needs=("sm_clock_mhz",),
    says="the first {ramp_s:.2g} s ran at {first_mhz:.0f} MHz before the SM clock rose to {rest_mhz:.0f} MHz",
    remedy="Run the same work for a second before the window begins.",
)
def clock_ramp(
    evidence: Evidence,
    claim: Claim,
    *,
    low_ratio: Annotated[Share, "3 % below the rest is two to four steps of 15 MHz, more than the clock's own wobble"] = 0.97,
    unexplained_ratio: Annotated[Share, "without event reasons a capped clock's dips (7 %) must not look like a ramp"] = 0.9,
    reject_ratio: Annotated[Share, "with a tenth of the window at another clock its mean is no longer the steady one"] = 0.1,
) -> Answer:
    """Finds a window that began before the SM clock had risen from idle.

    Why it matters:
        The first iterations run at an idle clock, up to sixteen times slower on boards that idle at 210 MHz.  A mean over
        the window then mixes waking up with work.

    What it cannot see:
        A ramp that is over within one refresh of the driver (100 ms; 500 ms on some boards).  On an H200 with a context
        the clock idles at its maximum: its first moments are too fast, not too slow, which is a change of regime.  Where
        the clock was held low for power or heat, other rules speak.

    Remedy:
        Warm up, or drop the first iterations and say so.

    Source:
        NVML's SM clock at the start of the window against the median of its second half, and clock event reasons.  An
        H200 without a context idled at 780-825 MHz and rose within one refresh.
    """
    refresh_ns = evidence.trace.refresh_of_ns("sm_clock_mhz")
    if evidence.window.length_ns < 3 * refresh_ns:
        return Unobserved(f"{evidence.window.length_s:.2g} s hold fewer than three refreshes of the clock")
    clock = evidence.within("sm_clock_mhz", step_ns=_grid_ns(evidence))
    known = clock.values > 0
    count = len(clock)
    if 2 * known.sum() < count or not known[: max(1, count // 10)].any() or not known[count // 2 :].any():
        return Unobserved("the SM clock was not observed for most of the window")
    rest_mhz = centre(clock.values[count // 2 :][known[count // 2 :]])
    reasons = evidence.trace.at("event_reasons_mask", clock.at_ns)
    if has_reason(reasons[count // 2 :], Reason.GPU_IDLE).mean() > 0.5:
        return Unobserved("the GPU was idle for most of the window")
    limit_mhz = np.where(np.isnan(reasons), unexplained_ratio, low_ratio) * rest_mhz
    low = known & (clock.values < limit_mhz) & ~has_reason(reasons, _SLOWED)
    # A GPU that does nothing yet ramps nothing: a program's imports lie before its first kernel.
    working = ~has_reason(reasons, Reason.GPU_IDLE)
    start = int(np.argmax(working)) if working.any() else 0
    begin_ns = int(clock.at_ns[start]) if start else evidence.window.begin_ns
    # The leading run: an unobserved moment neither ends it nor belongs to it.
    risen = known & ~low
    risen[:start] = False
    end = int(np.argmax(risen)) if risen.any() else count
    head_mhz = clock.values[start:end][known[start:end]]
    facts: dict[str, Fact] = {"rest_mhz": rest_mhz, "first_mhz": float(clock.values[known][0])}
    if not len(head_mhz):
        return Clear(facts)
    end_ns = int(clock.at_ns[end]) if end < count else evidence.window.end_ns
    # A reading shows what was true up to one refresh before, so the last low one may be that old.
    sure_ratio = max(0, end_ns - begin_ns - refresh_ns) / evidence.window.length_ns
    ramp_ratio = (end_ns - begin_ns) / evidence.window.length_ns
    facts |= {"ramp_s": ramp_ratio * evidence.window.length_s, "ramp_ratio": ramp_ratio}
    severity = Severity.REJECT if sure_ratio > reject_ratio else Severity.FLAG
    slower_ratio = float((rest_mhz / head_mhz).mean()) - 1.0
    return Found(severity, facts, effect_ratio=slower_ratio * ramp_ratio, span_ns=(begin_ns, end_ns))


@rule(
    "mem-clock-change",
    kind=RuleKind.BIAS,
    needs=("mem_clock_mhz",),
    says="the memory clock was {mem_mhz:.0f} of {top_mhz:.0f} MHz for {low_ratio:.0%} of the working time",
    remedy="Find what lowers the memory clock (a lock, heat, a power profile), and measure again at the full clock.",
)
def mem_clock_change(
    evidence: Evidence,
    claim: Claim,
    *,
    top_ratio: Annotated[Share, "clocks of one entry read alike to a few MHz; the next lower entry is 30 % away"] = 0.99,
    bound_ratio: Annotated[Share, "with half of the bandwidth in use, a kernel feels a memory clock that is 30 % lower"] = 0.5,
) -> Answer:
    """Finds work that ran while the memory clock was below its top entry.

    Why it matters:
        Bandwidth is proportional to it: 2201 instead of 3201 MHz on an H200 costs a copy 31 %, and a kernel bound by
        arithmetic nothing.

    What it cannot see:
        A change shorter than the driver's refresh (100 ms).  Idle moments are left out, by utilisation and the idle bit,
        both of which may be up to 200 ms late.

    Remedy:
        Look for a clock lock (``nvidia-smi -q -d CLOCK``), a hot memory or a low-power profile.

    Source:
        NVML's memory clock against its maximum or, where that is unknown, the highest one seen around the window.  H200
        entries: 3201 and 2201 MHz.
    """
    clock = evidence.within("mem_clock_mhz", step_ns=_grid_ns(evidence))
    known = clock.values > 0
    if 2 * known.sum() < len(clock) or not known.any():
        return Unobserved("the memory clock was not observed for most of the window")
    told_mhz = evidence.device.mem_clock_max_mhz if evidence.device else None
    top_mhz = float(told_mhz or np.nanmax(evidence.trace.column("mem_clock_mhz").values))
    low = known & (clock.values < top_ratio * top_mhz)
    busy, idle = busy_at(evidence, clock.at_ns), idle_at(evidence, clock.at_ns)
    facts: dict[str, Fact] = {"top_mhz": top_mhz, "mem_mhz": float(np.median(clock.values[low if low.any() else known]))}
    if not (low & busy).any():
        if (low & ~idle).any():
            return Unobserved("the memory clock was low, but whether the GPU was working is not known")
        if told_mhz is None:
            return Unobserved("the highest memory clock of this GPU is not known")
        return Clear(facts)
    slow = low & busy
    facts |= {"low_ratio": float(slow.sum() / (known & busy).sum()), "mem_mhz": float(np.median(clock.values[slow]))}
    dram_ratio = memory_use_ratio(evidence)
    facts["dram_ratio"] = dram_ratio
    bound = dram_ratio is not None and dram_ratio >= bound_ratio
    # What a kernel bound by bandwidth pays; one bound by arithmetic pays less.
    times = np.where(slow, top_mhz / clock.values, 1.0)[known & busy]
    at_ns = clock.at_ns[slow]
    return Found(
        Severity.REJECT if bound else Severity.FLAG,
        facts,
        effect_ratio=float(times.mean()) - 1.0 if bound else None,
        span_ns=(int(at_ns[0]), int(at_ns[-1])),
    )


def _grid_ns(evidence: Evidence) -> int:
    """A grid on which no refresh is missed and few are repeated."""
    return max(1, min(evidence.trace.refresh_of_ns("sm_clock_mhz") // 2, evidence.window.length_ns // 20))


def _longer_level(evidence: Evidence, clock: Column) -> Column:
    """The longer side of a single sudden step, which is a change of regime and judged as one; all of a clock without."""
    # From here on a step of the clock is named as a change of regime.
    move = sudden(clock, block_ns=evidence.trace.refresh_of_ns("sm_clock_mhz"), least_ratio=0.03)
    if move is None:
        return clock
    later = clock.at_ns >= move.at_ns
    return clock.where(later if 2 * later.sum() >= len(later) else ~later)


def _span_ns(clock: Column) -> int:
    return int(clock.at_ns[-1] - clock.at_ns[0]) + int(clock.at_ns[1] - clock.at_ns[0]) if len(clock) > 1 else 0


def _blocks(evidence: Evidence, clock: Column, count: int) -> Column:
    """The clock in blocks, of a whole swing where the window is long enough; else with the swing taken out.

    Means, because a median of values 15 MHz apart would itself move in steps of 1 %.
    """
    span_ns = _span_ns(clock)
    refresh_ns = evidence.trace.refresh_of_ns("sm_clock_mhz")
    # More blocks sharpen nothing, and the pairs a trend is made of grow as their square.
    width_ns = max(refresh_ns, min(_CYCLE_NS, span_ns // max(1, count)), span_ns // 200)
    if width_ns < _CYCLE_NS and 2 * refresh_ns < _CYCLE_S[0] * 1e9:
        thin = max(1, refresh_ns // 2 // int(clock.at_ns[1] - clock.at_ns[0]))
        clock = Column(clock.at_ns[::thin], clock.values[::thin])
        known = ~np.isnan(clock.values)
        values = clock.values.copy()
        values[known] = without_cycle((clock.at_ns[known] - clock.at_ns[0]) / 1e9, clock.values[known], _CYCLE_S)
        clock = Column(clock.at_ns, values)
    return block_means(clock, width_ns)


RULES: tuple[Rule, ...] = (clock_drift, clock_ramp, mem_clock_change)
