"""Decisions, times and sweeps of timed pairs as lines of text."""

from collections.abc import Iterator

from gpuwatch.diff.sweep import ShapeSweep
from gpuwatch.diff.timed_pair import TimedPair


def decision_text(timed: TimedPair) -> str:
    """Return a decision with its ratio: A's time over B's, so that more than 1 is faster."""
    if timed.ratio is None or timed.ratio_low is None or timed.ratio_high is None:
        return f"{timed.decision}: {timed.reason}"
    mhz = timed.a.true_clock_mhz if timed.a is not None else None
    text = f"{timed.decision} {timed.ratio:.3f}x [{timed.ratio_low:.3f}, {timed.ratio_high:.3f}] at one clock"
    text += f", {mhz:.0f} MHz true" if mhz else ""
    text += f"; {timed.own_clock_ratio:.3f}x each at its own clock" if timed.own_clock_ratio else ""
    return f"{text}: {timed.reason}" if timed.reason else text


def sweep_lines(sweep: ShapeSweep) -> Iterator[str]:
    """Yield a line for each point of a sweep, then the trend and the crossover."""
    width = max(len(str(each)) for each in sweep.points)
    for each in sweep.points:
        yield f"{each!s:<{width}}  {decision_text(each.timed)}"
    trend = sweep.trend
    if trend is not None:
        change = f"{trend.growth - 1:+.1%} [{trend.low - 1:+.1%}, {trend.high - 1:+.1%}]"
        yield f"trend: B's ratio changes by {change} with each doubling of {trend.name}{'' if trend.is_clear else ' ?'}"
    if sweep.crossover is not None:
        yield f"crossover: both are equally fast near {sweep.crossover:.3g}"
    yield f"Differences hold among all {len(sweep.points)} points (Holm's correction)."
