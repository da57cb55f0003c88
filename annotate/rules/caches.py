"""Rules about the L2 cache between calls: inputs that stay cached, and insufficient flushes."""

from typing import Annotated

from annotate.amount_words import amount_text
from annotate.budget import Bound, Estimate
from annotate.case import Case
from annotate.claims import Claim
from annotate.declared import amount, text
from annotate.derived.roofline import peak_bytes_a_second, traffic_bound
from annotate.derived.timed import elsewhere, loop
from annotate.derived.timer_bounds import timer_bounds
from annotate.evidence import Evidence, Fact
from annotate.ranges import Factor, Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule


@rule(
    "warm-cache-unintended",
    kind=RuleKind.INTEGRITY,
    basis=Basis.DECLARED,
    says="{what}",
    remedy="Flush the L2 cache between calls or rotate inputs; if a warm cache is intended, declare cache='warm'.",
)
def warm_cache_unintended(
    evidence: Evidence,
    claim: Claim,
    *,
    fits_ratio: Annotated[Share, "of the L2 cache: larger inputs do not stay wholly in the cache"] = 0.8,
    beyond_ratio: Annotated[Factor, "of the memory's peak: copies reach 0.93, so 1.05 needs a cache"] = 1.05,
) -> Answer:
    """Finds calls that read their inputs from the L2 cache although no warm cache is declared.

    Why it matters:
        In a loop over one set of inputs, the second call finds the inputs in the cache.  A kernel that will run with cold
        inputs in production then reads up to 1.6 times too fast.

    Limits of detection:
        Memory that a call touches beyond its declared inputs.  Inputs alone are a lower limit, so inputs that fit into the
        cache are a label, unless a cold cache is claimed.  Partial hits of larger inputs.

    Remedy:
        Write twice the L2 cache between calls, outside the timed span, or rotate over inputs larger than the cache.  A
        warm-cache number is valid if it is declared as one.

    Source:
        The bytes declared by the harness against the cache size reported by CUDA, or the bytes per second of the median call
        against the peak of memory clock and bus.  In one survey, small kernels gained 5 % and large ones below 0.5 %; in
        another, kernels ran 1.6 times as fast.
    """
    label = text(evidence.declared, "cache")
    if label == "warm":
        return Clear({"cache": label})
    timed = loop(evidence)
    l2_bytes, call_bytes = amount(evidence.declared, "l2_bytes"), amount(evidence.declared, "call_bytes")
    peak = peak_bytes_a_second(evidence.device) if evidence.device else None
    facts: dict[str, Fact] = {"l2_bytes": l2_bytes, "cache": label or ""}
    if timed is not None and call_bytes and peak is not None:
        rate_ratio = call_bytes / timed.call_s / peak
        facts |= {"call_s": timed.call_s, "peak_ratio": rate_ratio}
        bound = traffic_bound(evidence)
        # A rate that even the whole cache could not serve is an impossible time, which another rule reports.
        served = bound is None or bound.least_s <= beyond_ratio * timed.call_s or elsewhere(evidence)
        if rate_ratio > beyond_ratio and served:
            what = f"calls read {rate_ratio:.2f} times the memory's peak rate, so a cache serves them"
            return Found(Severity.REJECT, facts | {"what": what})
    if amount(evidence.declared, "flush_bytes"):
        return Clear(facts)
    touched_bytes = amount(evidence.declared, "working_set_bytes") or call_bytes
    at_least_bytes = touched_bytes or amount(evidence.declared, "input_bytes")
    if not at_least_bytes or not l2_bytes:
        return Unobserved("the bytes that a call touches, or the size of the L2 cache, were not declared")
    facts |= {"touched_bytes": at_least_bytes}
    if at_least_bytes > fits_ratio * l2_bytes or (timed is not None and timed.entries_count * timed.calls_count == 1):
        return Clear(facts)
    fit = f"fit into the L2 cache of {amount_text(l2_bytes, 'B')}"
    size = amount_text(at_least_bytes, "B")
    if label == "cold":
        return Found(
            Severity.REJECT, facts | {"what": f"a cold cache is claimed, but the {size} of a call {fit} and nothing flushes it"}
        )
    if touched_bytes:
        return Found(facts=facts | {"what": f"cache: not declared; the {size} of a call {fit}"})
    return Found(facts=facts | {"what": f"cache: not declared; inputs of {size} {fit}"})


@rule(
    "flush-insufficient",
    kind=RuleKind.BIAS,
    needs=("declared.flush_bytes",),
    basis=Basis.DECLARED,
    says="{what}",
    remedy="Write at least twice the L2 cache between calls, on the same stream, outside the timed span.",
)
def flush_insufficient(
    case: Case,
    *,
    least_ratio: Annotated[Factor, "of the L2 cache: the replacement policy is not known, so once is not enough"] = 1.5,
) -> Answer:
    """Finds cache flushes that leave part of the cache warm or lie inside the timed span.

    Why it matters:
        Inputs that survive the flush make a cold number too good.  A flush inside the timed span is part of the number.

    Limits of detection:
        A flush on another stream than the work, which may run after it.  Parts of the cache set aside for persistence.

    Remedy:
        Flush twice the cache size, enqueued on the stream of the work before the first reading of the timer.

    Source:
        The flush declared by the harness, and the cache size reported by CUDA.  Calls that touch 1.5 times that size need no
        larger flush.  A timed flush takes about its bytes over the memory's peak, and at most twice that.  The share that a
        small flush leaves warm has no bound.
    """
    evidence = case.evidence
    flush_bytes, l2_bytes = amount(evidence.declared, "flush_bytes"), amount(evidence.declared, "l2_bytes")
    if evidence.declared.get("flush_timed") is True and flush_bytes:
        what = f"the time contains a flush of {amount_text(flush_bytes, 'B')}"
        return Found(facts={"what": what, "flush_bytes": flush_bytes}, bounds=_of_timed_flush(evidence, flush_bytes))
    if not flush_bytes or not l2_bytes:
        return Unobserved("the size of the flush, or of the L2 cache, was not declared")
    facts: dict[str, Fact] = {"flush_bytes": flush_bytes, "l2_bytes": l2_bytes}
    touched_bytes = amount(evidence.declared, "working_set_bytes") or 0.0
    if max(flush_bytes, touched_bytes) >= least_ratio * l2_bytes:
        return Clear(facts)
    what = f"a flush of {amount_text(flush_bytes, 'B')} leaves part of an L2 cache of {amount_text(l2_bytes, 'B')} warm"
    return Found(facts=facts | {"what": what}, bounds=timer_bounds("flush-insufficient", None))


def _of_timed_flush(evidence: Evidence, flush_bytes: float) -> tuple[Bound, ...]:
    """Return the bounds for the time that a flush adds; of unknown size without the memory's peak or the times."""
    timed, peak = loop(evidence), peak_bytes_a_second(evidence.device) if evidence.device else None
    if timed is None or peak is None:
        return timer_bounds("flush-insufficient", None)
    longer_ratio = flush_bytes / peak / timed.call_s
    # The cache may take the writes first, so the lower end is 0.
    return timer_bounds("flush-insufficient", 2.0 * longer_ratio, Estimate(0.0, longer_ratio, 2.0 * longer_ratio))


RULES: tuple[Rule, ...] = (warm_cache_unintended, flush_insufficient)
