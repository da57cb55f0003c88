"""Proof 4: no foreign process used the GPU, or its share has a bound.

Process lists at both edges and in between can exclude other processes if the lists show every process of the machine.
Utilisation and memory can only reveal other processes.
"""

from collections.abc import Mapping

from annotate.answer import Answer, Unobserved
from annotate.budget import Bound, Figure, Number, Proof, ProofShown, ProofState
from annotate.case import Case
from annotate.derived.foreign_bounds import foreign_bounds, hidden_bounds, unlisted_time_bounds
from annotate.derived.neighbours import Neighbours, seen_span_ns

_DARK_RATIO = 0.5  # largest share of the window without process lists


def prove(case: Case, found: Mapping[str, Answer]) -> ProofShown:
    """Return the proof that no other process used the GPU; a neighbour whose share has a bound leaves the proof shown."""
    others = case.neighbours
    unbounded = tuple(dict.fromkeys(each.rule for each in bounds(case) if _is_open(each)))
    missing = _missing(case, others, found)
    if unbounded:
        return _shown(case, ProofState.BROKEN, f"{_who(others)} with an unknown share", broken_by=unbounded)
    if missing:
        return _shown(case, ProofState.UNPROVEN, "other processes: not shown", missing=missing)
    if others.any_foreign:
        return _shown(case, ProofState.SHOWN, _who(others))
    return _shown(case, ProofState.SHOWN, "nobody else" if others.is_whole else "nobody else in the books")


def bounds(case: Case) -> tuple[Bound, ...]:
    """Return every bound of this proof: the neighbours' bounds, and the bound of the time without process lists."""
    others = case.neighbours
    unread = unlisted_time_bounds(others, case.evidence.window.length_ns)
    if not others.any_foreign:
        return unread
    work, span_ns = case.foreign_work, seen_span_ns(others)
    drew = any(each in others.at_work for each in others.drawing)
    named = [
        ("contention-process", bool(others.computing)),
        ("display-active", drew),
        ("overlapping-window", bool(others.windows)),
    ]
    out = [bound for rule, is_there in named if is_there for bound in foreign_bounds(rule, work, span_ns=span_ns)]
    out += hidden_bounds("contention-residual", work, others, span_ns=span_ns)
    return (*out, *unread)


def _is_open(bound: Bound) -> bool:
    """Return True if this bound breaks the proof: a number other than the median has no bound."""
    return bound.ratio is None and bound.number is not Number.MEDIAN


def _missing(case: Case, others: Neighbours, found: Mapping[str, Answer]) -> tuple[str, ...]:
    window = case.evidence.window
    if not case.evidence.trace.process_lists:
        return ("a process list",)
    out: list[str] = []
    if not others.edges_listed:
        out.append("a process list at both edges of the window")
    if others.silent_ns > _DARK_RATIO * window.length_ns:
        out.append("process lists for half of the window")
    # In a container the books, or one process that can only be the window's, replace a complete list.
    if not others.is_whole and isinstance(found.get("contention-residual", Unobserved("")), Unobserved):
        out.append("process lists that show the whole machine")
    elif others.is_whole and not others.own_listed and window.pids:
        out.append("the window's own processes on a list")
    return tuple(out)


def _who(others: Neighbours) -> str:
    counts = ((len(others.at_work), "process", "es"), (len(others.windows), "window", "s"))
    parts = [f"{count} other {noun}{'' if count == 1 else ending}" for count, noun, ending in counts if count]
    if others.hidden_bytes:
        parts.append(f"{others.hidden_bytes / 1e6:.0f} MB of unlisted processes")
    return " and ".join(parts)


def _shown(
    case: Case, state: ProofState, says: str, *, missing: tuple[str, ...] = (), broken_by: tuple[str, ...] = ()
) -> ProofShown:
    others = case.neighbours
    worst = max(others.at_work, key=lambda each: each.load(), default=None)
    facts: dict[str, Figure] = {"others_count": len(others.at_work), "unread_s": others.silent_ns / 1e9}
    if worst is not None:
        facts |= {"pid": worst.pid, "name": worst.name}
    if others.any_foreign:
        work = case.foreign_work
        facts |= {
            "windows_count": len(others.windows),
            "hidden_bytes": others.hidden_bytes,
            "late_ratio": work.late_ratio,
            "untimed_ratio": work.untimed_ratio,
            "taken_ratio": work.taken_ratio,
        }
    return ProofShown(proof=Proof.NOBODY_ELSE, state=state, says=says, missing=missing, broken_by=broken_by, facts=facts)
