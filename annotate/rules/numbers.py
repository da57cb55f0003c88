"""Rules about the times themselves: noise, correlation, a mean apart from the median, too few of them."""

from typing import Annotated

import numpy as np

from annotate.claims import Claim
from annotate.declared import text
from annotate.evidence import Evidence, Fact, Timings, Values
from annotate.ranges import Duration, PositiveShare, Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule
from annotate.stats.intervals import Interval, batch_interval, median_interval
from annotate.stats.robust import autocorrelations, centre
from annotate.times.durations import NO_ITERATION, inside, readable, usual_s, worth_count
from annotate.times.outlying import outlying, regular

# Below six values no two order statistics hold a median with 95 %.
_FEWEST_COUNT = 6
# Fewer make no eight batches of ten; beyond this lag-1 correlation they are no independent values either.
_BATCHES_COUNT, _ALIKE = 80, 0.3


@rule(
    "noisy",
    kind=RuleKind.BIAS,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="the median is known to ±{half_width_ratio:.1%} only",
    remedy="Measure for {needed_s:.0f} s or more, hold the clock, or compare with interleaved runs.",
)
def noisy(
    evidence: Evidence,
    claim: Claim,
    *,
    note_ratio: Annotated[PositiveShare, "the smallest effect users care for is 1 %: a median less sure cannot show it"] = 0.01,
    flag_ratio: Annotated[
        Share, "steady power-capped kernels gave up to 2.9 % in 3 s (an FFT), while their windows' medians lay 0.5 % apart"
    ] = 0.03,
    reject_ratio: Annotated[Share, "so wide, the number is a guess"] = 0.1,
) -> Answer:
    """Finds a window whose median is not known well enough to mean anything.

    Why it matters:
        A number that would come out otherwise by several per cent in the next second cannot tell two kernels apart.

    What it cannot see:
        Whether the next window would lie elsewhere altogether: placement, heat and the other days of a machine are in no
        single window.  The width where batches of iterations resemble their neighbours to the end of the window (it says
        so): a drift, or a swing slower than the window is long.

    Remedy:
        A window of several seconds, a fixed clock, or interleaved runs when two kernels are compared.

    Source:
        The t interval of the medians of contiguous batches of iterations.  The spread of single iterations does not
        decide: that of a steady power-capped GEMM is 3 % while the median of 3 s is good to 0.3 %.  Of 240 windows of 2 to
        6 s slid over eleven clean recordings of an H200 two were above 2 %, both of 2 s; of the 113 from 3 s on, none.
        An FFT on four others gave 2.1-2.9 %, with 0.5 % between its windows, hence the limit.
    """
    times = inside(evidence)
    if not len(times.took_s):
        return NO_ITERATION
    interval = _interval(times)
    if interval is None:
        return Unobserved("iterations are too few, or resemble those before too much, to tell how sure their median is")
    width_ratio = interval.half_width_ratio
    span_s = float(times.at_ns[-1] - times.at_ns[0]) / 1e9 + float(times.took_s[-1]) * times.calls_count
    facts: dict[str, Fact] = {
        "half_width_ratio": width_ratio,
        "median_s": interval.centre,
        "low_s": interval.low,
        "high_s": interval.high,
        "batches_count": interval.blocks_count,
        "needed_s": span_s * (width_ratio / note_ratio) ** 2,
    }
    if width_ratio <= note_ratio:
        return Clear(facts)
    if width_ratio <= flag_ratio:
        return Found(Severity.NOTE, facts)
    return Found(Severity.REJECT if width_ratio > reject_ratio else Severity.FLAG, facts)


@rule(
    "autocorrelated",
    kind=RuleKind.BIAS,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="{iterations_count} iterations carry the information of {effective_count:.0f}: the mean is known to ±{half_width_ratio:.1%}",
    remedy="Take the interval from means of batches, not from single iterations, or measure for longer.",
)
def autocorrelated(
    evidence: Evidence,
    claim: Claim,
    *,
    least_ratio: Annotated[
        Share, "of the iterations; with a fifth an interval of independent ones is 2.2 times too narrow"
    ] = 0.2,
    error_ratio: Annotated[Share, "half of the smallest effect users care for: a mean surer than this misleads nobody"] = 0.005,
    noisy_ratio: Annotated[Share, "a median less sure than this is flagged as noisy, which says more"] = 0.03,
) -> Answer:
    """Notes times the caller took that resemble those before them, so that there are fewer than counted.

    Why it matters:
        A standard error of thousands of iterations promises a tenth of a per cent where the next window differs by one:
        a stopping rule at 0.1 % ended a capped GEMM 4096 after 690 iterations, and its results scattered by 1.5 %.

    What it cannot see:
        Correlation over longer than the window.

    Remedy:
        None is needed where intervals are those of gpuwatch, which take batches.

    Source:
        Geyer's initial positive sequence.  H200, capped GEMM 4096: 87 of 21 555.  It is worth a note where the mean is known
        to no better than 0.5 %, though a formula for independent values promises more than twice as much; and not where
        gpuwatch took the times, which knows: the count is in the facts then.
    """
    times = inside(evidence)
    if len(times.took_s) < _FEWEST_COUNT:
        return Unobserved("too few iterations to compare them with those before") if len(times.took_s) else NO_ITERATION
    # One very late iteration would outweigh all others, and it resembles none.
    middle_s, noise_s = usual_s(times.took_s)
    kept_s = np.clip(times.took_s, middle_s - 5.0 * noise_s, middle_s + 5.0 * noise_s)
    worth = worth_count(kept_s)
    sure_ratio = float(1.96 * kept_s.std() / np.sqrt(worth) / kept_s.mean())
    facts: dict[str, Fact] = {
        "iterations_count": len(times.took_s),
        "effective_count": worth,
        "half_width_ratio": sure_ratio,
    }
    # Timers of gpuwatch, whose intervals are those of batches.
    own = text(evidence.declared, "timer") in ("events", "graph", "host")
    misleads = worth < least_ratio * len(times.took_s) and sure_ratio > error_ratio
    if misleads and (interval := _interval(times)) is not None:
        misleads = interval.half_width_ratio <= noisy_ratio
    return Found(Severity.NOTE, facts) if misleads and not own else Clear(facts)


@rule(
    "mean-vs-median-gap",
    kind=RuleKind.LABEL,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="the mean is {mean} and the median {median}{cause}",
    remedy="Say which of the two is claimed, and find the iterations that draw the mean away.",
)
def mean_vs_median_gap(
    evidence: Evidence,
    claim: Claim,
    *,
    note_ratio: Annotated[Share, "clean windows of long kernels stay below 3 %"] = 0.03,
    flag_ratio: Annotated[Share, "a clean GEMM of 26 µs, launched ten at a time, gave 3.7 %"] = 0.05,
    rest_ratio: Annotated[
        Share, "what is left of 5 % then: the cold and late ones cost 3 %, which their own rules flag"
    ] = 0.02,
) -> Answer:
    """Finds a window in which mean and median are different numbers, so that "the time" is not one.

    Why it matters:
        With 16 busy processes on 16 processors a GEMM on an H200 took 0.17 ms by the median and 1.10 ms by the mean:
        throughput follows the mean, and a headline the median.

    What it cannot see:
        Which of the two is meant.

    Remedy:
        Report both, and look at what the outliers, cold iterations or modes are said to be.

    Source:
        The time of each iteration, cold ones included, as a mean would include them.  Where the gap is gone without the
        cold and the late ones, these are the finding, of ``cold-start`` and ``outliers``, and the gap is only noted.
    """
    times = inside(evidence)
    if len(times.took_s) < 3:
        return (
            Unobserved("the mean and the median of fewer than three iterations are one") if len(times.took_s) else NO_ITERATION
        )
    mean_s, median_s = float(times.took_s.mean()), centre(times.took_s)
    gap_ratio = mean_s / median_s - 1.0
    facts: dict[str, Fact] = {
        "mean_s": mean_s,
        "median_s": median_s,
        "mean": readable(mean_s),
        "median": readable(median_s),
        "gap_ratio": gap_ratio,
    }
    if abs(gap_ratio) <= note_ratio:
        return Clear(facts)
    lying = outlying(times)
    rest_s = np.delete(lying.took_s, lying.indices)
    # What a harness does at every Nth iteration is noted there, so here it stays a finding.
    explained = (
        len(rest_s) >= _FEWEST_COUNT and regular(lying) is None and abs(rest_s.mean() / centre(rest_s) - 1.0) <= rest_ratio
    )
    facts["cause"] = ", by the cold and late iterations alone" if explained else ""
    return Found(Severity.FLAG if abs(gap_ratio) > flag_ratio and not explained else Severity.NOTE, facts)


@rule(
    "too-few-samples",
    kind=RuleKind.BIAS,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="{iterations_count} timed iterations are fewer than the {needed_count} this needs",
    remedy="Time at least {needed_count} iterations.",
)
def too_few_samples(
    evidence: Evidence,
    claim: Claim,
    *,
    target_ratio: Annotated[PositiveShare, "the smallest effect users care for"] = 0.01,
    long_s: Annotated[Duration, "an entry this long averages over the controller's period by itself"] = 1.0,
) -> Answer:
    """Finds a number that rests on too few iterations to have an error.

    Why it matters:
        Below six values nothing bounds a median with 95 %, and below four in each variant no test can tell two kernels apart.

    What it cannot see:
        How many iterations are worth as many independent ones: this is the count that would do if all were, the least
        there is.  An entry that stands for a batch of calls counts once.

    Remedy:
        More iterations.

    Source:
        Six values for an interval of the median; beyond that, where they resemble those before too much for an interval,
        (1.96 times the robust spread over the target) squared.  Three do where each takes a second or more.
    """
    times = inside(evidence)
    count = len(times.took_s)
    if not count:
        return NO_ITERATION
    median_s, noise_s = usual_s(times.took_s)
    fewest = 3 if median_s * times.calls_count >= long_s else _FEWEST_COUNT
    noise_ratio = noise_s / median_s
    needed = max(fewest, int(np.ceil(np.square(1.96 * noise_ratio / target_ratio))))
    facts: dict[str, Fact] = {"iterations_count": count, "needed_count": needed, "noise_ratio": noise_ratio}
    # Where the median's own interval is known, it decides, and its rule says so.
    if count >= needed or (count >= fewest and _interval(times) is not None):
        return Clear(facts)
    compared = evidence.baseline is not None or text(evidence.declared, "design") is not None
    return Found(Severity.REJECT if compared and count < fewest else Severity.FLAG, facts)


def _interval(times: Timings) -> Interval | None:
    """Find where the median lies, by batches or, of few independent values, by order; None where it cannot be told."""
    return batch_interval(times.at_ns, times.took_s) or _of_few(times.took_s)


def _of_few(took_s: Values) -> Interval | None:
    """An interval where there are too few iterations for batches, if those there are do not resemble those before."""
    if not _FEWEST_COUNT <= len(took_s) < _BATCHES_COUNT or autocorrelations(took_s)[1] > _ALIKE:
        return None
    return median_interval(took_s)


RULES: tuple[Rule, ...] = (noisy, autocorrelated, mean_vs_median_gap, too_few_samples)
