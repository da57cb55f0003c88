"""The ownership of processes: a window's own tree, or foreign."""

from __future__ import annotations

from dataclasses import replace

from annotate.evidence import Ownership, Process, ProcessList, Trace


def with_ownership(trace: Trace, pids: frozenset[int], ended_wall_s: float) -> Trace:
    """The same trace, seen from the window of these processes: whoever is named and not of its tree is foreign.

    A process that started after the window ended only reused a PID.  One that reused the PID of a process of the tree while
    the window was open counts as own: of two that had one PID, what is kept does not tell which was of the tree.  The first
    may have been foreign, whose PID a child of the tree was given, and a tree that starts many may have been given it
    twice; PIDs are kept without the moments at which they were found to be of the tree, and a start time may be that of who
    had the PID up to half a minute before (``host.Identities``).  No process of the window's own is ever called foreign for
    it.  Without PIDs nothing can be told.
    """
    if not pids:
        return trace

    def whose(process: Process) -> Process:
        reused = process.started_s is not None and process.started_s > ended_wall_s + 1.0
        own = process.pid in pids and not reused
        return replace(process, ownership=Ownership.OWN if own else Ownership.FOREIGN)

    lists: dict[int, tuple[Process, ...]] = {}  # a list that stood is one object in many censuses

    def seen(census: ProcessList) -> ProcessList:
        key = id(census.processes)
        if key not in lists:
            lists[key] = tuple(map(whose, census.processes))
        return replace(census, processes=lists[key])

    return replace(trace, censuses=tuple(map(seen, trace.censuses)))
