"""Proof 1, work seen: the measured process tree kept the GPU busy, and idle time has a bound."""

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

_NO_WORK, _DUTY = "no-work", "bursty-duty-cycle"
_SEEN_RATIO = 0.01  # the specification: a smaller busy share does not count as work
_HARDLY_RATIO = 0.05  # largest busy share of an idle GPU, by rounding to whole percents and a refresh at each edge
_DARK_RATIO = 0.5  # largest share of the window without power samples


def prove(case: Case, found: Mapping[str, Answer]) -> ProofShown:
    """Return the proof that a witness saw work of the window's own processes."""
    shares = case.busy_shares
    seen = _seen(case, shares)
    facts = _facts(case, shares, seen)
    if isinstance(found.get(_NO_WORK), Found):
        return ProofShown(
            proof=Proof.WORK_SEEN, state=ProofState.BROKEN, says="no work seen", broken_by=(_NO_WORK,), facts=facts
        )
    missing = _missing(case, shares, seen, found)
    return ProofShown(
        proof=Proof.WORK_SEEN,
        state=ProofState.UNPROVEN if missing else ProofState.SHOWN,
        says=_text(shares, seen),
        missing=missing,
        facts=facts,
    )


def _seen(case: Case, shares: Sequence[BusyShare]) -> BusyShare | None:
    is_alone = alone(case.evidence) or _one_unknown_worked(case)
    for share in shares:
        works = share.ratio > 0.0 if case.is_sparse else share.least_ratio >= _SEEN_RATIO
        if works and (share.is_own or is_alone):
            return share
    return None


def _one_unknown_worked(case: Case) -> bool:
    """Return True if the only process on the GPU worked, and its PID can only belong to the measured process.

    Outside its container, the measured process has another PID.
    """
    others = case.neighbours
    return not others.at_work and any((each.least_ratio or 0.0) >= _SEEN_RATIO for each in others.perhaps_own)


def _missing(case: Case, shares: Sequence[BusyShare], seen: BusyShare | None, found: Mapping[str, Answer]) -> tuple[str, ...]:
    lacking: list[str] = []
    if not shares:
        lacking.append("a witness of the GPU's work")
    elif seen is None:
        lacking.append("the owner of the work (a complete process list, or the own processes' utilisation)")
    elif _is_hardly_seen(case, shares):
        lacking.append("a witness of work beyond the few percent that utilisation shows")
    if not _is_idle_known(case):
        lacking.append("idle time (times with start times, the driver's power record, or utilisation)")
    if case.claim is Claim.SUSTAINED and _is_clock_unknown(case, found.get(_DUTY)):
        lacking.append("power (20 ms record, limit and cap), which shows whether the loop's pauses raise the clock")
    return tuple(lacking)


def _is_hardly_seen(case: Case, shares: Sequence[BusyShare]) -> bool:
    """Return True if a GPU with a steady load was idle by utilisation, and no other evidence shows the time of its work."""
    gauge = gauge_share(shares)
    if gauge is None or case.is_sparse or case.gaps is not None or case.is_busy_contradicted:
        return False
    is_shown = case.dips is not None and bool(case.dips.irregular.any())
    return gauge.most_ratio < _HARDLY_RATIO and not is_shown


def _is_idle_known(case: Case) -> bool:
    if case.gaps is not None or case.evidence.observes("utilization_ratio"):
        return True
    return case.dips is not None and _dark_ratio(case) <= _DARK_RATIO


def _is_clock_unknown(case: Case, duty: Answer | None) -> bool:
    """Return True if regular pauses count and no evidence shows whether they raise the clock.

    Without times, the answer of ``bursty-duty-cycle`` holds the share of the pauses under the limits of the policy.
    """
    if case.gaps is None:
        resting = duty.facts.get("resting_ratio") if isinstance(duty, Found) and case.is_rest_counted else None
        if not isinstance(resting, float) or resting <= 0.0:
            return False
        return is_power_free(case.evidence, worked_ratio=1.0 - resting) is None
    if counted_regular_ratio(case.gaps) == 0.0:
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


def _text(shares: Sequence[BusyShare], seen: BusyShare | None) -> str:
    """Return the text "busy 98 %", by utilisation if available, else by the witness that saw the work; energy has no share."""
    shown = gauge_share(shares) or seen
    if shown is None:
        return "busy: not shown"
    return f"busy {shown.ratio:.0%}".replace("%", " %") if shown.witness != "energy" else "busy by its energy"
