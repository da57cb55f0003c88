"""Rules about the design of a comparison: the order of the runs, the noise floor, and the number of variants."""

from typing import Annotated

import numpy as np

from annotate.budget import Bound, Estimate, Group, Number
from annotate.case import Case
from annotate.claims import Claim
from annotate.derived import pair_conditions
from annotate.evidence import Evidence, Fact
from annotate.ranges import Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Unobserved, rule


@rule(
    "order-bias",
    kind=RuleKind.BIAS,
    needs=("baseline",),
    basis=Basis.BASELINE,
    says="the two were timed one after the other, which alone can cause a difference of {bound_ratio:.1%}{against}",
    remedy="Interleave them in one process: gpuwatch.compare.",
)
def order_bias(
    case: Case,
    *,
    drift_ratio: Annotated[Share, "95th percentile of identical work in sequence on an H200: 0.5 to 3.2 % by kernel"] = 0.032,
) -> Answer:
    """Finds a comparison of windows that ran one after the other.

    Why it matters:
        The GPU warms up and its power controller swings with a period near a second, so the second variant runs under other
        conditions.  Identical GEMMs in sequence differed by 3.2 %, interleaved ones by 0.04 %.

    Limits of detection:
        The effect of the order in this pair.  The bound is the same for every sequential pair, has no sign, and never
        rejects.

    Remedy:
        Interleave blocks of a few milliseconds (``gpuwatch.compare``).

    Source:
        The overlap of the two windows in time.  The rule accepts a declared ``design`` of ``sequential``, but not one of
        ``interleaved``.  The bound is the difference of two windows of the same work: the repeatability of both medians if
        this work has a record, else 3.2 %.
    """
    evidence, base = case.evidence, case.evidence.baseline
    if base is None:
        return Unobserved("the window was not compared with another one")
    if pair_conditions.overlap_ratio(base, evidence) >= 0.5 and evidence.declared.get("design") != "sequential":
        return Clear()
    change = pair_conditions.change_ratio(base, evidence)
    against = "" if change is None else f", against the {change:+.1%} between them"
    known = [_repeatability(each) for each in (Case(base, case.claim), case)]
    bound_ratio = drift_ratio if known[0] is None or known[1] is None else float(np.hypot(known[0], known[1]))
    facts: dict[str, Fact] = {"bound_ratio": bound_ratio, "against": against}
    if change is not None:
        facts["change_ratio"] = change
    bound = Bound(number=Number.RATIO, rule=order_bias.name, group=Group.PAIR, ratio=bound_ratio)
    return Found(facts=facts, bounds=(bound,))


def _repeatability(case: Case) -> float | None:
    """Return the repeatability of the median over windows of this work; None without times or a record.

    The interval of one window is too small: power controller and order change the median by more.
    """
    if not case.has_times:
        return None
    found = case.numbers.number(Number.MEDIAN).repeatability
    return found.ratio if found.between_ratio is not None else None


@rule(
    "aa-noise-floor-missing",
    kind=RuleKind.LABEL,
    needs=("baseline",),
    basis=Basis.BASELINE,
    says="noise floor not measured: differences below {fallback_ratio:.0%} are not significant",
    remedy="Run `gpuwatch selftest` once on this GPU.",
)
def aa_noise_floor_missing(
    evidence: Evidence,
    claim: Claim,
    *,
    fallback_ratio: Annotated[Share, "sequential A/A on an H200 differed by up to 3.2 % (95th percentile)"] = 0.03,
) -> Answer:
    """Finds a comparison on a GPU without a measured noise floor between equal variants.

    Why it matters:
        A difference counts only if it exceeds the difference of the same code against itself on this GPU.  Significance
        tests on raw samples of one kernel reported a difference in 86 % of the cases.

    Limits of detection:
        A declared floor that was measured with another kind of kernel.

    Remedy:
        Run ``gpuwatch selftest`` once: it takes about six minutes and stores the noise floor of this GPU.

    Source:
        The declared ``aa_floor_ratio``, which ``gpuwatch.compare`` takes from the self-test on record.
    """
    floor = evidence.declared.get("aa_floor_ratio")
    if isinstance(floor, int | float) and not isinstance(floor, bool) and 0.0 < floor < 1.0:
        return Clear({"aa_floor_ratio": float(floor)})
    return Found(facts={"fallback_ratio": fallback_ratio})


@rule(
    "multiple-looks",
    kind=RuleKind.BIAS,
    needs=("baseline", "declared.variants_count"),
    basis=Basis.BASELINE,
    says="{variants_count} variants were tried, and the best can look {luck_ratio:.1%} better by chance alone",
    remedy="Test each difference at a level of {level_ratio:.2%} (Holm), and measure the winner again.",
)
def multiple_looks(
    case: Case,
    *,
    noise_ratio: Annotated[Share, "without times: the standard deviation of 100 ms medians of a capped GEMM"] = 0.014,
) -> Answer:
    """Finds a variant that was chosen from several by the same times that are reported.

    Why it matters:
        The best of 20 equal variants with 1.4 % noise looks 2.6 % better than it is.

    Limits of detection:
        Undeclared variants, and the number of equal variants.

    Remedy:
        Use Holm's level for each difference (``gpuwatch.compare`` does, for more than two variants), and time the winner
        once more in a separate run.

    Source:
        The declared count of variants, and the expected largest of this number of normal values (Blom 1958); Holm 1979.
    """
    count = case.fact("variants_count")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count < 10**9:
        return Unobserved("the declared variants_count is invalid: expected an integer from 1 to 999999999")
    if count == 1:
        return Clear({"variants_count": 1})
    noise = pair_conditions.noise_ratio(case.evidence) or noise_ratio
    luck = noise * float(_normal_quantile((count - 0.375) / (count + 0.25)))
    facts: dict[str, Fact] = {"variants_count": count, "luck_ratio": luck, "level_ratio": 0.05 / count}
    # Chance only makes the winner look faster.
    bound = Bound(
        number=Number.RATIO, rule=multiple_looks.name, group=Group.PAIR, ratio=luck, estimate=Estimate(-luck, -luck, 0.0)
    )
    return Found(facts=facts, bounds=(bound,))


def _normal_quantile(share: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(share))


RULES: tuple[Rule, ...] = (order_bias, aa_noise_floor_missing, multiple_looks)
