"""Proof 2, the books: witnessed busy time was timed, declared as other work, or used by neighbours."""

from collections.abc import Mapping

from annotate.answer import Answer, Found, Severity
from annotate.budget import Figure, Proof, ProofShown, ProofState
from annotate.case import Case
from annotate.derived.time_accounts import BOOKS_ERROR_RATIO, SHORTEST_NS, TimeAccounts
from annotate.times.durations import readable

# Rules whose findings show that the times do not belong to the work, even if the sums balance.
_INTEGRITY = ("missing-sync", "wrong-stream", "result-cached", "impossible-time", "clock-source-step")


def prove(case: Case, found: Mapping[str, Answer]) -> ProofShown:
    """Return the proof of the books.  An unexplained rest is a bound of ``unaccounted-time`` and leaves the proof shown.

    A hazard above a note of a rule in ``_INTEGRITY`` breaks the proof.
    """
    accounts = case.accounts
    if accounts is None:
        window = case.evidence.window
        missing = "utilisation over a second or more" if case.has_times else "utilisation over a second, by process"
        if case.has_times and case.is_busy_contradicted:
            missing = "one busy share (utilisation shows rest, energy shows work)"
        elif window.length_ns < SHORTEST_NS and case.evidence.observes("utilization_ratio"):
            missing = f"a window of a second or more (this one lasts {readable(window.length_s)})"
        return ProofShown(proof=Proof.BOOKS, state=ProofState.UNPROVEN, says="books: not shown", missing=(missing,))
    broken_by = tuple(name for name in _INTEGRITY if _is_hazard(found.get(name)))
    return ProofShown(
        proof=Proof.BOOKS,
        state=ProofState.BROKEN if broken_by else ProofState.SHOWN,
        says=_text(case, accounts),
        broken_by=broken_by,
        facts=_figures(accounts),
    )


def _is_hazard(answer: Answer | None) -> bool:
    return isinstance(answer, Found) and answer.severity is not Severity.NOTE


def _text(case: Case, accounts: TimeAccounts) -> str:
    """Return the text on the rest, with share and up to three kinds of declared work, so that a forged account is visible."""
    other = case.evidence.other_work
    kinds = sorted(set(other.kinds)) if other is not None and accounts.other_ratio > 0.0 else []
    declared = f" with {', '.join(kinds[:3])} {_percent(accounts.other_ratio)}" if kinds else ""
    counted = accounts.counted_ratio()
    if counted == 0.0:
        return f"books balance{declared}"
    rest = "not accounted for" if counted > 0.0 else "beyond the busy time"
    return f"{_percent(abs(counted) + BOOKS_ERROR_RATIO)} {rest}{declared}"


def _percent(ratio: float) -> str:
    return f"{100.0 * ratio:.1f} %"


def _figures(accounts: TimeAccounts) -> Mapping[str, Figure]:
    return {
        "busy_ratio": accounts.busy.ratio,
        "busy_least_ratio": accounts.busy.least_ratio,
        "busy_most_ratio": accounts.busy.most_ratio,
        "timed_ratio": accounts.timed_ratio if accounts.has_times else None,
        "stamps_ratio": accounts.stamps_ratio,
        "other_ratio": accounts.other_ratio,
        "own_ratio": accounts.own_ratio,
        "foreign_ratio": accounts.foreign_ratio,
        "rest_ratio": accounts.rest_ratio,
    }
