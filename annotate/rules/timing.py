"""Rules about the timer: synchronisation, streams, overhead and launches stand between a kernel and its time."""

from collections.abc import Mapping
from typing import Annotated

from annotate.budget import Estimate
from annotate.case import Case
from annotate.claims import Claim
from annotate.declared import amount, text
from annotate.derived.launch_waits import HostBoundLimits, waits_for_launches
from annotate.derived.missed_work import (
    EarlyStopLimits,
    EmptySpanLimits,
    has_empty_spans,
    has_no_kernel,
    on_other_stream,
    stopped_early,
)
from annotate.derived.timed import loop
from annotate.derived.timer_bounds import AROUND_NOTHING_S, timer_bounds
from annotate.evidence import Evidence, Fact
from annotate.ranges import Duration
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule
from annotate.times.durations import readable

_EMPTY = "the times hold no kernel, so they do not tell how long one is"
_TICK_S = 0.5e-6  # the resolution of CUDA events
_SMALL_RATIO = 0.01  # of a reading, the timer's share that the advice aims at
_MOST_RATIO = 0.99


@rule(
    "missing-sync",
    kind=RuleKind.INTEGRITY,
    basis=Basis.TIMINGS,
    says="{what}",
    remedy="Synchronise before the second reading of the host's clock, or time with CUDA events.",
)
def missing_sync(evidence: Evidence, claim: Claim, *, limits: EarlyStopLimits) -> Answer:
    """Finds times by the host's clock that stopped before the GPU did.

    Why it matters:
        A launch returns at once.  Without synchronisation the time is that of the launch: 0.24 ms for a product that took
        15.5 ms.  Once the launch queue is full the host waits, and wrong times look right.

    What it cannot see:
        Times far below the GPU's work whose last call was waited for: the cause may be work between the timed calls that
        nobody timed (a cache flush, a backward pass), and ``unaccounted-time`` gives its size.
        A window opened with ``sync=False``.

    Remedy:
        Call ``torch.cuda.synchronize()`` before each reading of the host's clock, or use CUDA events.  To measure the cost
        of a launch, accept this rule.

    Source:
        How long the window's own synchronisation waited when the body had returned.  It only flags where the GPU then rested
        for longer than it was waited for.  Where nobody handed over times, a body that returned early is a label.
    """
    return stopped_early(evidence, limits)


@rule(
    "wrong-stream",
    kind=RuleKind.INTEGRITY,
    needs=("timings", "declared.timer"),
    basis=Basis.TIMINGS,
    says="events read {call} a call while the GPU worked {busy} for each: they stand on another stream than the kernel",
    remedy="Record the events on the stream that launches the kernel.",
)
def wrong_stream(evidence: Evidence, claim: Claim, *, limits: EmptySpanLimits) -> Answer:
    """Finds CUDA events that enclose no work, because it runs on another stream.

    Why it matters:
        Events wait for the work of their own stream only.  On another one they are a few microseconds apart, or as far as
        the host takes to launch the kernel between them, whatever that takes: 56 µs for a product of 1.7 ms.

    What it cannot see:
        Events on a stream that has other work between them: their spans are not empty.  Spans as long as a launch, unless
        stamps around the iterations met the work they should have enclosed.  Times that the caller took and handed over
        (``missing-sync`` judges those).  A kernel of a few microseconds with long work of its own process after each call
        has the same sign: declare that work, with its begin and length.  A kernel of up to half a millisecond beside such
        work on another stream has it too, so that spans longer than an empty one only flag.  A neighbour explains a busy
        GPU, so beside a computing neighbour the rule finds nothing.

    Remedy:
        Record the events inside ``with torch.cuda.stream(stream)``, or pass the stream to ``record``.

    Source:
        The median time of a call against the driver's utilisation over the loop, a second or longer; stamps of the SMs.
    """
    return on_other_stream(evidence, limits)


@rule(
    "host-bound",
    kind=RuleKind.BIAS,
    needs=("timings", "utilization_ratio"),
    basis=Basis.TIMINGS,
    says="launch latency: {what}",
    remedy="It waited for launches {idle} a call of {call}: replay a CUDA graph, put {batch_count} calls between two events, "
    "or report the time as the host's.",
)
def host_bound(case: Case, *, limits: HostBoundLimits) -> Answer:
    """Finds times that launches set: the GPU ran idle while the host prepared the next call.

    Why it matters:
        The number then measures Python, the framework and the driver, and changes with the processor.  A gemv of 12 µs on an
        H200 read 18 µs, with warm and with cold cache alike.

    What it cannot see:
        Less than a second of utilisation.  Launches hidden by a kernel that blocks the stream, as intended.  Foreign work
        that fills the pauses.  The deviation of throughput (``unaccounted-time``).

    Remedy:
        A CUDA graph launches many kernels at once; a batch of calls between two events hides launches behind work; or say
        that the time is the host's.

    Source:
        The driver's utilisation over a loop with less than 0.2 ms between its calls, of which the usual one, or where
        median and mean agree every one, leaves the GPU idle.  Loops with pauses are ``bursty-duty-cycle``, a few late
        launches ``idle-stretch``.  Where the GPU did other work beside the times, as flushes, the harness declares for how
        many of its readings the GPU waited.  Times that were read on the GPU claim a kernel's time: the bound is the
        time over the GPU's part of it, less 1, of which the launch between the two readings, up to 8 µs, is no part although
        utilisation counts it.  Other times are the caller's own, and it is a label.
        H200, driver 580.159.04: a kernel of 57 µs launched each 91 µs read 63 by events while utilisation was 0.70; of recorded loops only that of 18 µs gemvs, at 0.58, is found.
    """
    return waits_for_launches(case.evidence, limits)


@rule(
    "short-kernel",
    kind=RuleKind.BIAS,
    needs=("timings", "declared.timer"),
    basis=Basis.TIMINGS,
    says="a call of {call} is about as long as what timing by {timer} adds to it",
    remedy="Put {batch_count} calls into each reading of the timer, or time with a CUDA graph.",
)
def short_kernel(
    case: Case,
    *,
    least_s: Annotated[Duration, "events tick at half a microsecond and contain launches of several"] = 10e-6,
) -> Answer:
    """Finds calls so short that the timer's ticks and the launch between its two readings are much of the time.

    Why it matters:
        Events resolve half a microsecond, and the launch of a kernel lies between them: below 10 µs the time is as much of
        the method as of the kernel.

    What it cannot see:
        The launch's share of a time (``host-bound`` sees it, where utilisation is known).  Short calls that were merged
        into batches because there were too many.

    Remedy:
        Many calls in one reading, or a CUDA graph of many calls, divide the method's share by their number.

    Source:
        The median time of what one reading of the timer spans; a graph of several calls, or a batch, is fine.  The bound is
        one tick and the timer's own overhead over that time or, unmeasured, the 8 µs that events read around nothing.
    """
    evidence = case.evidence
    timed, timer = loop(evidence), text(evidence.declared, "timer")
    if timed is None or timer is None:
        return Unobserved("no times were handed over")
    facts: dict[str, Fact] = {"call_s": timed.call_s, "calls_count": timed.calls_count}
    if timed.entry_s >= least_s:
        return Clear(facts)
    if has_no_kernel(evidence):
        return Unobserved(_EMPTY)
    names = {
        "events": "CUDA events",
        "graph": "events around a graph",
        "stamps": "stamps of the SMs",
        "host": "the host's clock and a synchronisation",
    }
    facts |= {"call": readable(timed.call_s), "timer": names.get(timer, "most timers"), "batch_count": timed.batch_count}
    overhead_s = amount(evidence.declared, "timer_overhead_s")
    most_s = AROUND_NOTHING_S if overhead_s is None else _TICK_S + overhead_s
    return Found(facts=facts, bounds=timer_bounds("short-kernel", most_s / timed.entry_s))


@rule(
    "timer-overhead",
    kind=RuleKind.BIAS,
    needs=("timings", "declared.timer_overhead_s"),
    basis=Basis.DECLARED,
    says="the timer reads {overhead} around nothing, {share_ratio:.1%} of what it reads around the work",
    remedy="Subtract it, or put {batch_count} calls into each reading.",
)
def timer_overhead(case: Case) -> Answer:
    """Finds a timer whose own cost is not small beside the measured time.

    Why it matters:
        Two events with nothing between them are some microseconds apart, and a graph's launch adds as much: small kernels
        seem slower than they are, and ratios of them closer to one.

    What it cannot see:
        Overhead that hides behind work: for a kernel longer than its launch, part of it costs nothing.  So all of it is the
        bound, and none of it rejects.

    Remedy:
        More calls in each reading.  Subtracting is right only to the overhead's own scatter.

    Source:
        What the harness measured around nothing, over the median of what one reading of the timer spans.
    """
    evidence = case.evidence
    timed, overhead_s = loop(evidence), amount(evidence.declared, "timer_overhead_s")
    if timed is None or overhead_s is None:
        return Unobserved("the timer's overhead, or the times, were not declared")
    share_ratio = overhead_s / timed.entry_s
    facts: dict[str, Fact] = {"overhead_s": overhead_s, "share_ratio": share_ratio, "call_s": timed.call_s}
    if not overhead_s:
        return Clear(facts)
    if has_empty_spans(evidence):
        return Unobserved(_EMPTY)
    batch_count = max(2, round(overhead_s / (_SMALL_RATIO * timed.call_s) + 0.5))
    facts |= {"overhead": readable(overhead_s), "batch_count": batch_count}
    # Readings of little more than the overhead hold a kernel of unknown length.
    ratio = share_ratio / (1 - share_ratio) if share_ratio < _MOST_RATIO else None
    estimate = Estimate(0.0, ratio, ratio) if ratio is not None else None
    return Found(facts=facts, effect_ratio=ratio, bounds=timer_bounds("timer-overhead", ratio, estimate))


@rule(
    "timer-tampered",
    kind=RuleKind.INTEGRITY,
    needs=("declared.tampered",),
    basis=Basis.DECLARED,
    says="the process replaced {names}, by which times are taken",
    remedy="Take {names} as their library defines them, in a fresh process.",
)
def timer_tampered(evidence: Evidence, claim: Claim) -> Answer:
    """Finds timing functions that are not the ones their library defines.

    Why it matters:
        A replaced timing function can return any number.

    What it cannot see:
        Code that replaced the functions for a moment only, or changed the library on disk.

    Remedy:
        Find the code that assigns to them: generated code under test, or a tool that patches time for its tests.

    Source:
        Identity and defining module of the timing functions, looked at when the window closed, in its own process.
    """
    names = text(evidence.declared, "tampered")
    if names is None:
        return Unobserved("whether timing functions were replaced was not declared as text")
    listed = [name.strip() for name in names.split(",") if name.strip()]
    if not listed:
        return Clear({})
    return Found(Severity.REJECT, {"names": ", ".join(listed[:4]), "names_count": len(listed)})


RULES: tuple[Rule, ...] = (missing_sync, wrong_stream, host_bound, short_kernel, timer_overhead, timer_tampered)

# Limits that only set a severity, or that the books replace.  Policies, stores and reports may still name them.
RETIRED_LIMITS: Mapping[str, tuple[str, ...]] = {
    "missing-sync": ("covered_ratio", "accounted_ratio"),
    "timer-overhead": ("note_ratio", "flag_ratio"),
}
