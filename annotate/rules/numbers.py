"""A rule about the numbers themselves: a mean apart from the median."""

from collections.abc import Mapping
from typing import Annotated

import numpy as np

from annotate.case import Case
from annotate.evidence import Fact
from annotate.ranges import Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Unobserved, rule
from annotate.stats.robust import centre
from annotate.times.durations import NO_ITERATION, readable
from annotate.times.outlying import outlying

_FEWEST_COUNT = 6  # iterations left beside the cold and the late ones: fewer have no mean of their own

RETIRED: Mapping[str, str] = {
    "noisy": "the repeatability of each number (proof 5), which `precision` holds to a limit",
    "autocorrelated": "the long-run variance behind each repeatability (proof 5)",
    "too-few-samples": "proof 5, which is not shown with fewer than 6 iterations (3 of a second each)",
}
RETIRED_LIMITS: Mapping[str, tuple[str, ...]] = {"mean-vs-median-gap": ("flag_ratio",)}


@rule(
    "mean-vs-median-gap",
    kind=RuleKind.LABEL,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="mean {mean}, median {median}{cause}",
    remedy="Say which of the two is claimed, and find the iterations that draw the mean away.",
)
def mean_vs_median_gap(
    case: Case,
    *,
    note_ratio: Annotated[Share, "clean windows of long kernels stay below 3 %"] = 0.03,
    rest_ratio: Annotated[Share, "without the cold and the late ones a clean GEMM of 26 µs is left with less"] = 0.02,
) -> Answer:
    """Finds a window in which mean and median are different numbers, so that "the time" is not one.

    Why it matters:
        With 16 busy processes on 16 processors a GEMM on an H200 took 0.17 ms by the median and 1.10 ms by the mean:
        throughput follows the mean, and a headline the median.

    What it cannot see:
        Which of the two is meant.  Whether the gap is the work's own: other rules bound what outliers, cold iterations,
        levels and modes did to each number.

    Remedy:
        Report both, and read what the verdict says of outliers, cold iterations or modes.

    Source:
        The time of each iteration, cold ones included, as a mean would include them.  Where the gap is gone without the
        cold and the late ones, the label says so.
    """
    took_s = case.timings.took_s
    if len(took_s) < 3:
        return Unobserved("the mean and the median of fewer than three iterations are one") if len(took_s) else NO_ITERATION
    mean_s, median_s = float(took_s.mean()), centre(took_s)
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
    lying = outlying(case.timings)
    rest_s = np.delete(lying.took_s, lying.indices)
    explained = len(rest_s) >= _FEWEST_COUNT and abs(float(rest_s.mean()) / centre(rest_s) - 1.0) <= rest_ratio
    facts["cause"] = " (by cold and late iterations alone)" if explained else ""
    return Found(facts=facts)


RULES: tuple[Rule, ...] = (mean_vs_median_gap,)
