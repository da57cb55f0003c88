"""Rules about the timer: synchronisation, streams, overhead and launches can separate a kernel from its time."""

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

_EMPTY = "the times hold no kernel, so they do not measure one"
_TICK_S = 0.5e-6  # the resolution of CUDA events
_SMALL_RATIO = 0.01  # the timer's share of a reading after following the advice
_MOST_RATIO = 0.99


@rule(
    "missing-sync",
    kind=RuleKind.INTEGRITY,
    basis=Basis.TIMINGS,
    says="{what}",
    remedy="Synchronise before the second reading of the host's clock, or time with CUDA events.",
)
def missing_sync(evidence: Evidence, claim: Claim, *, limits: EarlyStopLimits) -> Answer:
    """Finds times by the host's clock that ended before the GPU's work.

    Why it matters:
        A launch returns at once.  Without synchronisation the time is that of the launch: 0.24 ms for a product that took
        15.5 ms.  Once the launch queue is full the host waits, and wrong times look right.

    Limits of detection:
        Times that are too short although the process waited for the last call.  The cause may be untimed work between the
        timed calls (a cache flush, a backward pass); ``unaccounted-time`` reports its size.  A window opened with
        ``sync=False``.

    Remedy:
        Call ``torch.cuda.synchronize()`` before each reading of the host's clock, or use CUDA events.  If the cost of a
        launch is the measured quantity, accept this rule.

    Source:
        The duration of the window's own synchronisation after the body returned.  The rule rejects, but only flags if more
        time than that lay between the last timed call and the synchronisation.  Without times, a body that returned early
        is a label.
    """
    return stopped_early(evidence, limits)


@rule(
    "wrong-stream",
    kind=RuleKind.INTEGRITY,
    needs=("timings", "declared.timer"),
    basis=Basis.TIMINGS,
    says="events read {call} per call but the GPU worked {busy} for each: the kernel runs on another stream",
    remedy="Record the events on the stream that launches the kernel.",
)
def wrong_stream(evidence: Evidence, claim: Claim, *, limits: EmptySpanLimits) -> Answer:
    """Finds CUDA events that enclose no work, because the work runs on another stream.

    Why it matters:
        Events wait only for the work of their own stream.  On another stream, an event pair reads a few microseconds or the
        time of the launch in between, whatever the kernel takes.  A product of 1.7 ms read 56 µs.

    Limits of detection:
        Events on a stream that has other work between them: their spans are not empty.  Spans as long as a launch, unless
        stamps around the iterations met the work.  Times that the caller took (``missing-sync`` judges those).  A kernel of a
        few microseconds with long work of the same process after each call looks the same.  Declare that work with its start
        time and length.  A kernel of up to 0.5 ms in parallel with such work also looks the same, so spans longer than an
        empty pair only flag.  With a computing neighbour, which explains a busy GPU, the rule finds nothing.

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
    remedy="The GPU waited for launches {idle} per call of {call}: replay a CUDA graph, put {batch_count} calls between two "
    "events, or report the time as the host's.",
)
def host_bound(case: Case, *, limits: HostBoundLimits) -> Answer:
    """Finds times that depend on launches: the GPU was idle while the host prepared the next call.

    Why it matters:
        The number then measures Python, the framework and the driver, and changes with the CPU.  On an H200 a gemv of 12 µs
        read 18 µs, with warm and with cold cache.

    Limits of detection:
        Loops with less than a second of utilisation.  Launches hidden by a kernel that blocks the stream, as intended.
        Foreign work that fills the pauses.  The deviation of throughput (``unaccounted-time``).

    Remedy:
        Launch many kernels at once with a CUDA graph, hide launches in a batch of calls between two events, or report the
        time as the host's.

    Source:
        The driver's utilisation over a loop whose usual call leaves the GPU idle, with less than 0.2 ms between the calls.
        ``bursty-duty-cycle`` reports loops with pauses, ``idle-stretch`` a few late launches.  If the GPU also did other work,
        such as flushes, the harness declares the share of readings for which the GPU waited.

        Times read on the GPU claim a kernel's time.  Their bound is the time over the GPU's part - 1.  The launch between
        the two readings, up to 8 µs, does not belong to that part although utilisation counts it.  For other times the
        finding is a label.

        H200, driver 580.159.04: a kernel of 57 µs launched each 91 µs read 63 µs by events while utilisation was 0.70.  Of
        the recorded loops, the rule finds only that of 18 µs gemvs, at 0.58.
    """
    return waits_for_launches(case.evidence, limits)


@rule(
    "short-kernel",
    kind=RuleKind.BIAS,
    needs=("timings", "declared.timer"),
    basis=Basis.TIMINGS,
    says="a call of {call} is about as long as the overhead of timing by {timer}",
    remedy="Put {batch_count} calls into each reading of the timer, or time with a CUDA graph.",
)
def short_kernel(
    case: Case,
    *,
    least_s: Annotated[Duration, "events tick at half a microsecond and contain launches of several"] = 10e-6,
) -> Answer:
    """Finds calls so short that the timer's ticks and the launch between its two readings are a large part of the time.

    Why it matters:
        Events resolve half a microsecond, and the launch of a kernel lies between them.  Below 10 µs, the time measures the
        method as much as the kernel.

    Limits of detection:
        The launch's share of a time (``host-bound`` finds it if utilisation is known).  Short calls that were merged into
        batches because there were too many.

    Remedy:
        Put many calls into one reading or into a CUDA graph: the overhead is divided by the number of calls.

    Source:
        The median time of one reading of the timer; a graph or a batch of several calls counts as one reading.  The bound is
        one tick plus the timer's measured overhead, over that time.  Without a measured overhead the bound is 8 µs over that
        time, the most that an event pair reads around no work.
    """
    evidence = case.evidence
    timed, timer = loop(evidence), text(evidence.declared, "timer")
    if timed is None or timer is None:
        return Unobserved("the window has no times")
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
    says="the timer reads {overhead} around no work, {share_ratio:.1%} of its reading around the work",
    remedy="Subtract the overhead, or put {batch_count} calls into each reading: with a cold cache, calls that rotate inputs.",
)
def timer_overhead(case: Case) -> Answer:
    """Finds a timer whose overhead is a part of the measured time.

    Why it matters:
        Two events with no work between them are some microseconds apart, and the launch of a graph adds as much.  Small
        kernels therefore seem slower than they are, and their ratios closer to one.

    Limits of detection:
        Overhead that overlaps with work: for a kernel longer than its launch, part of the overhead costs no time.  The bound
        is therefore the whole overhead, and the rule never rejects.

    Remedy:
        Put more calls into each reading.  Calls that rotate inputs need no flush in between.  Subtraction is accurate only to
        the scatter of the overhead.

    Source:
        The harness's reading around no work, over the median reading around the work.
    """
    evidence = case.evidence
    timed, overhead_s = loop(evidence), amount(evidence.declared, "timer_overhead_s")
    if timed is None or overhead_s is None:
        return Unobserved("the timer's overhead or the times were not declared")
    share_ratio = overhead_s / timed.entry_s
    facts: dict[str, Fact] = {"overhead_s": overhead_s, "share_ratio": share_ratio, "call_s": timed.call_s}
    if not overhead_s:
        return Clear(facts)
    if has_empty_spans(evidence):
        return Unobserved(_EMPTY)
    batch_count = max(2, round(overhead_s / (_SMALL_RATIO * timed.call_s) + 0.5))
    facts |= {"overhead": readable(overhead_s), "batch_count": batch_count}
    # A reading close to the overhead holds a kernel of unknown length.
    ratio = share_ratio / (1 - share_ratio) if share_ratio < _MOST_RATIO else None
    estimate = Estimate(0.0, ratio, ratio) if ratio is not None else None
    return Found(facts=facts, effect_ratio=ratio, bounds=timer_bounds("timer-overhead", ratio, estimate))


@rule(
    "timer-tampered",
    kind=RuleKind.INTEGRITY,
    needs=("declared.tampered",),
    basis=Basis.DECLARED,
    says="the process replaced the timing functions {names}",
    remedy="Use {names} as their library defines them, in a fresh process.",
)
def timer_tampered(evidence: Evidence, claim: Claim) -> Answer:
    """Finds replaced timing functions.

    Why it matters:
        A replaced timing function can return any number.

    Limits of detection:
        Code that replaced the functions only for a moment, or changed the library on disk.

    Remedy:
        Find the code that assigns to these functions: generated code under test, or a tool that patches time in tests.

    Source:
        Identity and defining module of the timing functions, checked in the measured process at both edges of the window.
    """
    names = text(evidence.declared, "tampered")
    if names is None:
        return Unobserved("the declared fact tampered is invalid: expected names of functions as text")
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
