"""Rules about the distribution of the times: outliers, or two groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from annotate.amount_words import ordinal
from annotate.budget import Bound, Estimate, Group, Number
from annotate.case import Case
from annotate.derived.held import may_be_capped, power_cap
from annotate.derived.idle_bounds import is_power_free
from annotate.derived.load_time import STEADY_S
from annotate.derived.pause_causes import UNKNOWN, IdleCause, late_entry_causes
from annotate.derived.time_modes import mode_bounds
from annotate.evidence import Fact
from annotate.ranges import Duration, Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Unobserved, rule
from annotate.stats.robust import centre
from annotate.times.durations import NO_ITERATION, every_count, readable_pair
from annotate.times.modes import FEWEST_COUNT, Modes, two_modes
from annotate.times.outlying import Outlying, Pattern, beyond_jitter, beyond_rhythm, beyond_swing, outlying, pattern

# An outlier is far from the median of the iterations around it: fewer iterations give no useful median.
_FEWEST_COUNT = 6
_HOST = "host"

RETIRED_LIMITS: Mapping[str, tuple[str, ...]] = {
    "outliers": ("share_ratio", "note_ratio", "cost_ratio"),
    "bimodal": ("explained_ratio",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlierLimits:
    """The limits of ``outliers``."""

    wait_ratio: Annotated[Share, "of the time, threads waited for a CPU core; an unloaded machine stays far below"] = 0.05
    named_ratio: Annotated[Share, "the specification: pauses that cover half of the late time are its cause"] = 0.5
    launch_s: Annotated[Duration, "below it an event pair contains the gap to the next launch (H200)"] = 50e-6
    gap_s: Annotated[Duration, "the specification: no shorter gap between launches is irregular"] = 0.001
    swing_ratio: Annotated[Share, "runs of late raw capped times on an H200 were 7 to 10 % late in the median"] = 0.12
    onset_ratio: Annotated[Share, "in the first seconds after idle, a GEMM 16384 was up to 31 % late"] = 0.32
    kept_ratio: Annotated[Share, "under a cap the clock rose in a neighbour's turns: a third of their time remained"] = 1 / 3
    host_ratio: Annotated[Share, "in recordings of capped work, a faster clock regained 20 to 25 % of a stall"] = 2 / 3


@rule(
    "outliers",
    kind=RuleKind.BIAS,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="{outliers_count} of {iterations_count} iterations are outliers and add {cost_ratio:.2%}, {pattern}{cause_words}",
    remedy="Find what interrupts the work: another process on the GPU, a busy CPU, or the loop itself.",
)
def outliers(case: Case, *, limits: OutlierLimits) -> Answer:
    """Finds iterations that took longer than those around them, with their pattern and cause.

    Why it matters:
        The pattern indicates the cause.  On an H200, a neighbour that computed for 50 ms each second made 13 of 37 000
        iterations longer by 2.3 ms, the length of its turn.  The median never shows that, and the mean includes all of it.

    Limits of detection:
        A slow-down of every iteration.  An interruption between two iterations: ``idle-stretch`` finds it.  Slow swings: the
        comparison covers half a second, or 25 iterations if they take longer.  Late iterations at every Nth place count as
        part of the loop.  A harness that synchronises every ten launches makes every tenth iteration 8 to 30 % longer.
        Delays below 1 ms in calls so short that their times include launch gaps: they are jitter of the launches.  Delays
        below 0.5 ms that are equally frequent in each tenth of the window while no thread waits: every window has them.
        Without stamps under a power cap, runs of iterations up to 12 % longer, after idle up to 32 %: the controller's swing
        causes them.  Cold iterations: ``cold-start`` counts them.

    Remedy:
        Stop the neighbour, free CPU cores, or move occasional work out of the loop.  The rule drops no iteration: its facts
        state the cost of the late ones.

    Source:
        The time of each iteration, at one clock if stamps allow it, else under a cap at the driver's clock.  The bound of the
        mean is the excess time of the late iterations over the total time without it.  The bound of throughput is the same
        excess over the total time.  Pauses of the host that overlap late iterations by at least half of the delay are named
        as the cause.
    """
    times = case.one_clock
    at_clock = case.driven or replace(case.timings, at_ns=times.at_ns, took_s=times.took_s, sm_clock_mhz=None)
    if len(times.took_s) < _FEWEST_COUNT:
        return Unobserved("too few iterations to find outliers") if case.has_times else NO_ITERATION
    every = outlying(at_clock)
    waited_s, span_s = case.evidence.host.run_wait_s, case.evidence.host.span_s
    waited = waited_s is not None and bool(span_s) and waited_s > limits.wait_ratio * (span_s or 0.0)
    lying = _counted(every, limits, swing_ratio=_swing_ratio(case, limits), waited=waited)
    shape = pattern(lying, waited=waited)
    facts = _facts(every, lying, shape)
    if not lying.cost_ratio:
        return Clear(facts)
    causes = late_entry_causes(lying, case.evidence.pauses, waited_s if waited else None, least_ratio=limits.named_ratio)
    facts |= _cause_facts(causes)
    is_host = shape.name == _HOST or facts["cause"] != UNKNOWN
    is_free = is_power_free(case.evidence) is True
    kept_ratio = 1.0 if is_free else limits.host_ratio if is_host else limits.kept_ratio
    bounds = _late_bounds(lying, kept_ratio, is_at_one_clock=times.is_at_one_clock)
    return Found(facts=facts, effect_ratio=lying.cost_ratio, span_ns=bounds[0].span_ns, bounds=bounds)


def _swing_ratio(case: Case, limits: OutlierLimits) -> float:
    """Return the most by which the power controller lengthens runs of calls; 0 at one clock or without a cap."""
    if case.one_clock.is_at_one_clock or not may_be_capped(case.evidence):
        return 0.0
    fresh_ns = case.evidence.window.begin_ns - int(STEADY_S * 1e9)
    return limits.onset_ratio if (case.load.began_ns > fresh_ns).any() else limits.swing_ratio


def _counted(every: Outlying, limits: OutlierLimits, *, swing_ratio: float, waited: bool) -> Outlying:
    """Return the outliers without the loop's rhythm, the swing of a raw clock and the jitter of launches.

    With ``waited`` (threads waited for a CPU core) jitter counts too.
    """
    lying = beyond_swing(beyond_rhythm(every), swing_ratio)
    lying = lying if waited else beyond_jitter(lying)
    if every.usual_s < limits.launch_s:
        lying = lying.pick(lying.excess_s * lying.calls_count >= limits.gap_s)
    return lying


def _late_bounds(lying: Outlying, kept_ratio: float, *, is_at_one_clock: bool) -> tuple[Bound, ...]:
    """Return the bounds of the late iterations; ``kept_ratio`` is the part that a faster clock afterwards cannot regain."""
    most, least = lying.cost_ratio, kept_ratio * lying.cost_ratio
    late = lying.indices[lying.excess_s > 0]
    rest_s = np.delete(lying.took_s, late)
    median = lying.usual_s / centre(rest_s) - 1.0
    estimates = {
        Number.MEAN: Estimate(least, most, most),
        Number.THROUGHPUT: Estimate(-most / (1.0 + most), -most / (1.0 + most), -least / (1.0 + least)),
        Number.MEDIAN: Estimate(median, median, median),
    }
    if is_at_one_clock:
        estimates[Number.MEDIAN_AT_CLOCK] = estimates[Number.MEDIAN]
    last_ns = int(lying.at_ns[late[-1]]) + round(float(lying.took_s[late[-1]]) * lying.calls_count * 1e9)
    return tuple(
        Bound(
            number=number,
            rule="outliers",
            group=Group.INSIDE,
            ratio=abs(estimate.value_ratio),
            estimate=estimate,
            span_ns=(int(lying.at_ns[late[0]]), last_ns),
        )
        for number, estimate in estimates.items()
    )


def _facts(every: Outlying, lying: Outlying, shape: Pattern) -> dict[str, Fact]:
    kept_s = np.delete(lying.took_s, lying.indices)
    return {
        "outliers_count": len(lying.indices),
        "iterations_count": len(lying.took_s),
        "share_ratio": lying.share_ratio,
        "cost_ratio": lying.cost_ratio,
        "rhythm_cost_ratio": every.cost_ratio - lying.cost_ratio,  # of the loop's rhythm, the clock's swing and launch jitter
        "pattern": shape.text,
        "kind": shape.name,
        "trimmed_mean_s": float(kept_s.mean()) if len(kept_s) else None,  # few times may all lie far from their median
        "mean_s": float(lying.took_s.mean()),
    }


def _cause_facts(causes: Sequence[IdleCause]) -> dict[str, Fact]:
    main = causes[0]
    return {
        "cause": main.cause,
        "cause_by": main.by,
        "cause_overlap_ratio": main.overlap_ratio,
        "cause_late_s": main.idle_s,
        "cause_words": "" if main.cause == UNKNOWN else f": {'' if main.overlap_ratio else 'perhaps '}{main.cause}",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class BimodalLimits:
    """The limits of ``bimodal``."""

    separation_ratio: Annotated[Share, "memory placement alone separates groups by up to 2 %"] = 0.02
    minor_ratio: Annotated[Share, "of the iterations: a smaller group counts as outliers"] = 0.05
    depth_ratio: Annotated[Share, "density in the valley over the lower peak; for a swinging clock it is 0.5"] = 0.25
    p: Annotated[Share, "probability of such a valley by chance: one window in a hundred may be wrong"] = 0.01
    centre_ratio: Annotated[Share, "in a clean GEMM, two groups 2.6 % apart, 20 % slow: the median stays in the larger"] = 1 / 3
    swing_ratio: Annotated[Share, "the range over which the power controller alone moves a capped GEMM: ±3.6 %"] = 0.07


@rule(
    "bimodal",
    kind=RuleKind.BIAS,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="there are two speeds, {fast} ({fast_ratio:.0%} of iterations) and {slow}{cause}",
    remedy="Find the difference (clock, buffers, algorithm, a neighbour) and measure each speed separately.",
)
def bimodal(case: Case, *, limits: BimodalLimits) -> Answer:
    """Finds iterations that run at two speeds, so that no single centre describes them.

    Why it matters:
        A median between two groups is a time that hardly any iteration took, and varies by chance.  Buffers, autotuned
        algorithms, clocks and neighbours each cause two groups.  A wrapper that caches results does too: calls that worked,
        and calls that returned early.

    Limits of detection:
        Three or more groups, of which the rule names two.  A single switch between speeds, which ``iteration-levels`` finds.
        Groups closer than the resolution of the times.

    Remedy:
        Find the difference between the groups and measure each separately.

    Source:
        A valley between two peaks, tested with counts that autocorrelation reduces to their effective number.  Hartigan's
        dip test assumes independent iterations: with p < 0.01 it found two modes in 181 of 183 clean capped windows.
        Times are compared at one clock if stamps allow it, which removes groups caused by the clock.

        If the smaller group holds over a third, the bound of the medians is half of the separation.  Otherwise the bound is
        the shift of the median within the larger group.  Mean and throughput have bounds for groups more than 7 % apart: the
        distance from a group that holds a fifth.  They have none under ``varies=True``, which claims the mean.

        Without stamps, the power controller alone makes a capped GEMM 16384 run at two clocks 3.3 % apart.  Capped groups up
        to 7 % apart, and every Nth iteration of a harness, give no bounds.  H200, driver 580.159.04.
    """
    times = case.one_clock
    if len(times.took_s) < FEWEST_COUNT:
        return Unobserved("too few iterations to find two speeds") if case.has_times else NO_ITERATION
    modes = two_modes(times.took_s, minor_ratio=limits.minor_ratio)
    if modes is None:
        return Clear()
    facts: dict[str, Fact] = {"separation_ratio": modes.separation_ratio, "depth_ratio": modes.depth_ratio, "p": modes.p}
    near = modes.separation_ratio <= limits.separation_ratio
    if near or modes.depth_ratio > limits.depth_ratio or modes.p >= limits.p:
        return Clear(facts)
    cause, is_own = _mode_cause(case, modes, limits)
    fast, slow = readable_pair(modes.fast_s, modes.slow_s)
    facts |= {
        "fast_s": modes.fast_s,
        "slow_s": modes.slow_s,
        "fast": fast,
        "slow": slow,
        "fast_ratio": 1.0 - modes.slow_ratio,
        "cause": cause,
    }
    if is_own:
        return Found(facts=facts)
    bounds = mode_bounds(
        "bimodal",
        times,
        separation_ratio=limits.separation_ratio,
        depth_ratio=limits.depth_ratio,
        p=limits.p,
        centre_ratio=limits.centre_ratio,
        swing_ratio=limits.swing_ratio,
    )
    if case.fact("varies") is True:  # the mean of times that vary by design is the claim
        bounds = tuple(each for each in bounds if each.number not in (Number.THROUGHPUT, Number.MEAN))
    return Found(facts=facts, bounds=bounds)


def _mode_cause(case: Case, modes: Modes, limits: BimodalLimits) -> tuple[str, bool]:
    """Return the cause of the two groups, in words, and whether they are normal for the work."""
    nth = every_count(np.flatnonzero(case.one_clock.took_s > modes.split_s))
    if nth:
        return f", most at every {ordinal(nth)} iteration", True
    if case.one_clock.is_at_one_clock:
        return ", at the same true clock", False
    if modes.separation_ratio <= limits.swing_ratio and _is_capped(case):
        return ", caused by the power controller's two clocks", True
    return "", False


def _is_capped(case: Case) -> bool:
    held = power_cap(case.evidence)
    return held is not None and held.least_ratio > 0.5


RULES: tuple[Rule, ...] = (outliers, bimodal)
