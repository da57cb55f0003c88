"""Rules about the harness around the work: profilers, allocations, input data and threads."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from annotate.amount_words import amount_text
from annotate.budget import Bound, Group, Number, Replaces
from annotate.case import Case
from annotate.claims import Claim
from annotate.declared import amount, text
from annotate.derived.allocations import memory_changes
from annotate.derived.attached import attached
from annotate.derived.busy import utilization_ratio
from annotate.derived.held import power_cap
from annotate.derived.timed import loop
from annotate.evidence import Evidence, Fact
from annotate.ranges import Count, Duration, Processors, Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule
from annotate.stats.robust import quantiles
from annotate.times.durations import readable

_UNCAPPED_RATIO = 0.02  # part of the window: in a window capped for less, power does not limit the clock


@rule(
    "profiler-attached",
    kind=RuleKind.INTEGRITY,
    basis=Basis.HOST,
    says="the process runs under {what}, {effect}",
    remedy="Remove the named tools and variables, and measure in a new process without a profiler or debugger.",
)
def profiler_attached(
    evidence: Evidence,
    claim: Claim,
    *,
    short_s: Annotated[Duration, "kernels longer than this hide the extra microseconds of a profiled launch"] = 200e-6,
    fed_ratio: Annotated[Share, "a GPU this busy did not wait for launches, so slower launches changed little"] = 0.9,
) -> Answer:
    """Finds profilers, sanitizers, debuggers and debugging variables in the measured processes.

    Why it matters:
        A profiler intercepts every driver call and makes each 8-15 % slower.  CUPTI stays attached afterwards: launches in
        the rest of the process are 10-20 % slower.  A sanitizer makes the kernels themselves several times slower.

    Limits of detection:
        A profiler that reads memory from outside without stopping the process.  The activity of a mapped CUPTI: torch's
        wheels link it, so a mapping alone is a fact of the answer but not a finding.  A torch profiler that ended before the
        first window of the process.  If the process declares nothing: its own profilers, and variables that it set after
        its start.

    Remedy:
        Unset the variables, leave the profiler's shell, and start a new process: a running process cannot undo most of
        this.

    Source:
        /proc/PID/maps and environ for injected libraries and the variables that inject them, and TracerPid.  The process
        declares CUDA_LAUNCH_BLOCKING and the profilers of torch and Python.  The rule rejects the window if a tool slows
        kernels, kernels are short, or the GPU was not observed to be busy.  Otherwise the rule flags.
    """
    seen = attached(evidence)
    busy = utilization_ratio(evidence)
    timed = loop(evidence)
    facts: dict[str, Fact] = {"mapped": ", ".join(seen.idle), "utilization_ratio": busy}
    if not seen.names:
        return Clear(facts) if seen.looked else Unobserved("profilers of the process were not observed")
    facts |= {"what": seen.sentence, "attached_count": len(seen.names)}
    if seen.heavy:
        return Found(Severity.REJECT, facts | {"effect": "which slows the kernels themselves"})
    if timed is not None and timed.call_s < short_s:
        facts |= {"call_s": timed.call_s, "effect": f"which its calls of {readable(timed.call_s)} cannot hide"}
        return Found(Severity.REJECT, facts)
    if busy is None or busy < fed_ratio:
        return Found(Severity.REJECT, facts | {"effect": "and the GPU may have waited for slower launches"})
    return Found(Severity.FLAG, facts | {"effect": f"though the GPU was busy {busy:.0%} of the time"})


@rule(
    "allocator-churn",
    kind=RuleKind.BIAS,
    says="{what}",
    remedy="Allocate before the timed part, reuse buffers, and do not empty the allocator's cache.",
)
def allocator_churn(
    case: Case,
    *,
    call_s: Annotated[Duration, "a request and release of driver memory take up to this, and wait for the GPU"] = 0.001,
    changed_ratio: Annotated[Share, "memory in use is constant in a steady loop; one step in 6 refreshes does not count"] = 0.2,
) -> Answer:
    """Finds requests for memory that reach the driver inside the window.

    Why it matters:
        A request costs up to a millisecond, synchronises the GPU, and returns a new address each time.  A loop that
        allocates took four times as long in one report; fragmentation cost 13 % in another.

    Limits of detection:
        Memory served from the caching allocator's cache, which is cheap.  Without declared allocator statistics, memory
        that is allocated and freed between two refreshes of the driver's gauge.  Rare growth of another library's pool.

    Remedy:
        Warm up with the sizes of the timed part, keep buffers, and do not empty the cache in the loop.

    Source:
        The counters of torch's caching allocator at the window's edges, as declared by the process: each request counts a
        millisecond.  After allocation retries, or if the driver's gauge changed often while no other process was on the GPU,
        late iterations and idle stretches give the size.  The size is unknown without start times, for fewer than 30 times,
        and for times longer than 2 ms.
    """
    evidence = case.evidence
    asked, retries = amount(evidence.declared, "alloc_count"), amount(evidence.declared, "alloc_retry_count")
    move = memory_changes(evidence)
    facts: dict[str, Fact] = {"alloc_count": asked, "alloc_retry_count": retries}
    if move is not None:
        facts |= {"changed_ratio": move.changed_ratio, "range_bytes": move.range_bytes}
    asked_ratio = min(1.0, (asked or 0.0) * call_s * 1e9 / max(1, evidence.window.length_ns))
    if retries:
        what = f"the allocator ran out of memory and retried {_times(retries)}"
        return Found(facts=facts | {"what": what}, bounds=_stalls(case, asked_ratio))
    if move is not None and move.changed_ratio > changed_ratio:
        what = f"memory in use changed {move.changes_count} times by up to {amount_text(move.range_bytes, 'B')}"
        return Found(facts=facts | {"what": what}, bounds=_stalls(case, asked_ratio))
    if asked:
        what = f"the process requested driver memory {_times(asked)} in {readable(evidence.window.length_s)}"
        bounds = tuple(_churned(number, asked_ratio) for number in (Number.THROUGHPUT, Number.MEAN))
        return Found(facts=facts | {"what": what}, bounds=bounds)
    return (
        Clear(facts)
        if move is not None
        else Unobserved("no allocator statistics were declared, nor was memory in use observed without other processes")
    )


def _stalls(case: Case, asked_ratio: float) -> tuple[Bound, ...]:
    """Return the bounds by late iterations and idle stretches; of unknown size without usable times."""
    late, gaps = case.foreign_work.late_ratio, case.gaps
    if late is None or gaps is None:
        numbers = (Number.THROUGHPUT, Number.MEAN) if case.has_times else (Number.THROUGHPUT,)
        return tuple(replace(_churned(number, None), seen_ratio=0.0) for number in numbers)
    replaces = Replaces.UNRESOLVED if case.times_agree else Replaces.NOTHING
    found = (
        _churned(Number.THROUGHPUT, max(asked_ratio, late / (1.0 + late))),
        _churned(Number.MEAN, max(asked_ratio, late)),
        _churned(Number.THROUGHPUT, min(1.0, gaps.irregular_ratio), Group.IDLE),
    )
    return tuple(replace(bound, replaces=replaces) for bound in found)


def _churned(number: Number, ratio: float | None, group: Group = Group.INSIDE) -> Bound:
    return Bound(number=number, rule="allocator-churn", group=group, ratio=ratio)


@rule(
    "data-dependent-power",
    kind=RuleKind.BIAS,
    says="{what}",
    remedy="Fill inputs with random values of a realistic scale, or describe the inputs with the number.",
)
def data_dependent_power(
    case: Case,
    *,
    zero_ratio: Annotated[Share, "half of a rectifier's output is zeros, which is normal data"] = 0.6,
    unique_ratio: Annotated[Share, "of 64 k normal values, 4 % are distinct in bf16"] = 0.01,
    capped_ratio: Annotated[Share, "in a window capped for longer, power limits the clock"] = 0.5,
    power_ratio: Annotated[
        Share, "of the limit: the peak power of capped recordings of an H200 was 0.88 or more, with zeros 0.60"
    ] = 0.75,
) -> Answer:
    """Finds inputs of zeros, constants or few distinct values, with which arithmetic draws less power than with real data.

    Why it matters:
        Transistors that do not switch draw no power, so the board raises its clock.  On an H200 a bf16 product of zeros took
        17.7 % less time than one of random values, at 415 W instead of 691 W.

    Limits of detection:
        Undeclared inputs.  Patterns that repeat seldom and toggle little.  Integers, whose zeros may be intended.

    Remedy:
        Use random or recorded inputs.  If sparsity is intended, state it with the number.

    Source:
        Up to 65 536 values of each tensor passed to ``w.inputs``, ``bench`` or ``compare``.  On a capped board only this
        card's record of the work shows the gain.  On an uncapped board, and under ``fixed-clock``, such inputs are a label.
        With other or undeclared inputs, a board capped far below its limit is a label, because other limits also cause that.
    """
    evidence = case.evidence
    facts: dict[str, Fact] = {}
    held, power_w = power_cap(evidence), _high_power_w(evidence)
    limit_w = evidence.device.power_limit_w if evidence.device else None
    low = held is not None and held.least_ratio > capped_ratio and bool(power_w and limit_w and power_w < power_ratio * limit_w)
    if held is not None and power_w is not None and limit_w:
        facts |= {"capped_ratio": held.ratio, "power_w": power_w, "power_limit_w": limit_w}
    dtype = text(evidence.declared, "input_dtype") or ""
    zeros, unique = amount(evidence.declared, "input_zero_ratio"), amount(evidence.declared, "input_unique_ratio")
    known = "float" in dtype and zeros is not None and unique is not None and max(zeros, unique) <= 1
    if known and zeros is not None and unique is not None:
        facts |= {"input_zero_ratio": zeros, "input_unique_ratio": unique}
        what = f"{zeros:.0%} of the inputs are zeros" if zeros > zero_ratio else ""
        what = what or (f"only {unique:.2%} of the sampled inputs are distinct" if unique < unique_ratio else "")
        if what:
            # Power changes neither a fixed clock nor an uncapped one.
            moves = case.claim is not Claim.FIXED_CLOCK and (held is None or held.most_ratio > _UNCAPPED_RATIO)
            what = f"{what}: such data draws less power than real data"
            return Found(facts=facts | {"what": what}, bounds=_against_record(case) if moves else ())
    if low and power_w is not None and limit_w:
        what = f"the board is capped at {power_w:.0f} W of {limit_w:.0f} W, as happens with data that draws little power"
        return Found(facts=facts | {"what": what})
    return Clear(facts) if known else Unobserved("the shares of zeros and distinct values in float inputs were not declared")


def _against_record(case: Case) -> tuple[Bound, ...]:
    """Return the bounds by the shift from this card's record of the work; of unknown size without a record."""
    work = case.foreign_work
    shifts = {Number.THROUGHPUT: work.throughput, Number.MEAN: work.mean, Number.MEDIAN: work.median}
    return tuple(
        Bound(
            number=number,
            rule="data-dependent-power",
            group=Group.RECORD,
            ratio=shift.bound_ratio if shift else None,
            estimate=shift.estimate if shift else None,
        )
        for number, shift in shifts.items()
        if case.has_times or number is Number.THROUGHPUT
    )


def _high_power_w(evidence: Evidence) -> float | None:
    """Return the 90th percentile of power, since a mean over pauses would be low for any data, or None if mostly unobserved."""
    column = evidence.within("power_w")
    known = column.observed.values
    return quantiles(known, 0.9)[0] if 2 * len(known) > len(column) else None


@rule(
    "background-thread",
    kind=RuleKind.INTEGRITY,
    needs=("host.threads_born_count", "host.processes_born_count"),
    basis=Basis.HOST,
    says="{what} started during the work and used {cpu} of CPU time",
    remedy="Warm up until pools and loaders have started, and start no threads or processes during the timed work.",
)
def background_thread(
    evidence: Evidence,
    claim: Claim,
    *,
    busy_ratio: Annotated[
        Processors, "of one CPU core over the window: idle pools and threads of the driver stay far below"
    ] = 0.05,
    spared_count: Annotated[Count, "torch and the driver start this many idle threads for autograd and a context"] = 4.0,
) -> Answer:
    """Finds threads and processes that started inside the window.

    Why it matters:
        A loader that starts inside the window competes for CPU cores.  The work of a new thread is not in the timed call.

    Limits of detection:
        Threads that existed before the window; those of the 10 ms before it count as new.  Threads that started and ended
        between two polls, a second apart.  Those of a tree whose first process used less than a tenth of the CPU time: they
        are the measured work.  Those of a tree that used less than 1 % of a core.

    Remedy:
        Call everything once before the window, so that pools, loaders, autograd and compilers start their threads then.

    Source:
        /proc/PID/task of the measured process tree at both edges and each second between.  New threads that hardly ran are
        a label; a few sleeping pool threads are not reported.
    """
    host = evidence.host
    threads, processes = host.threads_born_count or 0, host.processes_born_count or 0
    cpu_s, span_s = host.born_cpu_s, host.span_s
    facts: dict[str, Fact] = {"threads_born_count": threads, "processes_born_count": processes, "born_cpu_s": cpu_s}
    parts = [
        f"{count} {one if count == 1 else many}"
        for count, one, many in ((threads, "thread", "threads"), (processes, "process", "processes"))
        if count
    ]
    if not parts:
        return Clear(facts)
    facts |= {"what": " and ".join(parts), "cpu": readable(cpu_s) if cpu_s is not None else "an unknown amount"}
    if cpu_s is None or not span_s or cpu_s > busy_ratio * span_s:
        return Found(Severity.FLAG, facts)
    return Clear(facts) if not processes and threads <= spared_count else Found(Severity.NOTE, facts)


def _times(count: float) -> str:
    return "once" if count == 1 else f"{count:.0f} times"


RULES: tuple[Rule, ...] = (profiler_attached, allocator_churn, data_dependent_power, background_thread)

# Limits that only set a severity.  Policies, stores and reports may still name them.
RETIRED_LIMITS: Mapping[str, tuple[str, ...]] = {"allocator-churn": ("share_ratio",)}
