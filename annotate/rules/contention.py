"""Rules about contention: other processes on the GPU, and too little of the CPU."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from annotate.claims import Claim
from annotate.derived.busy import beyond_declared_ratio, beyond_timed_ratio, launch_bound, utilization_ratio
from annotate.derived.hidden import by_excess, by_memory, by_record
from annotate.derived.presence import Presence, alone, list_is_whole, own_was_listed, presences, unread_s
from annotate.evidence import Evidence, Fact
from annotate.ranges import Bytes, Duration, Share
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule
from annotate.times.durations import inside


@rule(
    "contention-process",
    kind=RuleKind.BIAS,
    needs=("census",),
    says="process {pid} ({name}, user {user}) {did}",
    remedy="Stop process {pid} or measure on another GPU.",
)
def contention_process(
    evidence: Evidence,
    claim: Claim,
    *,
    active_ratio: Annotated[Share, "the driver's utilisation record shows 1-2 % for a process that does nothing"] = 0.02,
    loaded_ratio: Annotated[Share, "a twentieth of the GPU's time is more than any effect worth reporting"] = 0.05,
    small_ratio: Annotated[Share, "of device memory: X, DCGM or a bare context hold less; who holds more holds work"] = 0.005,
    unread_limit_s: Annotated[Duration, "the list is read five times a second; a neighbour fits into a longer gap"] = 0.5,
) -> Answer:
    """Finds processes of others on the GPU during the window: computing, arriving, or holding its memory.

    Why it matters:
        A neighbour takes turns with the measured work, and can make single times look better while throughput falls:
        with another process's vector adds beside it, an event-timed GEMM on an H200 read 14 % faster at half the
        throughput, because it drew less power and the waits fell between event pairs.

    What it cannot see:
        Processes outside this PID namespace: a driver leaves them off the list, so only a list known to be whole can
        clear.  A neighbour that came and went between two readings of the list.  Utilisation speaks of about a second;
        what straddles the window's edge counts only as far as it must have been inside.  In an interval nobody wrapped,
        the busiest process is taken for the measured one.

    Remedy:
        Stop the other process, or pick an idle GPU.  An idle resident that cannot be stopped (DCGM) is only noted; a
        display server is ``display-active``.

    Source:
        NVML's compute and graphics process lists, and per-process utilisation.  Figures: H200, driver 580.159.04.
    """
    found = _worst_neighbour(evidence, active_ratio=active_ratio, loaded_ratio=loaded_ratio, small_ratio=small_ratio)
    own_listed, whole = own_was_listed(evidence), list_is_whole(evidence)
    if found and not (whole or own_listed or _nobody_is_own(evidence)):
        return Unobserved("the process list cannot be trusted: the window's own processes are not on it")
    if found and found.severity is not Severity.NOTE:
        return found
    if not own_listed and evidence.window.pids and not _idle(evidence, active_ratio):
        return Unobserved("the process list cannot be trusted: the GPU was in use, the window's own processes are not on it")
    if not whole:
        return Unobserved("processes outside this container may be missing from the process list")
    unread = unread_s(evidence)
    if unread > unread_limit_s:
        return Unobserved(f"the process list was not read for {unread:.1f} s of the window")
    return found or Clear({"censuses_count": len(evidence.trace.censuses)})


@rule(
    "contention-residual",
    kind=RuleKind.BIAS,
    says="{sign}, so somebody hidden may share it",
    remedy="Look at the GPU from the host, or measure on a GPU of your own.",
)
def contention_residual(
    evidence: Evidence,
    claim: Claim,
    *,
    flag_ratio: Annotated[Share, "ten clean scenarios on an H200 left at most 2.7 points of utilisation unexplained"] = 0.05,
    reject_ratio: Annotated[Share, "a hidden neighbour left 55 points; 15 is three times the flag's limit"] = 0.15,
    memory_bytes: Annotated[Bytes, "with every tenant visible 9-15 MB stayed unexplained, a bare context took 79 MB"] = 64e6,
) -> Answer:
    """Finds work on the GPU that the process list does not explain: a neighbour in another container, or behind a partition.

    Why it matters:
        Inside a container the process list shows nobody else, yet the neighbour takes its share: throughput halves while
        single times may even shrink.  Utilisation and memory still count everybody.

    What it cannot see:
        A neighbour that is idle and holds no memory beyond the limit.  Which of two unlisted processes is the measured
        one, when its own PID is unknown to the driver here.  The busy time that the harness declares is only used to
        find, never to clear; work it forgot to count (a cache flush, a side stream) looks like a neighbour, unless a whole
        process list names nobody else: that is ``contention-self``.

    Remedy:
        Run ``nvidia-smi`` on the host, ask for a GPU of your own, or count all of your own work as busy time.

    Source:
        Three signs: PIDs that only NVML's utilisation record names; device memory in use beyond listed processes and the
        driver's reserve; utilisation above the busy time the harness declared.  From inside a PID namespace of an H200
        machine the list was empty while the record showed the outside process at 98 %.  Driver 580.159.04.
    """
    named = by_record(evidence, flag_ratio, reject_ratio)
    held = by_memory(evidence, memory_bytes)
    # Where nobody else can have been there, the work nobody counted is the process's own: another hazard.
    uncounted_ratio = None if alone(evidence) else beyond_declared_ratio(evidence)
    # Often it is just work that was not timed, so it counts only where nothing clears.
    untimed_ratio = None if named.clear or held.clear else beyond_timed_ratio(evidence)
    signs = (
        named,
        held,
        by_excess(uncounted_ratio, "the busy time the harness declared", flag_ratio, reject_ratio),
        by_excess(untimed_ratio, "the timed iterations", flag_ratio, reject_ratio),
    )
    found = [sign for sign in signs if sign.severity]
    if found:
        worst = max(found, key=lambda sign: sign.severity is Severity.REJECT)
        return Found(worst.severity or Severity.FLAG, {"sign": worst.text, **worst.facts})
    if named.clear or held.clear:
        return Clear({**named.facts, **held.facts})
    return Unobserved(", and ".join(dict.fromkeys(sign.text for sign in signs if sign.text)))


@dataclass(frozen=True, slots=True, kw_only=True)
class StarvationLimits:
    """The limits of ``cpu-starvation``."""

    wait_ratio: Annotated[Share, "of its runnable time; an unloaded machine stays far below one in twenty"] = 0.05
    gross_ratio: Annotated[Share, "with a fifth of the time lost, times measure the scheduler"] = 0.2
    throttled_ratio: Annotated[Share, "one quota period of 100 ms in ten seconds; each stops every thread at once"] = 0.01
    steal_ratio: Annotated[Share, "a hypervisor that takes 2 % shows up in every launch-bound time"] = 0.02
    pressure_ratio: Annotated[Share, "used only where no run-queue times exist; it speaks of the whole machine"] = 0.2
    fed_ratio: Annotated[Share, "a GPU this busy never ran out of launches: waiting threads were not on the main path"] = 0.9
    idle_ratio: Annotated[Share, "waiting threads and a GPU idle half of the time belong together"] = 0.5
    stretch_ratio: Annotated[Share, "ten clean scenarios stayed within 2.7 points; starved launches gave 35"] = 0.1


@rule(
    "cpu-starvation",
    kind=RuleKind.BIAS,
    basis=Basis.HOST,
    says="the GPU had to wait for the CPU, as {signs}",
    remedy="Free processors for the benchmark, raise its CPU limit, or replay its launches as a CUDA graph.",
)
def cpu_starvation(evidence: Evidence, claim: Claim, *, limits: StarvationLimits) -> Answer:
    """Finds a benchmark that could not launch work in time because it got too little of the CPU.

    Why it matters:
        Late launches leave the GPU idle, and it boosts: with 16 busy processes on 16 processors a GEMM on an H200 had a
        median 16 % better than clean, a 99th percentile of 63 ms and 92 % less throughput, and no clock event said so.

    What it cannot see:
        Which thread waited: amounts are those of the whole process tree, so waiting data loaders are told from a waiting
        main thread only by whether the GPU stayed busy.  A Python lock held by another thread.  Launches made late by the
        benchmark's own work.  What the hypervisor took, where the kernel does not tell.  Throttled time is only there
        where a group has a limit, so that it is missing is no gap.

    Remedy:
        Stop other CPU work, give the container a larger CPU quota, or pin the benchmark to processors of its own.  A CUDA
        graph needs far fewer launches.

    Source:
        Linux: /proc/PID/schedstat (run-queue wait), cgroup cpu.stat (throttled time), /proc/stat (steal), pressure stall
        information; and the driver's utilisation.  Figures: H200, driver 580.159.04.
    """
    host, span_s = evidence.host, evidence.host.span_s
    waited = _wait_ratio(evidence)
    throttled = host.cgroup_throttled_s / span_s if host.cgroup_throttled_s is not None and span_s else None
    pressure = host.cpu_pressure_ratio if waited is None else None
    lacks = (
        _Lack("wait_ratio", waited, limits.wait_ratio, "threads ready to run waited {:.0%} of the time for a processor"),
        _Lack("pressure_ratio", pressure, limits.pressure_ratio, "processors were short {:.0%} of the time"),
        _Lack("throttled_ratio", throttled, limits.throttled_ratio, "the CPU limit stopped it {:.1%} of the time"),
        _Lack("steal_ratio", host.steal_ratio, limits.steal_ratio, "the hypervisor took {:.0%} of the processors"),
        _Lack(
            "stretched_ratio",
            _stretched_ratio(evidence),
            limits.stretch_ratio,
            "timed work claims {:.0%} more than the GPU was busy",
        ),
    )
    utilization = utilization_ratio(evidence)
    facts: dict[str, Fact] = {lack.name: lack.ratio for lack in lacks if lack.ratio is not None}
    facts["utilization_ratio"] = utilization
    over = {lack.name: lack for lack in lacks if lack.ratio is not None and lack.ratio > lack.limit_ratio}
    if not over:
        if waited is None and pressure is None:
            return Unobserved("how long the benchmark's threads waited for a processor was not observed")
        return Clear(facts)
    facts["signs"] = ", ".join(lack.text.format(lack.ratio) for lack in over.values())
    # Pressure speaks of the whole machine, so it says that time was lost but not how much of ours.
    lost_ratio = max((lack.ratio or 0.0 for name, lack in over.items() if name != "pressure_ratio"), default=0.0)
    if utilization is not None and utilization >= limits.fed_ratio:
        loaders = over.keys() <= {"wait_ratio", "pressure_ratio"} and lost_ratio <= limits.gross_ratio
        return Found(Severity.NOTE if loaders else Severity.FLAG, facts)
    idle = utilization is not None and utilization < limits.idle_ratio and claim is not Claim.BURST
    return Found(Severity.REJECT if lost_ratio > limits.gross_ratio or (idle and lost_ratio) else Severity.FLAG, facts)


@dataclass(frozen=True, slots=True)
class _Lack:
    """One way of getting too little of the CPU: the share of time lost to it, and how much is too much."""

    name: str
    ratio: float | None
    limit_ratio: float
    text: str


def _stretched_ratio(evidence: Evidence) -> float | None:
    """Return by how much the time the benchmark calls busy exceeds what the GPU was: launches that came late, mid-iteration."""
    declared, timed = beyond_declared_ratio(evidence), beyond_timed_ratio(evidence)
    if declared is not None and launch_bound(evidence):
        declared = None  # the harness counts its gaps between launches as busy, the driver as idle
    if timed is not None and evidence.timings is not None:
        took_s = inside(evidence).took_s
        # Starved launches are few and very late: they draw the mean of the times away from the median.
        if took_s.mean() < 1.2 * np.median(took_s):
            timed = None
    known = [-beyond for beyond in (declared, timed) if beyond is not None]
    return max(known) if known else None


def _nobody_is_own(evidence: Evidence) -> bool:
    """An interval nobody wrapped: no process is known to be the measured one."""
    return not evidence.window.pids and not any(presence.own for presence in presences(evidence))


def _idle(evidence: Evidence, active_ratio: float) -> bool:
    utilization = utilization_ratio(evidence)
    return utilization is not None and utilization <= active_ratio


def _worst_neighbour(evidence: Evidence, *, active_ratio: float, loaded_ratio: float, small_ratio: float) -> Found | None:
    # A display server is a hazard of its own.
    listed = [presence for presence in presences(evidence) if presence.listed and not presence.graphics]
    others = sorted((presence for presence in listed if not presence.own), key=Presence.load, reverse=True)
    if _nobody_is_own(evidence):
        others = others[1:]
    if not others:
        return None
    small_bytes = small_ratio * ((evidence.device.memory_total_bytes if evidence.device else None) or 0.0)

    def severity(other: Presence) -> Severity:
        if other.least_ratio is not None and other.least_ratio > loaded_ratio:
            return Severity.REJECT
        at_rest = other.peak_ratio is not None and other.peak_ratio <= active_ratio and not other.arrived
        if at_rest and other.memory_bytes is not None and other.memory_bytes < small_bytes:
            return Severity.NOTE
        return Severity.FLAG

    worst = max(others, key=lambda other: (list(Severity).index(severity(other)), other.load()))
    facts: dict[str, Fact] = {
        "pid": worst.pid,
        "name": worst.name or "unnamed",
        "user": worst.user or "unknown",
        "did": _did(worst, active_ratio) + (f", and {len(others) - 1} more" if len(others) > 1 else ""),
        "busy_ratio": worst.least_ratio,
        "memory_bytes": worst.memory_bytes,
        "seen_s": (worst.seen_end_ns - worst.seen_begin_ns) / 1e9,
        "others_count": len(others),
    }
    return Found(severity(worst), facts, span_ns=(worst.seen_begin_ns, worst.seen_end_ns))


def _did(other: Presence, active_ratio: float) -> str:
    if other.least_ratio is not None and other.least_ratio > active_ratio:
        return f"used {other.least_ratio:.0%} of the GPU's time"
    if other.arrived:
        return "came onto the GPU during the window"
    if other.peak_ratio is not None and other.peak_ratio > active_ratio:
        return f"used up to {other.peak_ratio:.0%} of the GPU for moments around the window"
    held = f"held {other.memory_bytes / 1e6:.0f} MB of its memory" if other.memory_bytes is not None else "was on the GPU"
    return held + (" and was not seen computing" if other.peak_ratio is not None else ", whether it was idle is not known")


def _wait_ratio(evidence: Evidence) -> float | None:
    """The share of their runnable time that the tree's threads waited, or of the span while less than one thread ran."""
    host = evidence.host
    if host.run_wait_s is None or not host.span_s:
        return None
    return host.run_wait_s / max(host.span_s, host.run_wait_s + (host.cpu_s or 0.0))


RULES: tuple[Rule, ...] = (contention_process, contention_residual, cpu_starvation)
