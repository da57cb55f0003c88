"""Signs that times miss part of the GPU's work: the host stopped its clock early, or events lie on another stream.

Times that waited for the GPU can also miss work: the books count that, in ``unaccounted-time``.
"""

from dataclasses import dataclass
from typing import Annotated

from annotate.answer import Answer, Clear, Found, Severity, Unobserved
from annotate.declared import amount, text
from annotate.derived.timed import beside, loop, untimed_because
from annotate.evidence import Evidence, Fact
from annotate.evidence.asked import kept
from annotate.ranges import Duration, Factor, Share
from annotate.times.durations import readable

NO_UTILISATION = "utilisation over a timed loop of a second, with the start time of each call, was not observed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStopLimits:
    """The limits of ``stopped_early``."""

    after_ratio: Annotated[Share, "of the window: more missing time than this is an effect worth reporting"] = 0.01
    after_s: Annotated[Duration, "waiting for a GPU without work takes tens of microseconds"] = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptySpanLimits:
    """The limits of ``on_other_stream``."""

    empty_s: Annotated[Duration, "an event pair around nothing reads 2 to 8 microseconds"] = 10e-6
    launch_s: Annotated[
        Duration, "an event pair on an idle stream reads the launches between its events: 40 to 130 µs on an H200"
    ] = 0.5e-3
    beyond_ratio: Annotated[Factor, "timer overhead is less than ten times the timed span"] = 10.0
    overhead_ratio: Annotated[Factor, "a reading within half of the timer's own overhead holds no kernel"] = 1.5


@kept
def has_no_kernel(evidence: Evidence) -> bool:
    """Return whether the times end before the kernel or lie on another stream, so that they do not measure the kernel."""
    early = stopped_early(evidence, EarlyStopLimits())
    return (isinstance(early, Found) and early.severity is Severity.REJECT) or has_empty_spans(evidence)


@kept
def has_empty_spans(evidence: Evidence) -> bool:
    """Return whether the events lie on another stream than the kernel."""
    return isinstance(on_other_stream(evidence, EmptySpanLimits()), Found)


def stopped_early(evidence: Evidence, limits: EarlyStopLimits) -> Answer:
    """Find times by the host's clock that ended before the GPU's work."""
    timer, timed = text(evidence.declared, "timer"), loop(evidence)
    # These timers are read on the GPU and end no earlier than the work between their readings.
    if timer in ("events", "graph", "stamps"):
        return Unobserved("the times were taken on the GPU, in the order of its work")
    late_s = amount(evidence.declared, "sync_s")
    late_s = late_s if late_s is not None and late_s <= evidence.window.length_s else None
    late = late_s is not None and late_s > max(limits.after_s, limits.after_ratio * evidence.window.length_s)
    facts: dict[str, Fact] = {"sync_s": late_s, "timer": timer or "unknown"}
    if timed is None:
        if not late or late_s is None or timer is not None:
            return Unobserved("the window has no times")
        what = f"the GPU worked {readable(late_s)} longer than the body, which times taken inside it miss"
        return Found(Severity.NOTE, facts | {"what": what})
    if timer not in ("host", "caller"):
        return Unobserved("the timer was not declared")
    if late and late_s is not None:
        # The GPU may still have run untimed work that followed the last timed call.
        idle_s = (evidence.window.end_ns - timed.end_ns) / 1e9 - late_s
        facts["what"] = f"the GPU still worked {readable(late_s)} when the last time had been taken"
        return Found(
            Severity.FLAG if idle_s > late_s else Severity.REJECT,
            facts,
            effect_ratio=timed.timed_s / (timed.timed_s + late_s) - 1,
        )
    if late_s is None:
        return Unobserved("the duration of the window's own synchronisation was not declared")
    return Clear(facts)


def on_other_stream(evidence: Evidence, limits: EmptySpanLimits) -> Answer:
    """Find events that enclose nothing, because the work between them runs on another stream."""
    timed = loop(evidence)
    if text(evidence.declared, "timer") not in ("events", "stamps") or timed is None:
        return Unobserved("no times were taken by events or stamps")
    overhead_s = amount(evidence.declared, "timer_overhead_s")
    busy_s = timed.call_busy_s
    facts: dict[str, Fact] = {"call_s": timed.call_s, "busy_s": busy_s, "overhead_s": overhead_s}
    limit_s = max(limits.empty_s, limits.overhead_ratio * (overhead_s or 0.0))
    if timed.entry_s > (max(limits.launch_s, limit_s) if beside(evidence) else limit_s):
        return Clear(facts)
    if busy_s is None or timed.utilization_ratio is None:
        return Unobserved(NO_UTILISATION)
    if busy_s * timed.calls_count < limits.beyond_ratio * timed.entry_s:
        return Clear(facts)
    honest = untimed_because(evidence, timed.utilization_ratio)
    if honest:
        return Unobserved(honest)
    facts |= {"call": readable(timed.call_s), "busy": readable(busy_s)}
    if timed.entry_s > limit_s:
        # A short kernel can run next to long, untimed work on another stream: the size of the error is not known.
        return Found(Severity.FLAG, facts)
    return Found(Severity.REJECT, facts, effect_ratio=timed.call_s / busy_s - 1)
