"""Rules about contention: other processes on the GPU, listed and unlisted."""

from collections.abc import Mapping
from typing import Annotated

from annotate.case import Case
from annotate.derived.busy import beyond_declared_ratio, utilization_ratio
from annotate.derived.foreign_bounds import foreign_bounds, hidden_bounds, unseen_bounds
from annotate.derived.neighbours import ACTIVE_RATIO, HIDDEN_BYTES, Neighbours, neighbours, presence_span_ns
from annotate.derived.presence import Presence, list_is_whole, unexplained_bytes, unlisted_because
from annotate.derived.time_accounts import BOOKS_ERROR_RATIO
from annotate.evidence import Evidence, Fact
from annotate.ranges import Bytes, Duration, Share
from annotate.rule import Answer, Clear, Found, Rule, RuleKind, Unobserved, rule


@rule(
    "contention-process",
    kind=RuleKind.BIAS,
    needs=("process_list",),
    says="process {pid} ({name}, user {user}) {did}",
    remedy="Stop process {pid} or measure on another GPU.",
)
def contention_process(
    case: Case,
    *,
    active_ratio: Annotated[
        Share, "the driver's utilisation record shows 1-2 % for a process that does nothing"
    ] = ACTIVE_RATIO,
    unread_limit_s: Annotated[Duration, "the list is read five times a second; a neighbour fits into a longer gap"] = 0.5,
) -> Answer:
    """Finds foreign processes on the GPU during the window: computing, arriving, or holding its memory.

    Why it matters:
        A neighbour runs in turns with the measured work and can make single times look better while throughput falls.  On an
        H200 with another process's vector adds, an event-timed GEMM took 14 % less time at half the throughput.  The GEMM
        drew less power, and its waits fell between event pairs.

    Limits of detection:
        Processes outside this PID namespace: the driver does not list them, so only a complete list clears the rule.  A
        neighbour that started and ended between two readings of the list.  Without times, the neighbour's share: the
        utilisation record misses most of it.  An equal slow-down of every iteration, which only this card's record of the
        work shows.

    Remedy:
        Stop the other process, or use an idle GPU.  ``display-active`` reports display servers.

    Source:
        NVML's compute and graphics process lists, and per-process utilisation.  The late time inside iterations gives the
        size: on an H200 it was 0.25, 2.4, 19 and 37 % when the mean had changed by 0.6, 2.4, 19 and 36 %.  Driver
        580.159.04.
    """
    evidence, others = case.evidence, case.neighbours
    if others.computing:
        span_ns = presence_span_ns(others.computing)
        bounds = foreign_bounds("contention-process", case.foreign_work, span_ns=span_ns)
        return Found(facts=_named(others.computing, active_ratio), span_ns=span_ns, bounds=bounds)
    if not others.own_listed and evidence.window.pids and not _idle(evidence, active_ratio):
        return Unobserved("the process list is incomplete: the GPU was in use, but the list lacks the window's own processes")
    if any(each.listed for each in others.unlisted):
        return Unobserved("the measured process is unknown among several listed ones")
    unlisted = unlisted_because(evidence, unread_limit_s)
    if unlisted is not None:
        return Unobserved(unlisted)
    return Clear({"censuses_count": len(evidence.trace.process_lists)})


@rule(
    "contention-residual",
    kind=RuleKind.BIAS,
    says="{sign}, so a hidden process may share the GPU",
    remedy="Check the GPU from the host, measure on an unshared GPU, or declare your other work.",
)
def contention_residual(
    case: Case,
    *,
    memory_bytes: Annotated[
        Bytes, "with every tenant visible 9-15 MB stay unexplained; a bare context takes 79 MB"
    ] = HIDDEN_BYTES,
    error_ratio: Annotated[Share, "clean H200 windows balanced to -1.1 to +0.6 percentage points"] = BOOKS_ERROR_RATIO,
) -> Answer:
    """Finds work on the GPU that the process list does not explain: a neighbour in another container or partition.

    Why it matters:
        Inside a container the process list shows no other process, yet a neighbour can halve the throughput while single
        times may even shrink.  Utilisation and memory still include every process.

    Limits of detection:
        A neighbour that is idle and holds no memory beyond the limit, or that stays for less than a second.  Turns of a
        hidden neighbour inside timed entries, which count as timed.  The measured process among two unlisted ones, if the
        driver shows another PID: one may be the measured process, the other counts as foreign.  Undeclared own work (a cache
        flush, a second stream) looks like a neighbour, unless complete process lists show no other process.

    Remedy:
        Run ``nvidia-smi`` on the host, use a GPU that is not shared, or time or declare all work of the measured process.

    Source:
        Three signs count.  The first is a PID that only NVML's utilisation record names.  The second is device memory in
        use beyond listed processes and the driver's reserve.  The third, if the list may be incomplete, is unaccounted busy
        time.  That is utilisation beyond timed and declared work or, without times, beyond the record of the window's own
        processes or of one unknown PID.  Without books it is utilisation beyond the declared busy share.  Inside a PID
        namespace of an H200 machine, the list was empty while the record showed the outside process at 98 %.  Driver
        580.159.04.
    """
    evidence = case.evidence
    others = case.neighbours if memory_bytes == HIDDEN_BYTES else neighbours(evidence, hidden_bytes=memory_bytes)
    facts: dict[str, Fact] = {"unexplained_bytes": unexplained_bytes(evidence) if others.own_listed else None}
    if others.unlisted or others.hidden_bytes:
        span_ns = presence_span_ns(others.unlisted)
        bounds = hidden_bounds("contention-residual", case.foreign_work, others, span_ns=span_ns)
        return Found(facts={**facts, **_hidden(others)}, span_ns=span_ns, bounds=bounds)
    if not list_is_whole(evidence):
        return _by_books(case, facts, error_ratio)
    if not others.own_listed and evidence.window.pids and not _idle(evidence, ACTIVE_RATIO):
        return Unobserved("the window's own processes are not on the process list")
    return Clear(facts)


def _by_books(case: Case, facts: Mapping[str, Fact], error_ratio: float) -> Answer:
    """Return the answer by unaccounted busy time, for process lists that may be incomplete."""
    accounts, declared_ratio = case.accounts, beyond_declared_ratio(case.evidence)
    counted = accounts.counted_ratio(error_ratio) if accounts is not None else 0.0
    open_ratio = accounts.rest_ratio if accounts is not None and counted > 0.0 else 0.0
    by = "the timed and declared work" if case.has_times else "the processes that can be its own"
    if declared_ratio is not None and declared_ratio > max(open_ratio, error_ratio) and accounts is None:
        open_ratio, by = declared_ratio, "the declared busy time"
    if open_ratio > 0.0:
        sign = f"the GPU was busy {open_ratio:.1%} of the time beyond {by}"
        bounds = unseen_bounds("contention-residual", case.foreign_work, accounts, open_ratio)
        return Found(facts={**facts, "sign": sign, "beyond_ratio": open_ratio}, bounds=bounds)
    if not case.evidence.trace.process_lists:
        return Unobserved(case.evidence.absence or "the process list was not observed")
    if accounts is None:
        return Unobserved("processes may be missing from the list, and no books show the busy time of the measured ones")
    return Clear({**facts, "rest_ratio": accounts.rest_ratio})


def _hidden(others: Neighbours) -> Mapping[str, Fact]:
    """Return the facts about processes that are not on the list."""
    held = f"{others.hidden_bytes / 1e6:.0f} MB of the GPU's memory belong to no listed process"
    if not others.unlisted:
        return {"sign": held}
    worst = max(others.unlisted, key=Presence.load)
    share = worst.peak_ratio or 0.0
    place = "which may not be the measured one" if worst.listed else "which is not on the process list"
    used = f"PID {worst.pid}, {place}, used {'up to ' if share else ''}{share:.0%} of the GPU's time"
    facts: dict[str, Fact] = {"pid": worst.pid, "unlisted_ratio": sum(each.least_ratio or 0.0 for each in others.unlisted)}
    return {"sign": f"{used}, and {held}" if others.hidden_bytes else used, **facts}


def _idle(evidence: Evidence, active_ratio: float) -> bool:
    utilization = utilization_ratio(evidence)
    return utilization is not None and utilization <= active_ratio


def _named(others: tuple[Presence, ...], active_ratio: float) -> Mapping[str, Fact]:
    """Return the facts of the busiest neighbour."""
    worst = max(others, key=Presence.load)
    return {
        "pid": worst.pid,
        "name": worst.name or "unnamed",
        "user": worst.user or "unknown",
        "did": _did(worst, active_ratio) + (f", and {len(others) - 1} more" if len(others) > 1 else ""),
        "busy_ratio": worst.least_ratio,
        "memory_bytes": worst.memory_bytes,
        "seen_s": (worst.seen_end_ns - worst.seen_begin_ns) / 1e9,
        "others_count": len(others),
    }


def _did(other: Presence, active_ratio: float) -> str:
    if other.least_ratio is not None and other.least_ratio > active_ratio:
        return f"used {other.least_ratio:.0%} of the GPU's time"
    if other.arrived:
        return "started on the GPU during the window"
    if other.peak_ratio is not None and other.peak_ratio > active_ratio:
        return f"used up to {other.peak_ratio:.0%} of the GPU for moments around the window"
    held = f"held {other.memory_bytes / 1e6:.0f} MB of its memory" if other.memory_bytes is not None else "was on the GPU"
    return held + (" and was not seen computing" if other.peak_ratio is not None else ", with unknown utilisation")


RULES: tuple[Rule, ...] = (contention_process, contention_residual)

# Rules of earlier versions, with their replacements.  Policies, stores and reports may still name them.
RETIRED: Mapping[str, str] = {
    "cpu-starvation": "idle-stretch and outliers, which name the run queue where its waits overlap",
}
RETIRED_LIMITS: Mapping[str, tuple[str, ...]] = {
    "contention-process": ("loaded_ratio", "small_ratio"),
    "contention-residual": ("flag_ratio", "reject_ratio"),
}
