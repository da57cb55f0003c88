"""The rule about warm-up: first calls that load, compile or fault memory in."""

from collections.abc import Mapping

from annotate.budget import Bound, Estimate, Group, Number
from annotate.case import Case
from annotate.evidence import Fact, Timings
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Unobserved, rule
from annotate.stats.robust import centre
from annotate.times.cold import cold_prefix_count
from annotate.times.durations import NO_ITERATION


@rule(
    "cold-start",
    kind=RuleKind.BIAS,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="{first} cold, up to {slow_ratio:.3g} times the median: this lengthens the mean by {mean_change_ratio:.1%}{unwarmed}",
    remedy="Warm up with at least {warmup_count} calls of the same shapes before the window.",
)
def cold_start(case: Case) -> Answer:
    """Finds first calls that loaded, compiled or faulted their memory in, inside the measured window.

    Why it matters:
        On an H200 the first GEMM of a process took 70 ms and the second 0.25 ms; 0.2 ms is usual.  Over 1.5 s the first call
        makes the mean 5 % longer.

    Limits of detection:
        A window in which no call was warm.  Cold calls of later shapes: ``outliers`` finds them.  A warm-up that was too
        short for clocks and heat.

    Remedy:
        Warm up with the same shapes: an empty kernel does not load the measured code.

    Source:
        The times of the first iterations, up to the first five usual ones in a row.  The first time must exceed 1.3 medians,
        or 1.08 medians and ten robust standard deviations.  The bias is exact: mean and median of all calls against those of
        the warm calls, and the lost time in the window.  A first call after a pause is slow in most clean recordings and
        costs less than 0.1 %.
    """
    times = case.timings
    if len(times.took_s) < 2:
        return Unobserved("with one iteration there is no warm one to compare") if len(times.took_s) else NO_ITERATION
    count = cold_prefix_count(times.took_s)
    if not count:
        return Clear({"cold_count": 0})
    warm_s = times.took_s[count:]
    usual_s = centre(warm_s)
    changes = _deviations(times, count, usual_s, case.evidence.window.length_s)
    cold_count = count * times.calls_count
    facts: dict[str, Fact] = {
        "cold_count": cold_count,
        "slow_ratio": float(times.took_s[:count].max() / usual_s),
        "mean_change_ratio": changes[Number.MEAN],
        "median_change_ratio": changes[Number.MEDIAN],
        "warm_mean_s": float(warm_s.mean()),
        "warm_median_s": usual_s,
        "warmup_count": (count + 5) * times.calls_count,
        "first": "the first call was" if cold_count == 1 else f"the first {cold_count} calls were",
        "unwarmed": ", and there was no warm-up" if _is_unwarmed(case) else "",
    }
    span_ns = int(times.at_ns[0]), int(times.at_ns[count])
    bounds = tuple(
        Bound(
            number=number,
            rule=cold_start.name,
            group=Group.INSIDE,
            ratio=abs(ratio),
            estimate=Estimate(ratio, ratio, ratio),
            span_ns=span_ns,
        )
        for number, ratio in changes.items()
    )
    return Found(facts=facts, span_ns=span_ns, bounds=bounds)


def _deviations(times: Timings, count: int, usual_s: float, window_s: float) -> dict[Number, float]:
    """Return the deviation of each number from that of the warm entries, which follow the first ``count`` entries.

    ``usual_s`` is the median of the warm entries.
    """
    warm_s = times.took_s[count:]
    excess_s = float((times.took_s[:count] - warm_s.mean()).sum()) * times.calls_count
    return {
        Number.THROUGHPUT: -min(max(0.0, excess_s / window_s), 1.0),
        Number.MEAN: float(times.took_s.mean() / warm_s.mean()) - 1.0,
        Number.MEDIAN: centre(times.took_s) / usual_s - 1.0,
    }


def _is_unwarmed(case: Case) -> bool:
    warmed = case.fact("warmup_count")
    return isinstance(warmed, int) and not isinstance(warmed, bool) and warmed == 0


RULES: tuple[Rule, ...] = (cold_start,)
RETIRED: Mapping[str, str] = {"mid-run-compile": "the cause that idle-stretch and outliers name"}
RETIRED_LIMITS: Mapping[str, tuple[str, ...]] = {cold_start.name: ("note_ratio", "flag_ratio", "reject_ratio")}
