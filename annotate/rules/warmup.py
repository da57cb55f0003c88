"""Rules about warm-up: first calls that load, compile and fault, and compilations later on."""

from typing import Annotated

import numpy as np

from annotate.claims import Claim
from annotate.evidence import Evidence, Fact
from annotate.ranges import Count, Duration, Factor, Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule
from annotate.stats.robust import centre
from annotate.times.cold import cold_prefix_count
from annotate.times.durations import NO_ITERATION, inside, readable


@rule(
    "cold-start",
    kind=RuleKind.BIAS,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="{first} cold, up to {slow_ratio:.3g} times the median{weight}",
    remedy="Warm up with at least {warmup_count} calls of the same shapes before the window.",
)
def cold_start(
    evidence: Evidence,
    claim: Claim,
    *,
    note_ratio: Annotated[Share, "of the mean: a first call that costs less moves no digit that anybody quotes"] = 0.001,
    flag_ratio: Annotated[Share, "of the mean: the smallest effect users care for"] = 0.01,
    reject_ratio: Annotated[Share, "the number is then that of loading, not of running"] = 0.1,
) -> Answer:
    """Finds first calls that loaded, compiled or faulted their memory in, inside the measured window.

    Why it matters:
        The first GEMM of a process took 70 ms on an H200 and the second 0.25 ms, where 0.2 ms is usual: over 1.5 s that
        one call makes the mean 6 % longer.

    What it cannot see:
        A window in which no call was warm.  Cold calls of shapes that come later: another rule looks for them.  A warm-up
        that was too short for clocks and heat.

    Remedy:
        Warm up with the same shapes; a warm-up of an empty kernel loads nothing of what is measured.

    Source:
        The times of the first iterations: from one above ten robust standard deviations, or 1.3 medians, to the first five
        in a row that are usual.  What counts is what they do to mean or median: a first call after a pause is slow in
        most clean recordings and costs less than a thousandth: none of 240 clean windows was flagged.  Nobody having warmed
        up is a limit of its own, where the harness declares it.
    """
    times = inside(evidence)
    if len(times.took_s) < 2:
        return Unobserved("one iteration has nothing to be cold against") if len(times.took_s) else NO_ITERATION
    count = cold_prefix_count(times.took_s)
    if not count:
        return Clear({"cold_count": 0})
    warm_s = times.took_s[count:]
    slow_ratio = float(times.took_s[:count].max() / centre(warm_s))
    mean_ratio = float(times.took_s.mean() / warm_s.mean()) - 1.0
    median_ratio = float(centre(times.took_s) / centre(warm_s)) - 1.0
    effect_ratio = max(mean_ratio, median_ratio)
    cold_count = count * times.calls_count
    warmed = evidence.declared.get("warmup_count")
    unwarmed = isinstance(warmed, int) and not isinstance(warmed, bool) and warmed == 0
    facts: dict[str, Fact] = {
        "cold_count": cold_count,
        "slow_ratio": slow_ratio,
        "mean_change_ratio": mean_ratio,
        "median_change_ratio": median_ratio,
        "warm_mean_s": float(warm_s.mean()),
        "warm_median_s": centre(warm_s),
        "warmup_count": (count + 5) * times.calls_count,
        "first": "the first call was" if cold_count == 1 else f"the first {cold_count} calls were",
        "weight": ", and nobody had warmed up" if unwarmed else f", which makes the mean {mean_ratio:.1%} longer",
    }
    if effect_ratio <= note_ratio and not unwarmed:
        return Clear(facts)
    end_ns = int(times.at_ns[count])
    severity = Severity.FLAG if effect_ratio > flag_ratio or unwarmed else Severity.NOTE
    if effect_ratio > reject_ratio:
        severity = Severity.REJECT
    return Found(severity, facts, effect_ratio=effect_ratio, span_ns=(int(times.at_ns[0]), end_ns))


@rule(
    "mid-run-compile",
    kind=RuleKind.BIAS,
    needs=("timings",),
    basis=Basis.TIMINGS,
    says="after {before_count} iterations one took {slow}, {slow_ratio:.0f} times the median, as a compilation does{sign}",
    remedy="Fix the shapes, warm up every shape that occurs, or keep that iteration out and say so.",
)
def mid_run_compile(
    evidence: Evidence,
    claim: Claim,
    *,
    slow_ratio: Annotated[Factor, "times the median; clocks, caches and neighbours do less to a long kernel"] = 10.0,
    least_s: Annotated[Duration, "no compiler is faster than 10 ms, and no time slice of a neighbour is longer"] = 0.01,
    most_count: Annotated[Count, "so many compilations are few; more late iterations have another cause"] = 5.0,
    cost_ratio: Annotated[Share, "of the mean: the smallest effect users care for"] = 0.01,
    wait_ratio: Annotated[
        Share, "of its time; where threads waited for a processor, launches are late without a compiler"
    ] = 0.05,
) -> Answer:
    """Finds a single iteration, after the first ones, that took as long as compiling or tuning takes.

    Why it matters:
        A new shape makes torch.compile, Triton or cuDNN's search start again: 17.4 ms instead of 2.0 ms in one of the
        essays this catalogue comes from.  A mean takes it in.

    What it cannot see:
        Whether it was a compiler: a garbage collection or a page from disk looks alike.  That new threads or processes
        appeared in the window is a sign, and said.  A compilation between two timed iterations.

    Remedy:
        Warm up every shape, or fix them.

    Source:
        The time of each iteration.  No iteration of 21 recordings without a compiler, but those of a machine short of
        processors, is that slow after the first: there 29 in 5 s were, which is more than a compiler's few.
    """
    times = inside(evidence)
    if len(times.took_s) < 2:
        return Unobserved("one iteration has nothing to be slow against") if len(times.took_s) else NO_ITERATION
    median_s = centre(times.took_s)
    slow = times.took_s > max(slow_ratio * median_s, least_s / times.calls_count)
    slow[0] = False
    if slow.any():
        slow[: cold_prefix_count(times.took_s)] = False
    spikes = np.flatnonzero(slow)
    host = evidence.host
    waited_ratio = (host.run_wait_s or 0.0) / host.span_s if host.span_s else 0.0
    if not 0 < len(spikes) <= most_count or waited_ratio > wait_ratio:
        return Clear({"spikes_count": len(spikes), "waited_ratio": waited_ratio})
    worst = int(spikes[np.argmax(times.took_s[spikes])])
    spent_s = float(times.took_s[spikes].sum()) - median_s * len(spikes)
    changed_ratio = spent_s / (float(np.delete(times.took_s, spikes).sum()) + median_s * len(spikes))
    born = {"processes": host.processes_born_count, "threads": host.threads_born_count}
    appeared = [f"{count} {what}" for what, count in born.items() if count]
    facts: dict[str, Fact] = {
        "spikes_count": len(spikes),
        "before_count": worst,
        "slow": readable(float(times.took_s[worst])),
        "slow_s": float(times.took_s[worst]),
        "slow_ratio": float(times.took_s[worst]) / median_s,
        "mean_change_ratio": changed_ratio,
        "sign": f", while {' and '.join(appeared)} appeared" if appeared else "",
    }
    begin_ns = int(times.at_ns[worst])
    return Found(
        Severity.FLAG if changed_ratio > cost_ratio or appeared else Severity.NOTE,
        facts,
        effect_ratio=changed_ratio,
        span_ns=(begin_ns, begin_ns + int(times.took_s[worst] * times.calls_count * 1e9)),
    )


RULES: tuple[Rule, ...] = (cold_start, mid_run_compile)
