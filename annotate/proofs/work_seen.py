"""Proof 1: the measured process tree kept the GPU busy, and idle time that stands out is bounded."""

from collections.abc import Mapping, Sequence

from annotate.answer import Answer, Found
from annotate.budget import Figure, Proof, ProofShown, ProofState
from annotate.case import Case
from annotate.claims import Claim
from annotate.declared import amount
from annotate.derived.busy_share import BusyShare, gauge_share
from annotate.derived.dark_time import power_intervals
from annotate.derived.idle_bounds import counted_regular_ratio, is_power_free, keeps_period
from annotate.derived.presence import alone

_NO_WORK = "no-work"
_SEEN_RATIO = 0.01  # the specification: less is no work
_HARDLY_RATIO = 0.05  # as the rounding of whole percents and a page at each edge leave of a GPU at rest
_DARK_RATIO = 0.5  # of the window: then a witness does not speak of it


def prove(case: Case, found: Mapping[str, Answer]) -> ProofShown:
    """Return whether work was seen, by a witness that knows whose it was."""
    shares = case.busy_shares
    seen = _seen(case, shares)
    facts = _facts(case, shares, seen)
    if isinstance(found.get(_NO_WORK), Found):
        return ProofShown(
            proof=Proof.WORK_SEEN, state=ProofState.BROKEN, says="no work seen", broken_by=(_NO_WORK,), facts=facts
        )
    missing = _missing(case, shares, seen)
    return ProofShown(
        proof=Proof.WORK_SEEN,
        state=ProofState.UNPROVEN if missing else ProofState.SHOWN,
        says=_said(shares, seen),
        missing=missing,
        facts=facts,
    )


def _seen(case: Case, shares: Sequence[BusyShare]) -> BusyShare | None:
    """Return the first witness that surely saw the own processes work."""
    is_alone = alone(case.evidence) or _one_unknown_worked(case)
    for share in shares:
        works = share.ratio > 0.0 if case.is_sparse else share.least_ratio >= _SEEN_RATIO
        if works and (share.is_own or is_alone):
            return share
    return None


def _one_unknown_worked(case: Case) -> bool:
    """Return whether the one process there worked, under a PID that can only be the measured one's outside its container."""
    others = case.neighbours
    return not others.at_work and any((each.least_ratio or 0.0) >= _SEEN_RATIO for each in others.perhaps_own)


def _missing(case: Case, shares: Sequence[BusyShare], seen: BusyShare | None) -> tuple[str, ...]:
    """Return the evidence that the proof lacks."""
    lacking: list[str] = []
    if not shares:
        lacking.append("a witness of the GPU's work")
    elif seen is None:
        lacking.append("whose work it was (the whole process list, or the own processes' utilisation)")
    elif _is_hardly_seen(case, shares):
        lacking.append("what the GPU did otherwise: utilisation hardly saw it work")
    if not _is_idle_known(case):
        lacking.append("idle time (times with their begins, the driver's power record, or utilisation)")
    if case.gaps is not None and case.claim is Claim.SUSTAINED and _is_clock_unknown(case):
        lacking.append("power (20 ms record, limit and cap), which tells whether the loop's pauses buy clock")
    return tuple(lacking)


def _is_hardly_seen(case: Case, shares: Sequence[BusyShare]) -> bool:
    """Return whether a GPU that should work throughout rested by its utilisation, and nothing tells when it worked."""
    gauge = gauge_share(shares)
    if gauge is None or case.is_sparse or case.gaps is not None or case.is_busy_contradicted:
        return False
    is_shown = case.dips is not None and bool(case.dips.irregular.any())
    return gauge.most_ratio < _HARDLY_RATIO and not is_shown


def _is_idle_known(case: Case) -> bool:
    if case.gaps is not None or case.evidence.observes("utilization_ratio"):
        return True
    return case.dips is not None and _dark_ratio(case) <= _DARK_RATIO


def _is_clock_unknown(case: Case) -> bool:
    """Return whether regular pauses count without evidence of the clock that they buy."""
    if case.gaps is None or counted_regular_ratio(case.evidence, case.gaps) == 0.0:
        return False
    every_s = amount(case.evidence.declared, "every_s")
    return is_power_free(case.evidence) is None and not (every_s is not None and keeps_period(case.timings, every_s))


def _dark_ratio(case: Case) -> float:
    window = case.evidence.window
    dark_ns = sum(each.length_ns for each in power_intervals(case.evidence, idle_w=case.idle_w))
    return dark_ns / window.length_ns if window.length_ns > 0 else 1.0


def _facts(case: Case, shares: Sequence[BusyShare], seen: BusyShare | None) -> Mapping[str, Figure]:
    facts: dict[str, Figure] = {f"{share.witness} ratio": share.ratio for share in shares}
    idle = case.gaps or case.dips
    return facts | {
        "witness": seen.witness if seen is not None else None,
        "irregular_idle_ratio": idle.irregular_ratio if idle is not None else None,
        "regular_idle_ratio": case.gaps.regular_ratio if case.gaps is not None else None,
    }


def _said(shares: Sequence[BusyShare], seen: BusyShare | None) -> str:
    """Return "busy 98 %", by utilisation where it answers, else by the witness that saw the work."""
    shown = gauge_share(shares) or seen
    if shown is None:
        return "busy: not shown"
    return f"busy {shown.ratio:.0%}".replace("%", " %") if shown.witness != "energy" else "worked, by its energy"
