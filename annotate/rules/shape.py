"""Rules about the shape of the times: single ones apart from the rest, or two groups."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from annotate.claims import Claim
from annotate.derived.held import power_cap
from annotate.evidence import Evidence, Fact, Timings
from annotate.ranges import Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule
from annotate.stats.robust import centre
from annotate.times.durations import NO_ITERATION, every_count, inside, readable
from annotate.times.modes import FEWEST_COUNT, Modes, two_modes
from annotate.times.outlying import outlying, pattern

# Fewer have no neighbours to lie apart from, and no group of their own.
_FEWEST_COUNT = 6


@rule(
    "outliers",
    kind=RuleKind.BIAS,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="{outliers_count} of {iterations_count} iterations lie apart and add {cost_ratio:.1%} to the time, {pattern}",
    remedy="Find what interrupts the work: another process on the GPU, a busy processor, or the loop itself.",
)
def outliers(
    evidence: Evidence,
    claim: Claim,
    *,
    share_ratio: Annotated[Share, "one in a hundred decides a 99th percentile"] = 0.01,
    note_ratio: Annotated[Share, "of the time: late ones that cost less change no number worth reporting"] = 0.005,
    cost_ratio: Annotated[Share, "of the time: clean windows of a launch-bound kernel of 18 µs lost 1.2 to 1.4 %"] = 0.02,
    wait_ratio: Annotated[Share, "of the time threads waited for a processor; an unloaded machine stays far below"] = 0.05,
) -> Answer:
    """Finds iterations that lie far from those around them, and says in what pattern.

    Why it matters:
        The pattern tells who interrupted.  A neighbour that computed for 50 ms each second left 14 iterations of 37 000
        longer by 2.3 ms each, the length of its turn on an H200: a median never shows it.

    What it cannot see:
        What makes every iteration longer.  An interruption between two iterations.  Slow swings: an iteration is compared
        with its half second.  Cold iterations are counted by another rule.

    Remedy:
        Stop the neighbour, free processors, or take out of the loop what it does now and then.  No iteration is ever
        dropped silently: the facts say what the late ones cost.

    Source:
        The time of each iteration.  A share above 1 % that costs more than 0.5 % is only noted: harnesses that synchronise
        every ten launches
        make every tenth iteration of a clean GEMM 8 to 30 % longer.  What is flagged is a time lost of 2 % in no regular
        order, or turns of another process, two or more: in 37 of 40 windows of 2 to 6 s beside that neighbour, and in none
        of 240 clean ones.  H200, driver 580.159.04.
    """
    times = inside(evidence)
    if len(times.took_s) < _FEWEST_COUNT:
        return Unobserved("too few iterations to say which lie apart") if len(times.took_s) else NO_ITERATION
    lying = outlying(times)
    waited_s, span_s = evidence.host.run_wait_s, evidence.host.span_s
    waited = waited_s is not None and bool(span_s) and waited_s > wait_ratio * (span_s or 0.0)
    shape = pattern(lying, waited=waited)
    facts: dict[str, Fact] = {
        "outliers_count": len(lying.indices),
        "iterations_count": len(lying.took_s),
        "share_ratio": lying.share_ratio,
        "cost_ratio": lying.cost_ratio,
        "pattern": shape.text,
        "kind": shape.name,
        "trimmed_mean_s": float(np.delete(lying.took_s, lying.indices).mean()),
        "mean_s": float(lying.took_s.mean()),
    }
    if shape.name == "time-slice":
        return Found(Severity.FLAG, facts, effect_ratio=lying.cost_ratio)
    if lying.cost_ratio > cost_ratio:
        return Found(Severity.NOTE if shape.name == "regular" else Severity.FLAG, facts, effect_ratio=lying.cost_ratio)
    noted = lying.share_ratio > share_ratio and lying.cost_ratio > note_ratio
    return Found(Severity.NOTE, facts) if noted else Clear(facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BimodalLimits:
    """The limits of ``bimodal``."""

    separation_ratio: Annotated[Share, "less than 2 % apart is within what placement does"] = 0.02
    minor_ratio: Annotated[Share, "a group of one in twenty; fewer are outliers"] = 0.05
    depth_ratio: Annotated[Share, "density between over density at the lower peak; a swinging clock leaves half of it"] = 0.25
    p: Annotated[Share, "that there is no valley: of a hundred such windows one may be wrong"] = 0.01
    centre_ratio: Annotated[Share, "a smaller group in a regular order leaves the median where it is"] = 0.2
    swing_ratio: Annotated[Share, "as far apart as the power controller alone moves a capped GEMM: ±3.6 %"] = 0.07
    explained_ratio: Annotated[Share, "of the separation; a kernel's time follows the clock by 0.7 to 1.05"] = 0.6


@rule(
    "bimodal",
    kind=RuleKind.BIAS,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="there are two speeds, {fast} ({fast_ratio:.0%} of iterations) and {slow}{cause}",
    remedy="Find what differs between them (clock, buffers, algorithm, a neighbour) and measure each by itself.",
)
def bimodal(evidence: Evidence, claim: Claim, *, limits: BimodalLimits) -> Answer:
    """Finds iterations that run at two speeds, so that no single centre stands for them.

    Why it matters:
        A median between two groups is a time that hardly any iteration took, and moves from one to the other by chance.
        Buffers, algorithms picked by trial, clocks and neighbours each make two groups.

    What it cannot see:
        Three groups and more, of which it names two.  A single switch from one speed to another: the rules about change
        over time do.  Groups closer than the times are quantised.

    Remedy:
        Find what differs between the groups and measure each by itself.

    Source:
        A valley between two peaks, tested by counts that are first reduced to what they are worth in this order.
        Hartigan's dip takes iterations for independent, and they are not: with p < 0.01 it found two modes in 181 of 183
        windows of steady capped kernels.  The power controller alone makes a capped GEMM 16384 run at two clocks 3.3 %
        apart: where the true clock, or the cap, explains the groups, they are only noted, and so is every tenth iteration
        of a harness.  None of 240 clean windows was flagged.  H200, driver 580.159.04.
    """
    times = inside(evidence)
    if len(times.took_s) < FEWEST_COUNT:
        return Unobserved("too few iterations to tell two speeds from one") if len(times.took_s) else NO_ITERATION
    modes = two_modes(times.took_s, minor_ratio=limits.minor_ratio)
    if (
        modes is None
        or modes.separation_ratio <= limits.separation_ratio
        or modes.depth_ratio > limits.depth_ratio
        or modes.p >= limits.p
    ):
        return Clear(
            {"separation_ratio": modes.separation_ratio, "depth_ratio": modes.depth_ratio, "p": modes.p} if modes else {}
        )
    by_clock = _by_clock(times, modes)
    nth = every_count(np.flatnonzero(times.took_s > modes.split_s))
    capped = by_clock is None and modes.separation_ratio <= limits.swing_ratio and _capped(evidence)
    harmless = False
    cause = ""
    if by_clock is not None and by_clock > limits.explained_ratio:
        cause, harmless = ", which the true clock explains", modes.separation_ratio <= limits.swing_ratio
    elif nth and modes.slow_ratio < limits.centre_ratio:
        cause, harmless = f", most at every {nth}th iteration", True
    elif capped:
        cause, harmless = ", as the power controller's two clocks make them", True
    elif by_clock is not None:
        cause = (
            ", at the same true clock" if by_clock < 1.0 - limits.explained_ratio else ", which the true clock explains in part"
        )
    facts: dict[str, Fact] = {
        "fast_s": modes.fast_s,
        "slow_s": modes.slow_s,
        "fast": readable(modes.fast_s),
        "slow": readable(modes.slow_s),
        "fast_ratio": 1.0 - modes.slow_ratio,
        "separation_ratio": modes.separation_ratio,
        "depth_ratio": modes.depth_ratio,
        "p": modes.p,
        "clock_explains_ratio": by_clock,
        "cause": cause,
    }
    return Found(Severity.NOTE if harmless else Severity.FLAG, facts)


def _by_clock(times: Timings, modes: Modes) -> float | None:
    """The share of the separation that the true clocks of the two groups account for, None where they were not stamped."""
    clock = times.sm_clock_mhz
    if clock is None:
        return None
    slow = times.took_s > modes.split_s
    groups = [clock[group & np.isfinite(clock)] for group in (slow, ~slow)]
    if any(len(group) < _FEWEST_COUNT for group in groups):
        return None
    slow_mhz, fast_mhz = (centre(group) for group in groups)
    return float(np.log(fast_mhz / slow_mhz) / np.log1p(modes.separation_ratio)) if min(slow_mhz, fast_mhz) > 0 else None


def _capped(evidence: Evidence) -> bool:
    """Return whether the power cap held for most of the window, by the witness."""
    held = power_cap(evidence)
    return held is not None and held.least_ratio > 0.5


RULES: tuple[Rule, ...] = (outliers, bimodal)
