"""The timed part of the output: the decision, the reasons, the times, the roofline, the counters and a sweep."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from annotate.amount_words import amount_text, duration_text
from gpuwatch.diff.explained_pair import ExplainedPair
from gpuwatch.diff.kernel_counters import METRICS, REPLAY_CAVEAT, TRAFFIC, CounterMetric, Counters
from gpuwatch.diff.kernel_roofline import KernelRoofline
from gpuwatch.diff.sweep import ShapeSweep
from gpuwatch.diff.timed_pair import TimedPair

Row = Sequence[str]
Table = Callable[[Row, Sequence[Row]], str]  # from a header and rows
# Under a power limit, each kernel runs at its own clock.  Up to this gap, the two ratios count as equal.
_GAP_RATIO = 0.005
_NARROW_RATIO = 0.002  # an interval narrower than this is shown with four decimals
_NOT_KNOWN = "not known"
SIMULATED = (
    "SIMULATED: this GPU does not exist, and no kernel ran; times and activity come from a model, the compared code is real"
)


def headlines(found: Sequence[ExplainedPair], names: Sequence[str]) -> Iterator[str]:
    """Yield the SIMULATED banner if a pair is simulated, then each pair's decision and own-clock ratio."""
    if any(each.is_simulated for each in found):
        yield SIMULATED
    for each, name in zip(found, names, strict=True):
        yield f"{f'{name}: ' if len(names) > 1 else ''}{decision_line(each.timed)}"
        yield from own_clock_lines(each.timed)


def timed_lines(found: ExplainedPair, table: Table) -> Iterator[str]:
    """Yield the lines above the comparison of the code; an empty line ends a paragraph."""
    yield from ["why:", *(f"{number}. {each}" for number, each in enumerate(found.reasons, start=1))]
    yield from [] if found.reasons else [found.why_none]
    yield ""
    if found.timed.a is not None:
        groups = row_groups(found).items()
        cells = [("" if number else group, *row) for group, rows in groups for number, row in enumerate(rows)]
        yield from (table(("", "", "A", "B", "change"), cells), "")
    yield from conditions(found)
    yield ""


def conditions(found: ExplainedPair) -> Iterator[str]:
    """Yield the conditions of times and counters."""
    timed = found.timed
    if found.peaks is not None:
        yield f"window: {timed.verdict or 'none'} on {found.peaks.device.name}"
        sizes = "".join(f", {name}={size}" for name, size in timed.sizes.items())
        cache = f"{timed.cache} L2 cache" if timed.cache else "L2 cache not controlled"
        yield from [f"timed: {cache}, {timed.pairs_count} pairs{sizes}"] if timed.pairs_count else []
        yield f"{found.peaks.says}, at the {found.peak_clock}"
    yield from [f"launches: A {timed.launches[0]}; B {timed.launches[1]}"] if any(timed.launches) else []
    yield from timed.notes
    yield f"counters: {found.counters.says}"
    yield from [REPLAY_CAVEAT] if found.counters.source == "ncu" else []


def decision_line(timed: TimedPair) -> str:
    """Return the decision with ratio (A's time over B's), interval and clock; without a ratio, with the reason."""
    if timed.ratio is None or timed.ratio_low is None or timed.ratio_high is None:
        return f"{timed.decision}: {timed.reason}"
    clocks = [each.true_clock_mhz for each in (timed.a, timed.b) if each is not None and each.true_clock_mhz]
    at = f" at one clock, {sum(clocks) / len(clocks):.0f} MHz true" if clocks else ", clock not known"
    decimals = 3 if timed.ratio_high - timed.ratio_low >= _NARROW_RATIO else 4
    ratio, low, high = (f"{each:.{decimals}f}" for each in (timed.ratio, timed.ratio_low, timed.ratio_high))
    text = f"{timed.decision} {ratio}x [{low}, {high}]{at}"
    return f"{text}: {timed.reason}" if timed.reason else text


def own_clock_lines(timed: TimedPair) -> Iterator[str]:
    """Yield the ratio at each side's own clock, if measured, and whether a power limit changes the ratio."""
    if timed.ratio and timed.own_clock_ratio:
        is_limited = abs(timed.own_clock_ratio / timed.ratio - 1) > _GAP_RATIO
        yield f"{timed.own_clock_ratio:.3f}x each at its own clock{': power limits them' if is_limited else ', too'}"


def sweep_lines(sweep: ShapeSweep) -> Iterator[str]:
    """Yield a line for each point of a sweep, then the trend, the crossover and the note on Holm's correction."""
    width = max(len(str(each)) for each in sweep.points)
    for each in sweep.points:
        yield "; ".join((f"{each!s:<{width}}  {decision_line(each.timed)}", *own_clock_lines(each.timed)))
    trend = sweep.trend
    if trend is not None:
        change = f"{trend.growth - 1:+.1%} [{trend.low - 1:+.1%}, {trend.high - 1:+.1%}]"
        yield f"trend: B's ratio changes by {change} with each doubling of {trend.name}{'' if trend.is_clear else ' ?'}"
    if sweep.crossover is not None:
        yield f"crossover: both are equally fast near {sweep.crossover:.3g}"
    yield f"Differences hold among all {len(sweep.points)} points (Holm's correction)."


def row_groups(found: ExplainedPair) -> dict[str, list[Row]]:
    """Return the rows of times, roofline and counters by group, without unknown rows and counters with equal texts."""
    timed, groups = found.timed, defaultdict[str, list[Row]](list)
    if timed.a and timed.b:
        change = f"{timed.b.median_s / timed.a.median_s - 1:+.1%}"
        groups["time"].append(("median of a call", *(duration_text(each.median_s) for each in (timed.a, timed.b)), change))
    if found.a and found.b:
        groups["roofline"] += [row for row in _roofline_rows(found.a, found.b) if set(row[1:3]) != {_NOT_KNOWN}]
    for metric in METRICS:
        row = _counter_row(metric, found.counters)
        if row is not None and row[1] != row[2] and metric.name != TRAFFIC:  # the roofline shows the traffic
            groups[metric.group].append(row)
    return groups


def _roofline_rows(a: KernelRoofline, b: KernelRoofline) -> Iterator[Row]:
    both = (a, b)
    yield "of the memory's peak", *(_share(each.memory_ratio, "≥ " if each.is_lower_bound else "") for each in both), ""
    yield "of the arithmetic's peak", *(_share(each.compute_ratio) for each in both), ""
    yield "bound", *(each.bound or _NOT_KNOWN for each in both), ""
    yield "headroom", *(_share(each.headroom_ratio, "≤ " if each.is_lower_bound else "") for each in both), ""
    mark = ["≥ " if each.is_lower_traffic else "" for each in both]
    yield "traffic", *(f"{m}{amount_text(each.traffic_bytes or 0.0, 'B')}" for m, each in zip(mark, both, strict=True)), ""
    yield "operations per byte", *(f"{each.intensity:.3g}" if each.intensity else _NOT_KNOWN for each in both), ""
    rates = (amount_text(each.flops_a_second, "FLOP/s") if each.flops_a_second else _NOT_KNOWN for each in both)
    yield "operations a second", *rates, ""


def _counter_row(metric: CounterMetric, counters: Counters) -> Row | None:
    """Return a counter's row, with ``?`` if the difference's interval includes zero; None if a side has no reading."""
    a, b = counters.mean("a", metric.name), counters.mean("b", metric.name)
    if a is None or b is None:
        return None
    mark = " ?" if counters.is_uncertain(metric.name) else ""
    if metric.is_share:
        return metric.title, f"{a:.1%}", f"{b:.1%}", f"{(b - a) * 100:+.1f} pp{mark}"
    texts = [f"{each:,.0f}".replace(",", " ") for each in (a, b)]
    return metric.title, *texts, f"{b / a - 1:+.1%}{mark}" if a else f"{b - a:+,.0f}{mark}".replace(",", " ")


def _share(ratio: float | None, mark: str = "") -> str:
    return _NOT_KNOWN if ratio is None else f"{mark}{ratio:.1%}"
