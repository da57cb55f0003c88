"""Signs that times hold less than the GPU's work: the host stopped its clock early, or events lie on another stream."""

from dataclasses import dataclass
from typing import Annotated

from annotate.answer import Answer, Clear, Found, Severity, Unobserved
from annotate.declared import amount, text
from annotate.derived.busy import utilization_ratio
from annotate.derived.presence import list_is_whole
from annotate.derived.timed import beside, loop, untimed_because
from annotate.evidence import Evidence, Fact
from annotate.ranges import Duration, Factor, Share
from annotate.times.durations import readable

# These are read on the GPU, in the order of its work: they end no earlier than the work between them.
NO_UTILISATION = "utilisation over a timed loop of a second, with the beginning of each call, was not observed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStopLimits:
    """The limits of ``stopped_early``."""

    after_ratio: Annotated[Share, "of the window: more than any effect worth reporting is missing from the times"] = 0.01
    after_s: Annotated[Duration, "waiting for a GPU that is done takes tens of microseconds"] = 0.0005
    covered_ratio: Annotated[Share, "times that sum up to less than half of the GPU's work are of something else"] = 0.5
    accounted_ratio: Annotated[
        Share, "less than a tenth of a window's work: either the times or the window are of something else"
    ] = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptySpanLimits:
    """The limits of ``on_other_stream``."""

    empty_s: Annotated[Duration, "an event pair around nothing reads 2 to 8 microseconds"] = 10e-6
    launch_s: Annotated[
        Duration, "on a stream with nothing to do, a pair reads what launching between its two takes: 40 to 130 µs on an H200"
    ] = 0.5e-3
    beyond_ratio: Annotated[Factor, "ten times what was timed is no overhead"] = 10.0
    overhead_ratio: Annotated[Factor, "a reading within half of the timer's own overhead holds no kernel"] = 1.5


def has_no_kernel(evidence: Evidence) -> bool:
    """Return whether the times end before the kernel does, or stand on another stream: then no time says how long it is."""
    early = stopped_early(evidence, EarlyStopLimits())
    return (isinstance(early, Found) and early.severity is Severity.REJECT) or has_empty_spans(evidence)


def has_empty_spans(evidence: Evidence) -> bool:
    """Return whether events stand on another stream than the kernel."""
    return isinstance(on_other_stream(evidence, EmptySpanLimits()), Found)


def stopped_early(evidence: Evidence, limits: EarlyStopLimits) -> Answer:
    """Find times by the host's clock that stopped before the GPU did."""
    timer, timed = text(evidence.declared, "timer"), loop(evidence)
    # These are read on the GPU: they end no earlier than the work between them.
    if timer in ("events", "graph"):
        return Unobserved("the times were taken on the GPU, in the order of its work")
    late_s = amount(evidence.declared, "sync_s")
    late_s = late_s if late_s is not None and late_s <= evidence.window.length_s else None
    late = late_s is not None and late_s > max(limits.after_s, limits.after_ratio * evidence.window.length_s)
    facts: dict[str, Fact] = {"sync_s": late_s, "timer": timer or "unknown"}
    if timed is None:
        if not late or late_s is None or timer is not None:
            return Unobserved("no times were handed over")
        what = f"the GPU worked {readable(late_s)} longer than the body, which times taken inside it miss"
        return Found(Severity.NOTE, facts | {"what": what})
    if timer not in ("host", "caller"):
        return Unobserved("what took the times was not declared")
    if late and late_s is not None:
        # Work that followed the last timed call may be what the GPU still did.
        idle_s = (evidence.window.end_ns - timed.end_ns) / 1e9 - late_s
        facts["what"] = f"the GPU still worked {readable(late_s)} when the last time had been taken"
        return Found(
            Severity.FLAG if idle_s > late_s else Severity.REJECT,
            facts,
            effect_ratio=timed.timed_s / (timed.timed_s + late_s) - 1,
        )
    busy_ratio, span_s, least_ratio = timed.utilization_ratio, timed.span_s, limits.covered_ratio
    if busy_ratio is None:
        # Laid end to end, they do not tell when the loop ran: what is left to compare with is the window.
        busy_ratio, span_s, least_ratio = utilization_ratio(evidence), evidence.window.length_s, limits.accounted_ratio
    if busy_ratio is None or span_s < 1.0:
        return Unobserved(NO_UTILISATION)
    busy_s = busy_ratio * span_s
    facts |= {"timed_s": timed.timed_s, "busy_s": busy_s}
    if timed.timed_s >= least_ratio * busy_s:
        return Unobserved(NO_UTILISATION) if timed.utilization_ratio is None else Clear(facts)
    honest = untimed_because(evidence, busy_ratio)
    if honest:
        return Unobserved(honest)
    facts["what"] = f"times of {readable(timed.timed_s)} in all, while the GPU worked {readable(busy_s)}"
    alone = (
        timed.utilization_ratio is not None and list_is_whole(evidence) and amount(evidence.declared, "busy_ratio") is not None
    )
    return Found(Severity.REJECT if alone else Severity.FLAG, facts, effect_ratio=timed.timed_s / busy_s - 1)


def on_other_stream(evidence: Evidence, limits: EmptySpanLimits) -> Answer:
    """Find events that enclose nothing, because the work between them runs on another stream."""
    timed = loop(evidence)
    if text(evidence.declared, "timer") != "events" or timed is None:
        return Unobserved("no times were taken by events")
    overhead_s = amount(evidence.declared, "timer_overhead_s")
    busy_s = timed.call_busy_s
    facts: dict[str, Fact] = {"call_s": timed.call_s, "busy_s": busy_s, "overhead_s": overhead_s}
    if timed.entry_s > (limits.launch_s if beside(evidence) else limits.empty_s):
        return Clear(facts)
    if busy_s is None or timed.utilization_ratio is None:
        return Unobserved(NO_UTILISATION)
    if busy_s * timed.calls_count < limits.beyond_ratio * timed.entry_s:
        return Clear(facts)
    honest = untimed_because(evidence, timed.utilization_ratio)
    if honest:
        return Unobserved(honest)
    facts |= {"call": readable(timed.call_s), "busy": readable(busy_s)}
    if timed.entry_s > limits.empty_s:
        # It may be a short kernel between long work on another stream, which nobody timed: how far off that is, is not known.
        return Found(Severity.FLAG, facts)
    empty = overhead_s is not None and timed.entry_s <= limits.overhead_ratio * overhead_s
    return Found(
        Severity.REJECT if empty or amount(evidence.declared, "busy_ratio") is not None else Severity.FLAG,
        facts,
        effect_ratio=timed.call_s / busy_s - 1,
    )
