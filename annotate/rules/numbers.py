"""A rule about the numbers themselves: a mean apart from the median."""

from collections.abc import Mapping
from typing import Annotated

import numpy as np

from annotate.case import Case
from annotate.evidence import Fact
from annotate.ranges import Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Unobserved, rule
from annotate.stats.robust import centre
from annotate.times.durations import NO_ITERATION, readable_pair
from annotate.times.outlying import outlying

_FEWEST_COUNT = 6  # iterations that remain without the cold and outlying ones: fewer do not give a useful mean

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
    remedy="State which of the two is claimed, and find the iterations that shift the mean.",
)
def mean_vs_median_gap(
    case: Case,
    *,
    note_ratio: Annotated[Share, "clean windows of long kernels stay below 3 %"] = 0.03,
    rest_ratio: Annotated[Share, "without cold and late iterations, a clean GEMM of 26 µs keeps a smaller gap"] = 0.02,
) -> Answer:
    """Finds a window whose mean and median differ, so that "the time" is ambiguous.

    Why it matters:
        With 16 busy processes on 16 cores, a GEMM on an H200 took 0.17 ms by the median and 1.10 ms by the mean.
        Throughput follows the mean, but headlines quote the median.

    Limits of detection:
        The intended number.  The cause of the gap: other rules bound the effects of outliers, cold iterations, levels and
        modes on each number.

    Remedy:
        Report both, and read the verdict's findings about outliers, cold iterations or modes.

    Source:
        The time of each iteration, cold ones included.  If the gap vanishes without the cold and late iterations, the label
        states that.
    """
    took_s = case.timings.took_s
    if len(took_s) < 3:
        return Unobserved("fewer than three iterations have equal mean and median") if len(took_s) else NO_ITERATION
    mean_s, median_s = float(took_s.mean()), centre(took_s)
    gap_ratio = mean_s / median_s - 1.0
    mean, median = readable_pair(mean_s, median_s)
    facts: dict[str, Fact] = {
        "mean_s": mean_s,
        "median_s": median_s,
        "mean": mean,
        "median": median,
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
