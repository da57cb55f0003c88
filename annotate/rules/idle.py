"""Rules about idle time: a GPU that did no work, and idle stretches."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from annotate.budget import Replaces
from annotate.case import Case
from annotate.derived.busy_share import UTILISATION, gauge_lost_ratio, rhythm_lost_ratio
from annotate.derived.idle_bounds import bought_bounds, gauge_bound, interval_bound, is_power_free
from annotate.derived.idle_gaps import IdleGaps
from annotate.derived.pause_causes import UNKNOWN, IdleCause, idle_causes
from annotate.derived.time_accounts import SHORTEST_NS
from annotate.derived.work_before import lost_since_before_ratio
from annotate.evidence import Fact
from annotate.ranges import PositiveShare, Share
from annotate.rule import Answer, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule
from annotate.times.durations import readable

_REMEDIES: Mapping[str, str] = {
    "collector": "Disable Python's garbage collector while you time: gc.disable(), or bench().",
    "compilation": "Warm up with every shape and dtype before the window opens, so that nothing compiles inside it.",
    "autotuning": "Let libraries choose their algorithms before the window opens.",
    "run-queue": "Free CPU cores for the launching thread, or replay its launches as a CUDA graph.",
    "page-faults": "Touch the memory once before the window opens.",
    "hand-over": "Pass the times to gpuwatch after the window's end.",
}
_SHOWN_S = 0.02  # shorter stretches would print as "from 0.00 to 0.00 s"
_BUSY_RATIO = 0.5  # mean utilisation above which a stretch is called busy
_UNTIMED_REMEDY = "Or time every call; call record() after the work, not before it."
_UNKNOWN_REMEDY = "Find the cause of the missing launches: a data loader, a lock, a synchronisation, or a sleep."


@rule(
    "no-work",
    kind=RuleKind.INTEGRITY,
    says="no witness shows work on the GPU: {by} at most {most_ratio:.1%} of the window",
    remedy="Check that the work runs on this GPU and inside the window.",
)
def no_work(
    case: Case,
    *,
    busy_ratio: Annotated[PositiveShare, "the specification: a GPU less busy than this did not do the measured work"] = 0.01,
) -> Answer:
    """Finds a window in which the GPU did nothing.

    Why it matters:
        If the work ran elsewhere, failed early or was never launched, the window has steady clocks but measures nothing.

    Limits of detection:
        The process that worked: a neighbour also makes the GPU busy.  Under ``burst``, or with a declared period, a window
        may be busy for less than 1 % of the time.  Then only a witness that reads zero counts.

    Remedy:
        Check which GPU the process uses, and open the window around the calls.

    Source:
        GPM's activity, the driver's utilisation, and energy above idle.  At least one witness must show an idle GPU, and
        none a busy one.  The driver's record of each process does not count: it omits some processes.
    """
    shares = [share for share in case.busy_shares if not share.is_own]
    if not shares:
        return Unobserved(case.evidence.absence or "no witness observed whether the GPU worked")
    rested = [share for share in shares if (share.ratio == 0.0 if case.is_sparse else share.most_ratio < busy_ratio)]
    worked = [share for share in shares if (share.ratio > 0.0 if case.is_sparse else share.least_ratio >= busy_ratio)]
    said = rested or shares
    facts: dict[str, Fact] = {
        "by": ", ".join(share.witness for share in said),
        "most_ratio": max(share.most_ratio for share in said),
        "busy_ratio": max(share.ratio for share in said),
    }
    if rested and not worked:
        return Found(Severity.REJECT, facts)
    return Clear(facts)


@rule(
    "idle-stretch",
    kind=RuleKind.BIAS,
    says="{what}{cause_words}",
    remedy="Launch without pauses.  {advice}",
)
def idle_stretch(
    case: Case,
    *,
    named_ratio: Annotated[Share, "the specification: pauses that cover half of a stretch are its cause"] = 0.5,
    gauge_ratio: Annotated[Share, "42 of 44 clean H200 windows lost at most 1.1 percentage points"] = 0.013,
) -> Answer:
    """Finds stretches in which the GPU idled longer than between other iterations, and names their cause.

    Why it matters:
        Throughput loses the whole stretch, while single times stay the same.  A capped GPU runs faster after a pause, so
        the median after it belongs to another clock.

    Limits of detection:
        Pauses at every Nth iteration, which are part of the loop.  Without times, pauses in a steady rhythm, and stretches
        that the power record does not resolve.  Sleeps of 10 ms in an attention loop left no dip.  Pauses inside an
        iteration: ``outliers`` finds them.  Compilations are named as causes only for Triton 3.4 and later and for torch's
        compiler: torch's jiterator, CUDA's own compiler, and the choices of cuBLAS and cuDNN have no hook.

    Remedy:
        Follow the named cause.  If no cause is named, find out what the launching thread did at that time.

    Source:
        The gaps before, between and after the timed entries.  Utilisation shows whether the GPU idled in a gap of a second
        or more.  Without times, the driver's 20 ms power record, limited by the
        loss of utilisation.  Without a known idle power, utilisation alone.  On an H200, 42 of 44 clean windows lost at most
        0.13 %, and one with a sleep of 0.3 s in 3 s lost 10.1 %.
    """
    idle, lost_ratio = case.gaps or case.dips, None
    if case.gaps is None:
        # Readings of a rhythm vary with their place in it.
        pause_s = idle.usual_s if idle is not None else 0.0
        lost_ratio = rhythm_lost_ratio(case.evidence, pause_s) if pause_s > 0.0 else gauge_lost_ratio(case.evidence)
        lost_ratio = _larger(lost_ratio, lost_since_before_ratio(case.evidence))
    if idle is None:
        return _by_gauge(case, lost_ratio)
    # Utilisation adds up losses that are too short for the power record.
    lost_ratio = lost_ratio if lost_ratio is not None and lost_ratio > gauge_ratio else 0.0
    if not idle.irregular.any():
        return _by_gauge(case, lost_ratio) if lost_ratio else _without_interval(case, idle)
    buys_clock, replaces = is_power_free(case.evidence) is not True, _replaces(case)
    bound = interval_bound(idle, idle_stretch.name, buys_clock=buys_clock, replaces=replaces)
    bought = bought_bounds(idle, idle_stretch.name, buys_clock=buys_clock, replaces=replaces)
    causes = idle_causes(idle, case.evidence.pauses, case.evidence.host.run_wait_s, least_ratio=named_ratio)
    return Found(
        facts=_said(case, idle, causes),
        effect_ratio=idle.irregular_ratio,
        span_ns=bound.span_ns,
        bounds=(replace(bound, ratio=max(bound.size_ratio, lost_ratio)), *bought),
    )


def _larger(lost_ratio: float | None, since_before_ratio: float) -> float | None:
    """Return the larger loss of utilisation: within the window or against the work before; return None if unknown."""
    return None if lost_ratio is None else max(lost_ratio, since_before_ratio)


def _replaces(case: Case) -> Replaces:
    """Return ``UNRESOLVED`` if the books confirm the times, which resolve idle time best; else ``NOTHING``."""
    return Replaces.UNRESOLVED if case.gaps is not None and case.times_agree else Replaces.NOTHING


def _without_interval(case: Case, idle: IdleGaps) -> Answer:
    """Return Clear, or zero bounds that replace the witness's uncertainty if the books confirm the times."""
    facts: dict[str, Fact] = {"idle_ratio": 0.0, "gaps_count": 0}
    replaces = _replaces(case)
    if replaces is Replaces.NOTHING:
        return Clear(facts)
    what = "power or utilisation may dip, but the times show no idle stretch"
    words: dict[str, Fact] = {"what": what, "cause": UNKNOWN, "cause_words": "", "advice": _UNKNOWN_REMEDY}
    is_shown = case.evidence.observes("dense_power") or case.evidence.observes("utilization_ratio")
    if not is_shown:
        return Clear(facts)
    bought = bought_bounds(idle, idle_stretch.name, buys_clock=False, replaces=replaces)
    return Found(facts=facts | words, bounds=(interval_bound(idle, idle_stretch.name, replaces=replaces), *bought))


def _by_gauge(case: Case, lost_ratio: float | None) -> Answer:
    """Return the answer by utilisation alone, if neither times nor the power record show an idle stretch."""
    if lost_ratio is None:
        return Unobserved(case.evidence.absence or "neither times, nor idle power, nor utilisation were observed")
    facts: dict[str, Fact] = {"idle_ratio": lost_ratio, "by": UTILISATION}
    if lost_ratio == 0.0:
        return Clear(facts)
    what = f"the GPU was busy {lost_ratio:.2%} less than usual, by its utilisation"
    words: dict[str, Fact] = {"what": what, "cause": UNKNOWN, "cause_words": "", "advice": _UNKNOWN_REMEDY}
    return Found(facts=facts | words, bounds=(gauge_bound(lost_ratio, idle_stretch.name),))


def _said(case: Case, idle: IdleGaps, causes: Sequence[IdleCause]) -> dict[str, Fact]:
    """Return the facts of the stretches and their cause."""
    spans, begin_ns, lost = idle.spans_ns(), case.evidence.window.begin_ns, idle.irregular_ratio
    longest_ns = max(spans, key=lambda span: span[1] - span[0])
    from_s, to_s = ((at_ns - begin_ns) / 1e9 for at_ns in longest_ns)
    is_busy = case.gaps is not None and _is_busy(case, *longest_ns)
    longest = (
        f"from {from_s:.2f} to {to_s:.2f} s" if to_s - from_s >= _SHOWN_S else f"{readable(to_s - from_s)} at {from_s:.2f} s"
    )
    many = f"{len(spans)} times, {readable(lost * idle.window_s)} in all, longest {longest}"
    when = longest if len(spans) == 1 else many
    what = "the GPU was busy, but no call was timed," if is_busy else "the GPU idled"
    main = causes[0]
    facts: dict[str, Fact] = {
        "idle_ratio": lost,
        "gaps_count": len(spans),
        "what": f"{what} {when} ({-lost:+.1%} throughput)",
        "cause": main.cause,
        "cause_by": main.by,
        "cause_overlap_ratio": main.overlap_ratio,
        "cause_idle_s": main.idle_s,
        "cause_words": "" if main.cause == UNKNOWN else f": {_worded(main, len(spans))}",
        "advice": _REMEDIES.get(main.cause, _UNTIMED_REMEDY if is_busy else _UNKNOWN_REMEDY),
    }
    return facts


def _is_busy(case: Case, begin_ns: int, end_ns: int) -> bool:
    """Return whether utilisation shows work for most of a stretch, which must be long enough for it."""
    used = case.evidence.trace.within("utilization_ratio", begin_ns, end_ns).mean()
    return end_ns - begin_ns >= SHORTEST_NS and used is not None and used > _BUSY_RATIO


def _worded(cause: IdleCause, spans_count: int) -> str:
    perhaps = "perhaps " if cause.overlap_ratio == 0.0 else ""
    share = f", {cause.gaps_count} of {spans_count}" if cause.gaps_count < spans_count else ""
    return f"{perhaps}{cause.cause}{share}"


RULES: tuple[Rule, ...] = (no_work, idle_stretch)
