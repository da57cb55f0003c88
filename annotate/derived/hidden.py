"""Somebody whom the process list hides: what the utilisation record, device memory and the benchmark's own times say.

Each witness gives a Sign; the rule weighs them.
"""

from dataclasses import dataclass, field

from annotate.answer import Severity
from annotate.derived.presence import Presence, list_is_whole, own_was_listed, presences, unexplained_bytes
from annotate.evidence import Evidence, Fact


@dataclass(frozen=True, slots=True)
class Sign:
    """The answer of one witness on a hidden neighbour: a hazard, all clear, or why it cannot tell."""

    text: str = ""
    severity: Severity | None = None
    clear: bool = False
    facts: dict[str, Fact] = field(default_factory=dict)


def _graded(excess_ratio: float, flag_ratio: float, reject_ratio: float) -> Severity | None:
    if excess_ratio > reject_ratio:
        return Severity.REJECT
    return Severity.FLAG if excess_ratio > flag_ratio else None


def by_record(evidence: Evidence, flag_ratio: float, reject_ratio: float) -> Sign:
    """Find the processes that the utilisation record names beyond the process list."""
    if not evidence.trace.censuses:
        return Sign("the process list was not observed")
    present = [presence for presence in presences(evidence) if presence.most_ratio is not None]
    own_busy = any(presence.own and (presence.most_ratio or 0.0) > 0.0 for presence in present)
    foreign = sorted((p for p in present if not p.own and not p.listed), key=Presence.load, reverse=True)
    if foreign and not (own_busy or list_is_whole(evidence)):
        # Any of them may be the measured process, seen from outside its namespace.
        foreign = foreign[max(1, len(evidence.window.pids)) :]
    least_ratio = sum((presence.least_ratio or 0.0 for presence in foreign), 0.0)
    severity = _graded(least_ratio, flag_ratio, reject_ratio)
    facts: dict[str, Fact] = {"unlisted_ratio": least_ratio}
    if severity:
        text = f"PID {foreign[0].pid}, which is not on the process list, used {least_ratio:.0%} of the GPU's time"
        return Sign(text, severity, facts=facts)
    if own_busy and sum(presence.most_ratio or 0.0 for presence in foreign) <= flag_ratio:
        return Sign(clear=True, facts=facts)
    if own_busy:
        return Sign("unlisted processes were busy around the window, perhaps not inside it")
    return Sign("the driver's utilisation record does not name the window's own processes")


def by_memory(evidence: Evidence, memory_bytes: float) -> Sign:
    """Return whether listed processes and the driver's reserve explain the memory in use."""
    if not evidence.trace.censuses:
        return Sign("the process list was not observed")
    if not (own_was_listed(evidence) or list_is_whole(evidence)):
        return Sign("the window's own memory is not on the process list")
    rest_bytes = unexplained_bytes(evidence)
    if rest_bytes is None or rest_bytes < -memory_bytes:
        return Sign("the GPU's memory is not accounted for")
    facts: dict[str, Fact] = {"unexplained_bytes": rest_bytes}
    if rest_bytes > memory_bytes:
        return Sign(f"{rest_bytes / 1e6:.0f} MB of the GPU's memory belong to no listed process", Severity.FLAG, facts=facts)
    return Sign(clear=True, facts=facts)


def by_excess(beyond_ratio: float | None, what: str, flag_ratio: float, reject_ratio: float) -> Sign:
    """Return whether the GPU was busy for longer than the process says."""
    severity = _graded(beyond_ratio or 0.0, flag_ratio, reject_ratio)
    if beyond_ratio is None or severity is None:
        return Sign()
    return Sign(
        f"the GPU was busy {beyond_ratio:.0%} of the time beyond {what}", severity, facts={"beyond_ratio": beyond_ratio}
    )
