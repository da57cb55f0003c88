"""Processes on the GPU during a window, and their utilisation.

The process list is read several times a second.  Utilisation per process arrives about once a second and covers the time
since the previous record.  A record that straddles an edge of the window therefore only bounds the share inside.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from annotate.evidence import HEARTBEAT_NS, STALE_NS, Evidence, Lane, Ownership, Process, ProcessList, Times, Values, Visibility
from annotate.evidence.asked import kept

_LASTS_NS = 1_000_000_000
_LAGS_NS = 600_000_000  # on H200s lists lagged the memory gauge by at most 0.4 s, and are read each 0.2 s
_FEWEST_LISTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """One process over one window.

    ``least_ratio`` and ``most_ratio`` bound the share of the window in which the process kept the GPU busy.  ``peak_ratio``
    is the highest record that touches the window.  All three are None without a utilisation record around the window.
    """

    pid: int
    name: str | None
    user: str | None
    own: bool
    listed: bool  # False: only the utilisation record names it
    graphics: bool  # every list names it as a graphics process
    arrived: bool  # not there when the window began
    seen_begin_ns: int
    seen_end_ns: int
    memory_bytes: int | None = None
    least_ratio: float | None = None
    most_ratio: float | None = None
    peak_ratio: float | None = None
    recorded: bool = False  # in the utilisation record, which may omit processes, such as idle ones

    def load(self) -> tuple[float, int]:
        """Return a sort key: the GPU time of the process first, then its memory."""
        return self.least_ratio or 0.0, self.memory_bytes or 0


@kept
def presences(evidence: Evidence) -> tuple[Presence, ...]:
    """Return every process that the driver named during the window, one per PID, without processes that ended before it."""
    window, process_lists = evidence.window, evidence.trace.process_lists
    inside = [process_list for process_list in process_lists if window.begin_ns <= process_list.at_ns <= window.end_ns]
    before = [process_list for process_list in process_lists if process_list.at_ns < window.begin_ns][-1:]
    if not inside:
        inside = [process_list for process_list in before if window.begin_ns - process_list.at_ns <= STALE_NS]
    if not inside:
        return ()
    at_begin = {process.pid for process in (before or inside)[0].processes}
    seen: dict[int, list[tuple[int, Process]]] = {}
    for process_list in inside:
        for process in process_list.processes:
            seen.setdefault(process.pid, []).append((process_list.at_ns, process))
    records = _records(evidence)
    return tuple(_presence(evidence, pid, rows, at_begin, records) for pid, rows in seen.items())


@kept
def own_was_listed(evidence: Evidence) -> bool:
    """Return whether any list names a process of the window: if not, its PIDs may be of another namespace."""
    return any(
        _is_own(evidence, process) and process.listed
        for process_list in evidence.trace.process_lists
        for process in process_list.processes
    )


@kept
def list_is_whole(evidence: Evidence) -> bool:
    """Return whether all lists around the window covered every process of the machine; False without lists."""
    near = [c for c in evidence.trace.process_lists if c.at_ns >= evidence.window.begin_ns - STALE_NS]
    return bool(near) and all(process_list.visibility is Visibility.HOST for process_list in near)


def alone(evidence: Evidence) -> bool:
    """Return whether complete lists, read without a longer silence, show only the window's own processes."""
    # A neighbour fits into a longer silence of a list that is read five times a second.
    whole = list_is_whole(evidence) and unread_s(evidence) <= 0.5
    return whole and own_was_listed(evidence) and all(presence.own for presence in presences(evidence))


@kept
def unread_s(evidence: Evidence) -> float:
    """Return the longest interval of the window without a current process list."""
    begin_ns, end_ns = evidence.window.begin_ns, evidence.window.end_ns
    until_ns, longest_ns = begin_ns, 0
    for process_list in evidence.trace.process_lists:
        if process_list.at_ns >= end_ns:
            break
        longest_ns = max(longest_ns, process_list.at_ns - until_ns)
        until_ns = max(begin_ns, process_list.at_ns + STALE_NS)
    longest_ns = max(longest_ns, end_ns - until_ns)
    for gap in evidence.trace.gaps:
        if gap.lane == Lane.PROCESSES:
            longest_ns = max(longest_ns, min(gap.end_ns, end_ns) - max(gap.begin_ns, begin_ns))
    return longest_ns / 1e9


def unlisted_because(evidence: Evidence, unread_limit_s: float) -> str | None:
    """Return the reason why the process lists cannot clear a window, or None if they show every process."""
    if not list_is_whole(evidence):
        return "processes outside this container may be missing from the process list"
    unread = unread_s(evidence)
    return f"the process list was not read for {unread:.1f} s of the window" if unread > unread_limit_s else None


@kept
def unexplained_bytes(evidence: Evidence) -> float | None:
    """Return the memory in use that neither a listed process nor the driver's reserve explains.

    The memory was in use for half of the window or for a whole second, beyond the lists before and shortly after each reading.
    Return None without lists, reserve or three refreshes of the gauge in the window, or if most samples are unknown.
    """
    window = evidence.window
    reserved_bytes = evidence.device.memory_reserved_bytes if evidence.device else None
    refresh_ns = evidence.trace.refresh_of_ns("memory_used_bytes")
    if reserved_bytes is None or window.length_ns < 3 * refresh_ns or not evidence.trace.process_lists:
        return None
    used = evidence.within("memory_used_bytes", step_ns=refresh_ns)
    at_ns = np.array([process_list.at_ns for process_list in evidence.trace.process_lists], np.int64)
    held_bytes = np.array([_held_bytes(process_list) for process_list in evidence.trace.process_lists])
    index = np.searchsorted(at_ns, used.at_ns, side="right") - 1
    later = np.searchsorted(at_ns, used.at_ns + _LAGS_NS, side="right") - 1
    now_bytes, later_bytes = (held_bytes[np.maximum(each, 0)] for each in (index, later))
    # Lists lag: memory that a later list explains is that of a process that allocates.
    listed_bytes = np.where(later_bytes > now_bytes, later_bytes, now_bytes)
    fresh = (index >= 0) & (used.at_ns - at_ns[np.maximum(index, 0)] <= STALE_NS)
    rest_bytes = np.where(fresh, used.values - listed_bytes - reserved_bytes, np.nan)
    known = rest_bytes[~np.isnan(rest_bytes)]
    if len(known) * 2 < len(rest_bytes):
        return None
    # The largest sample does not count: list and gauge are read at different times, and disagree during an allocation.
    return max(float(np.median(known)), _lasting(used.at_ns, rest_bytes, at_ns))


def _lasting(at_ns: Times, values: Values, lists_ns: Times) -> float:
    """Return the largest value that a whole second with two process lists does not fall below; minus infinity without any."""
    count = max(2, int(_LASTS_NS // (at_ns[1] - at_ns[0])) + 1)  # samples at equal distances, from the first to the last
    if count > len(values):
        return -np.inf
    lowest = np.lib.stride_tricks.sliding_window_view(values, count).min(axis=1)  # NaN with an unknown sample
    lists_count = np.searchsorted(lists_ns, at_ns[count - 1 :]) - np.searchsorted(lists_ns, at_ns[: len(lowest)])
    return float(lowest[(lists_count >= _FEWEST_LISTS) & ~np.isnan(lowest)].max(initial=-np.inf))


def _held_bytes(process_list: ProcessList) -> float:
    held_bytes = [process.memory_bytes for process in process_list.processes if process.listed]
    return float("nan") if None in held_bytes else float(sum(held for held in held_bytes if held is not None))


def _is_own(evidence: Evidence, process: Process) -> bool:
    return process.ownership is Ownership.OWN or process.pid in evidence.window.pids


@dataclass(frozen=True, slots=True)
class _Record:
    """The utilisation of each process over one interval, of which ``inside_ns`` lay in the window."""

    length_ns: int
    inside_ns: int
    by_pid: Mapping[int, float]


def _records(evidence: Evidence) -> list[_Record]:
    window = evidence.window
    out: list[_Record] = []
    last_ns: int | None = None
    for process_list in evidence.trace.process_lists:
        by_pid = {p.pid: p.utilization_ratio for p in process_list.processes if p.utilization_ratio is not None}
        if not by_pid:
            continue
        since_ns = process_list.at_ns - HEARTBEAT_NS if last_ns is None else last_ns
        last_ns = process_list.at_ns
        inside_ns = min(process_list.at_ns, window.end_ns) - max(since_ns, window.begin_ns)
        if inside_ns > 0:
            out.append(_Record(process_list.at_ns - since_ns, inside_ns, by_pid))
    return out


def _presence(
    evidence: Evidence, pid: int, rows: list[tuple[int, Process]], at_begin: set[int], records: list[_Record]
) -> Presence:
    processes = [process for _, process in rows]
    memory_bytes = [process.memory_bytes for process in processes if process.memory_bytes is not None]
    shares = [(record, record.by_pid.get(pid, 0.0)) for record in records]
    known_ns = sum(record.inside_ns for record in records)
    least_ns = sum(max(0.0, share * r.length_ns - (r.length_ns - r.inside_ns)) for r, share in shares)
    most_ns = sum(min(share * r.length_ns, r.inside_ns) for r, share in shares)
    return Presence(
        pid=pid,
        name=next((process.name for process in processes if process.name), None),
        user=next((process.user for process in processes if process.user), None),
        own=any(_is_own(evidence, process) for process in processes),
        listed=any(process.listed for process in processes),
        graphics=all(process.graphics for process in processes),
        arrived=pid not in at_begin,
        seen_begin_ns=max(rows[0][0], evidence.window.begin_ns),
        seen_end_ns=max(rows[-1][0], evidence.window.begin_ns),
        memory_bytes=max(memory_bytes, default=None),
        least_ratio=least_ns / known_ns if records else None,
        most_ratio=most_ns / known_ns if records else None,
        peak_ratio=max((share for _, share in shares), default=None),
        recorded=any(pid in record.by_pid for record in records),
    )
