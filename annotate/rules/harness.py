"""Rules about the harness around the work: profilers, allocations, input data and threads."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import numpy as np

from annotate.budget import Bound, Group, Number, Replaces
from annotate.case import Case
from annotate.claims import Claim
from annotate.declared import amount, text
from annotate.derived.allocations import moved
from annotate.derived.attached import attached
from annotate.derived.busy import utilization_ratio
from annotate.derived.held import power_cap
from annotate.derived.timed import loop
from annotate.evidence import Evidence, Fact
from annotate.ranges import Count, Duration, Processors, Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule
from annotate.times.durations import readable

_UNCAPPED_RATIO = 0.02  # of the window: capped for less, power does not bound the clock


@rule(
    "profiler-attached",
    kind=RuleKind.INTEGRITY,
    basis=Basis.HOST,
    says="the process runs under {what}, {effect}",
    remedy="Unset what is named here and measure in a new process, without a profiler or debugger.",
)
def profiler_attached(
    evidence: Evidence,
    claim: Claim,
    *,
    short_s: Annotated[
        Duration, "a profiled launch costs some microseconds more: hidden behind kernels longer than this"
    ] = 200e-6,
    fed_ratio: Annotated[Share, "a GPU this busy never waited for a launch, so dearer launches changed little"] = 0.9,
) -> Answer:
    """Finds profilers, sanitizers, debuggers and switches for debugging on the measured processes.

    Why it matters:
        A profiler intercepts every call of the driver, at 8-15 % a call, and CUPTI stays attached after it: 10-20 % slower
        launches in the rest of the process.  A sanitizer slows the kernels themselves many times over.

    What it cannot see:
        A profiler that reads memory from outside without stopping the process.  The activity of a mapped CUPTI: torch's own
        wheels link it, so a mapping alone is a fact of the answer and no finding.  A torch profiler that ended before the
        first window of the process.  If the process declares nothing: its own profilers, and variables that it set after
        its start.

    Remedy:
        Unset the variables, leave the profiler's shell, and start a new process: a running process cannot undo most of
        this.

    Source:
        /proc/PID/maps and environ for injected libraries and the variables that inject them, TracerPid; the process itself
        declares CUDA_LAUNCH_BLOCKING and profilers of torch and Python.  It is rejected where the GPU waited for launches
        or kernels are short, where what is attached slows kernels themselves, and where nothing shows that it did not.
    """
    seen = attached(evidence)
    busy = utilization_ratio(evidence)
    timed = loop(evidence)
    facts: dict[str, Fact] = {"mapped": ", ".join(seen.idle), "utilization_ratio": busy}
    if not seen.names:
        return Clear(facts) if seen.looked else Unobserved("what profiles the process was not observed")
    facts |= {"what": seen.sentence, "attached_count": len(seen.names)}
    if seen.heavy:
        return Found(Severity.REJECT, facts | {"effect": "which slows kernels themselves"})
    if timed is not None and timed.call_s < short_s:
        facts |= {"call_s": timed.call_s, "effect": f"which its calls of {readable(timed.call_s)} cannot hide"}
        return Found(Severity.REJECT, facts)
    if busy is None or busy < fed_ratio:
        return Found(Severity.REJECT, facts | {"effect": "and nothing shows that the GPU did not wait for dearer launches"})
    return Found(Severity.FLAG, facts | {"effect": f"though the GPU was busy {busy:.0%} of the time"})


@rule(
    "allocator-churn",
    kind=RuleKind.BIAS,
    says="{what}",
    remedy="Allocate before the timed part, reuse buffers, and leave the caching allocator its cache.",
)
def allocator_churn(
    case: Case,
    *,
    call_s: Annotated[
        Duration, "asking the driver for memory and giving it back takes up to this, and waits for the GPU"
    ] = 0.001,
    changed_ratio: Annotated[Share, "memory in use stands still in a steady loop; one refresh in five is no single step"] = 0.2,
) -> Answer:
    """Finds requests for memory that reach the driver inside the window.

    Why it matters:
        A request costs up to a millisecond, synchronises the GPU, and returns another address each time.  A loop that
        allocates took four times as long in one report; fragmentation cost 13 % in another.

    What it cannot see:
        Memory served from the caching allocator's cache, which is cheap.  Memory taken and given back between two refreshes
        of the driver's figure, where no allocator statistics were declared.  Growth of another library's pool.

    Remedy:
        Warm up with the sizes of the timed part, keep buffers, do not empty the cache in the loop.

    Source:
        The counters of torch's caching allocator at the window's edges, as the process declares them: each request counts a
        millisecond.  Where the allocator ran out and had to start over, or only the driver's memory in use moved while
        nobody else was on the GPU, late iterations and idle stretches give the size.  Without times the size is unknown.
    """
    evidence = case.evidence
    asked, retries = amount(evidence.declared, "alloc_count"), amount(evidence.declared, "alloc_retry_count")
    move = moved(evidence)
    facts: dict[str, Fact] = {"alloc_count": asked, "alloc_retry_count": retries}
    if move is not None:
        facts |= {"changed_ratio": move.changed_ratio, "range_bytes": move.range_bytes}
    asked_ratio = min(1.0, (asked or 0.0) * call_s * 1e9 / max(1, evidence.window.length_ns))
    if retries:
        what = f"the allocator ran out of memory and started over {_times(retries)}"
        return Found(facts=facts | {"what": what}, bounds=_stalls(case, asked_ratio))
    if move is not None and move.changed_ratio > changed_ratio:
        what = f"memory in use changed {move.changes_count} times by up to {move.range_bytes / 1e6:.3g} MB"
        return Found(facts=facts | {"what": what}, bounds=_stalls(case, asked_ratio))
    if asked:
        what = f"the driver was asked for memory {_times(asked)} in {evidence.window.length_s:.3g} s"
        bounds = tuple(_churned(number, asked_ratio) for number in (Number.THROUGHPUT, Number.MEAN))
        return Found(facts=facts | {"what": what}, bounds=bounds)
    return (
        Clear(facts)
        if move is not None
        else Unobserved("no allocator statistics were declared, nor was memory in use observed alone")
    )


def _stalls(case: Case, asked_ratio: float) -> tuple[Bound, ...]:
    """Return what late iterations and idle stretches can have lost to the allocator; no bound where times do not tell."""
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
    remedy="Fill inputs with random values of the scale they will have, or say what they are beside the number.",
)
def data_dependent_power(
    case: Case,
    *,
    zero_ratio: Annotated[Share, "half of what a rectifier leaves is zeros, and that is data"] = 0.6,
    unique_ratio: Annotated[
        Share, "64 k normal values have 4 % of distinct ones in bf16, 57 % of the 256 there are in fp8"
    ] = 0.01,
    capped_ratio: Annotated[Share, "capped for most of the window: it is the power that bounds the clock"] = 0.5,
    power_ratio: Annotated[
        Share, "of the limit: at its busiest every capped recording of an H200 drew 0.88 of it or more, zeros 0.60"
    ] = 0.75,
) -> Answer:
    """Finds inputs of zeros, constants or few distinct values, which make arithmetic cheaper than data does.

    Why it matters:
        Transistors that do not switch draw no power, and the board raises its clock instead: a bf16 product of zeros on an
        H200 took 17.7 % less time than one of random values, at 415 W instead of 691 W.

    What it cannot see:
        Undeclared inputs.  Patterns that repeat seldom and toggle little.  Integers, whose zeros may be intended.

    Remedy:
        Random inputs, or recorded ones.  Where sparsity is the point, quote it with the number.

    Source:
        65 536 values of each tensor given to ``w.inputs`` or ``bench``.  On a capped board only this card's record of the
        work shows the gain.  On an uncapped board, and under ``fixed-clock``, such inputs are a label.  Without declared
        inputs, a board capped far below its limit is a label too, because other limits of a board cause that as well.
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
            # Power does not move a clock that holds, nor one that no cap holds.
            moves = case.claim is not Claim.FIXED_CLOCK and (held is None or held.most_ratio > _UNCAPPED_RATIO)
            what = f"{what}: such data draws less power than real data"
            return Found(facts=facts | {"what": what}, bounds=_against_record(case) if moves else ())
    if low and power_w is not None and limit_w:
        what = f"the board is capped at {power_w:.0f} W of {limit_w:.0f} W, as happens with data that draws little power"
        return Found(facts=facts | {"what": what})
    return Clear(facts) if known else Unobserved("nobody declared how random the inputs are")


def _against_record(case: Case) -> tuple[Bound, ...]:
    """Return how far the numbers lie from this card's record of the work; without one nobody can say."""
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
    """Return what it drew at its busiest: a mean over pauses would be low for any data."""
    column = evidence.within("power_w")
    known = column.observed.values
    return float(np.quantile(known, 0.9)) if 2 * len(known) > len(column) else None


@rule(
    "background-thread",
    kind=RuleKind.INTEGRITY,
    needs=("host.threads_born_count", "host.processes_born_count"),
    basis=Basis.HOST,
    says="{what} began beside the work and used {cpu} of processor time",
    remedy="Warm up until pools and loaders are there, and start nothing beside the timed work.",
)
def background_thread(
    evidence: Evidence,
    claim: Claim,
    *,
    busy_ratio: Annotated[
        Processors, "of one processor over the window: idle pools and threads of the driver stay far below"
    ] = 0.05,
    spared_count: Annotated[Count, "torch and the driver start so many for autograd and a context, and they sleep"] = 4.0,
) -> Answer:
    """Finds threads and processes that started inside the window.

    Why it matters:
        A loader that starts inside the window competes for processors.  Work that a new thread does is not in the timed
        call.

    What it cannot see:
        Threads that existed before the window, or began within its first hundredth of a second.  Threads that came and went
        between two looks, a second apart.  The work itself, if the window's process only started it and waits.

    Remedy:
        Call everything once before the window, so that pools, loaders, autograd and compilers start their threads then.

    Source:
        /proc/PID/task of the measured tree at both edges and each second between.  New threads that hardly ran are a label;
        a few sleeping pool threads are not reported.
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
