"""Proof 5, steady times: the times represent the work, and their levels and growth are known."""

from collections.abc import Mapping
from math import isfinite

import numpy as np

from annotate.answer import Answer, Found, Severity
from annotate.budget import Figure, Proof, ProofShown, ProofState
from annotate.case import Case
from annotate.claims import Claim
from annotate.derived.time_levels import FEWEST_COUNT, TimeLevels

NOT_SHOWN = "steadiness of the times: not shown"
# Rules whose rejection shows that the times are not those of this work.
_CONTRADICTED_BY = ("timer-tampered", "impossible-time", "clock-source-step")


def prove(case: Case, found: Mapping[str, Answer]) -> ProofShown:
    """Return the proof that the times represent the work: enough times, a correct timer, and known levels.

    Levels and growth leave the proof shown, because the judge adds up their bounds.
    """
    if case.evidence.timings is None:
        return ProofShown(proof=Proof.STEADY_TIMES, state=ProofState.NOT_ASKED, says=NOT_SHOWN)
    missing, levels = _missing(case), case.time_levels
    if missing or levels is None:
        facts: dict[str, Figure] = {"entries_count": len(case.timings.at_ns)}  # for the verdict's first line
        return ProofShown(proof=Proof.STEADY_TIMES, state=ProofState.UNPROVEN, says=NOT_SHOWN, missing=(missing,), facts=facts)
    broken_by = tuple(name for name in _CONTRADICTED_BY if _rejects(found.get(name)))
    return ProofShown(
        proof=Proof.STEADY_TIMES,
        state=ProofState.BROKEN if broken_by else ProofState.SHOWN,
        says="the times are not those of this work" if broken_by else _says(case, levels),
        broken_by=broken_by,
        facts=_facts(case, levels),
    )


def _missing(case: Case) -> str:
    """Return the missing evidence that the claim needs; empty if none is missing."""
    count = len(case.timings.at_ns)
    if case.time_levels is None:
        return f"{FEWEST_COUNT} timed iterations inside the window (found {count})"
    if case.claim is Claim.FIXED_CLOCK:
        clock_mhz = case.timings.sm_clock_mhz
        stamped = int(np.isfinite(clock_mhz).sum()) if clock_mhz is not None else 0
        if stamped < min(FEWEST_COUNT, count):
            return f"{FEWEST_COUNT} iterations with a stamped clock (found {stamped})"
    return ""


def _rejects(answer: Answer | None) -> bool:
    return isinstance(answer, Found) and answer.severity is Severity.REJECT


def _says(case: Case, levels: TimeLevels) -> str:
    if case.fact("varies") is True:
        return "times vary by design"
    if not isfinite(levels.hidden_ratio):
        return f"{len(case.timings.at_ns)} times, too few to show levels"
    if levels.is_steady or levels.largest_ratio < levels.hidden_ratio:
        return f"times steady to {_percent(levels.hidden_ratio)}"
    if levels.grows:
        return f"times {'grow' if levels.growth_ratio > 0 else 'shrink'} by {_percent(abs(levels.growth_ratio))}"
    if levels.largest_ratio < 0.001:
        return f"times steady to {_percent(levels.largest_ratio)}"
    return f"times at levels up to {_percent(levels.apart_ratio)} apart"


def _percent(ratio: float) -> str:
    return f"{100.0 * ratio:.1f} %" if ratio >= 0.001 else f"{100.0 * ratio:.2f} %"


def _facts(case: Case, levels: TimeLevels) -> dict[str, Figure]:
    return {
        "entries_count": len(case.timings.at_ns),
        "is_at_one_clock": levels.is_at_one_clock,
        "levels_count": len(levels.shifts) or 1,
        "largest_ratio": levels.largest_ratio,
        "growth_ratio": levels.growth_ratio if levels.grows else 0.0,
        "hidden_ratio": levels.hidden_ratio if isfinite(levels.hidden_ratio) else None,
    }
