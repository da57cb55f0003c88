"""Windows that overlap a run on one GPU, and the test for windows of other processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from annotate.evidence import OtherWindow
from gpuwatch.interfaces import Run

MOST_COUNT = 1000  # overlapping windows read per run, the oldest first
_DEEPEST_COUNT = 32  # levels of nested windows


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSpan:
    """The owner, the interval and the GPUs of a stored window."""

    id: str
    uid: int
    pid: int
    pids: frozenset[int]
    label: str | None
    begin_ns: int
    end_ns: int
    parent: str | None
    uuids: frozenset[str]

    @staticmethod
    def of(row: Sequence[Any], until_ns: int) -> StoredSpan:
        """Build a span from a row of the ledger; an open window ends at ``until_ns``."""
        run_id, uid, pid, pids, label, begin_ns, end_ns, parent, uuids = row
        return StoredSpan(
            id=run_id,
            uid=uid,
            pid=pid,
            pids=msgspec.json.decode(pids, type=frozenset[int]),
            label=label,
            begin_ns=begin_ns,
            end_ns=until_ns if end_ns is None else end_ns,
            parent=parent,
            uuids=msgspec.json.decode(uuids, type=frozenset[str]),
        )


def foreign_to(run: Run, uuid: str, others: Sequence[StoredSpan]) -> tuple[OtherWindow, ...]:
    """Return the windows on this GPU outside the run's process tree that are not nested in the run or around it.

    The label of another user's window is private.
    """
    parents = {each.id: each.parent for each in others} | {run.id: run.parent}
    around = set(_above(run.id, parents))
    return tuple(
        OtherWindow(each.begin_ns, each.end_ns, pid=each.pid or None, label=each.label if each.uid == run.uid else None)
        for each in others
        if uuid in each.uuids
        and not _is_of_one_tree(run, each)
        and each.id not in around
        and run.id not in _above(each.id, parents)
    )


def _is_of_one_tree(run: Run, other: StoredSpan) -> bool:
    return bool(other.pid and other.pid in run.pids) or bool(run.pid and run.pid in other.pids)


def _above(run_id: str, parents: Mapping[str, str | None]) -> Iterator[str]:
    """Yield the windows around one, the innermost first."""
    above = parents.get(run_id)
    for _ in range(_DEEPEST_COUNT):
        if above is None:
            return
        yield above
        above = parents.get(above)
