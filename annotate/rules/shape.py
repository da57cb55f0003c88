"""Rules about the shape of the times: single ones apart from the rest, or two groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

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
from annotate.times.durations import NO_ITERATION, every_count, readable
from annotate.times.modes import FEWEST_COUNT, Modes, two_modes
from annotate.times.outlying import Outlying, Pattern, beyond_jitter, beyond_rhythm, beyond_swing, outlying, pattern

# Fewer have no neighbours to lie apart from, and no group of their own.
_FEWEST_COUNT = 6
_HOST = "host"

RETIRED_LIMITS: Mapping[str, tuple[str, ...]] = {
    "outliers": ("share_ratio", "note_ratio", "cost_ratio"),
    "bimodal": ("explained_ratio",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlierLimits:
    """The limits of ``outliers``."""

    wait_ratio: Annotated[Share, "of the time threads waited for a processor; an unloaded machine stays far below"] = 0.05
    named_ratio: Annotated[Share, "the specification: pauses that cover half of the late time are its cause"] = 0.5
    launch_s: Annotated[Duration, "below it an event pair contains the gap to the next launch (H200)"] = 50e-6
    gap_s: Annotated[Duration, "the specification: no shorter gap between launches stands out"] = 0.001
    swing_ratio: Annotated[Share, "raw capped times side by side, of an H200: 7 to 10 % late in the median"] = 0.12
    onset_ratio: Annotated[Share, "the same in the first seconds after idle: a GEMM 16384, up to 31 % late"] = 0.32
    kept_ratio: Annotated[Share, "under a cap a mean kept a third of what turns of a neighbour took, as the clock rose"] = 1 / 3
    host_ratio: Annotated[Share, "recorded stalls of capped work bought back a fifth to a quarter"] = 2 / 3


@rule(
    "outliers",
    kind=RuleKind.BIAS,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="{outliers_count} of {iterations_count} iterations lie apart and add {cost_ratio:.2%} to the time, {pattern}{cause_words}",
    remedy="Find what interrupts the work: another process on the GPU, a busy processor, or the loop itself.",
)
def outliers(case: Case, *, limits: OutlierLimits) -> Answer:
    """Finds iterations that took longer than those around them, and names their pattern and cause.

    Why it matters:
        The pattern hints at the cause.  A neighbour that computed for 50 ms each second left 14 iterations of 37 000 longer
        by 2.3 ms each, the length of its turn on an H200: a median never shows it, and the mean holds all of it.

    What it cannot see:
        A slow-down of every iteration.  An interruption between two iterations: ``idle-stretch``.  Slow swings: an
        iteration is compared with its half second.  Late ones at every Nth place count as the loop's own, because harnesses
        that synchronise every ten launches make every tenth iteration 8 to 30 % longer.  In a loop of calls so short that
        their times hold the gaps between launches, late ones of less than a millisecond: that is the launches' own jitter,
        part of the number and not the GPU's.  Iterations late by less than 0.5 ms that come as often in each tenth of the
        window, while no thread waits: any other window has them too.  Without stamps and under a power cap, up to 12 %
        longer ones side by side, after idle up to 32 %, which the controller's swing makes.  Cold iterations are counted by
        another rule.

    Remedy:
        Stop the neighbour, free processors, or move occasional work out of the loop.  The rule drops no iteration: its
        facts say what the late ones cost.

    Source:
        The time of each iteration, at one clock where stamps put it there.  The bound of the mean is what the late ones add
        to all others; of throughput the same share of the longer time.  Pauses of the host that lie within late
        iterations and cover half of what they are late by are named as the cause.
    """
    times = case.one_clock
    at_clock = replace(case.timings, at_ns=times.at_ns, took_s=times.took_s, sm_clock_mhz=None)
    if len(times.took_s) < _FEWEST_COUNT:
        return Unobserved("too few iterations to say which lie apart") if case.has_times else NO_ITERATION
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
    """Return by how much the power controller makes calls side by side longer: nothing at one clock, nor without a cap."""
    if case.one_clock.is_at_one_clock or not may_be_capped(case.evidence):
        return 0.0
    fresh_ns = case.evidence.window.begin_ns - int(STEADY_S * 1e9)
    return limits.onset_ratio if (case.load.began_ns > fresh_ns).any() else limits.swing_ratio


def _counted(every: Outlying, limits: OutlierLimits, *, swing_ratio: float, waited: bool) -> Outlying:
    """Return the late ones that count: not the loop's own rhythm, the swing of a raw clock or the jitter of launches.

    No jitter is the launches' own while threads waited for a processor.
    """
    lying = beyond_swing(beyond_rhythm(every), swing_ratio)
    lying = lying if waited else beyond_jitter(lying)
    if centre(every.took_s) < limits.launch_s:
        lying = lying.pick(lying.excess_s * lying.calls_count >= limits.gap_s)
    return lying


def _late_bounds(lying: Outlying, kept_ratio: float, *, is_at_one_clock: bool) -> tuple[Bound, ...]:
    """Return what the late ones did to each number; where idle time buys clock, the least that is left of it is smaller."""
    most, least = lying.cost_ratio, kept_ratio * lying.cost_ratio
    late = lying.indices[lying.excess_s > 0]
    rest_s = np.delete(lying.took_s, late)
    median = centre(lying.took_s) / centre(rest_s) - 1.0
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
    return {
        "outliers_count": len(lying.indices),
        "iterations_count": len(lying.took_s),
        "share_ratio": lying.share_ratio,
        "cost_ratio": lying.cost_ratio,
        "rhythm_cost_ratio": every.cost_ratio - lying.cost_ratio,  # what is left out, as the loop's own
        "pattern": shape.text,
        "kind": shape.name,
        "trimmed_mean_s": float(np.delete(lying.took_s, lying.indices).mean()),
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

    separation_ratio: Annotated[Share, "less than 2 % apart is within what placement does"] = 0.02
    minor_ratio: Annotated[Share, "a group of one in twenty; fewer are outliers"] = 0.05
    depth_ratio: Annotated[Share, "density between over density at the lower peak; a swinging clock leaves half of it"] = 0.25
    p: Annotated[Share, "that there is no valley: of a hundred such windows one may be wrong"] = 0.01
    centre_ratio: Annotated[Share, "two clean GEMM speeds 2.6 % apart, one in five slow: the median stays in the larger"] = (
        1 / 3
    )
    swing_ratio: Annotated[Share, "as far apart as the power controller alone moves a capped GEMM: ±3.6 %"] = 0.07


@rule(
    "bimodal",
    kind=RuleKind.BIAS,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="there are two speeds, {fast} ({fast_ratio:.0%} of iterations) and {slow}{cause}",
    remedy="Find what differs between them (clock, buffers, algorithm, a neighbour) and measure each by itself.",
)
def bimodal(case: Case, *, limits: BimodalLimits) -> Answer:
    """Finds iterations that run at two speeds, so that no single centre describes them.

    Why it matters:
        A median between two groups is a time that hardly any iteration took, and moves from one to the other by chance.
        Buffers, algorithms picked by trial, clocks and neighbours each make two groups.  A wrapper that keeps results makes
        two as well: calls that worked, and calls that returned early.

    What it cannot see:
        Three groups and more, of which it names two.  A single switch from one speed to another: ``iteration-levels``
        does.  Groups closer than the times are quantised.

    Remedy:
        Find what differs between the groups and measure each by itself.

    Source:
        A valley between two peaks, tested by counts that are first reduced to what they are worth in this order.
        Hartigan's dip takes iterations for independent, and they are not: with p < 0.01 it found two modes in 181 of 183
        windows of steady capped kernels.  Times are compared at one clock where stamps put them there, so that groups
        which the clock makes are none.  The bound of the medians is half of the separation, where the smaller group holds
        a third, else what it moves the median within the larger one; that of mean and throughput is their distance
        from either group that holds a fifth, and from the slow one where fewer are fast, of groups 7 % apart and more, unless ``varies=True`` claims the
        mean.  Unstamped, the power controller alone makes a capped GEMM 16384 run at two clocks 3.3 % apart: groups
        that close move nothing that the next window would not move as well, and neither does every tenth iteration of a
        harness.  H200, driver 580.159.04.
    """
    times = case.one_clock
    if len(times.took_s) < FEWEST_COUNT:
        return Unobserved("too few iterations to tell two speeds from one") if case.has_times else NO_ITERATION
    modes = two_modes(times.took_s, minor_ratio=limits.minor_ratio)
    if modes is None:
        return Clear()
    facts: dict[str, Fact] = {"separation_ratio": modes.separation_ratio, "depth_ratio": modes.depth_ratio, "p": modes.p}
    near = modes.separation_ratio <= limits.separation_ratio
    if near or modes.depth_ratio > limits.depth_ratio or modes.p >= limits.p:
        return Clear(facts)
    cause, is_own = _mode_cause(case, modes, limits)
    facts |= {
        "fast_s": modes.fast_s,
        "slow_s": modes.slow_s,
        "fast": readable(modes.fast_s),
        "slow": readable(modes.slow_s),
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
    if case.fact("varies") is True:  # of times that vary by design the mean is claimed
        bounds = tuple(each for each in bounds if each.number not in (Number.THROUGHPUT, Number.MEAN))
    return Found(facts=facts, bounds=bounds)


def _mode_cause(case: Case, modes: Modes, limits: BimodalLimits) -> tuple[str, bool]:
    """Return the words for what makes the two groups, and whether they are the work's own."""
    nth = every_count(np.flatnonzero(case.one_clock.took_s > modes.split_s))
    if nth:
        return f", most at every {nth}th iteration", True
    if case.one_clock.is_at_one_clock:
        return ", at the same true clock", False
    if modes.separation_ratio <= limits.swing_ratio and _is_capped(case):
        return ", as the power controller's two clocks make them", True
    return "", False


def _is_capped(case: Case) -> bool:
    """Return whether the power cap held for most of the window, by the witness."""
    held = power_cap(case.evidence)
    return held is not None and held.least_ratio > 0.5


RULES: tuple[Rule, ...] = (outliers, bimodal)
