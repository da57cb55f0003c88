"""The work of a store's thread: one commit after another, and the housekeeping between them.

Readings go through the row writer; windows, devices, events and timings go into the ledger.
"""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from gpuwatch.interfaces import Sweep
from gpuwatch.store.compaction import SegmentRows
from gpuwatch.store.export_mark import read_mark_wall_s
from gpuwatch.store.ledger import Ledger
from gpuwatch.store.retries import UNSTORABLE, Failure, Retries
from gpuwatch.store.row_writer import RowWriter
from gpuwatch.store.state_folder import StateFolder
from gpuwatch.store.store_options import StoreLimits, WriterFacts

HOUSEKEEPING_NS = 60_000_000_000
STEP_NS = 100_000_000  # a change of the wall clock since the last housekeeping that makes the next one due at once

RETRIED_COUNT = 10_000  # most writes to the ledger that wait while disk, folder or ledger cannot be used


@dataclass(frozen=True, slots=True)
class LedgerWrite:
    """One change of the ledger.  ``known_as`` holds the fact's name and GPU if every new ledger must receive the fact again."""

    apply: Callable[[Ledger], None]
    known_as: tuple[str, str] | None = None


Storable: TypeAlias = Sweep | SegmentRows | LedgerWrite


class LedgerWriter:
    """A writer of changes, in order, with one transaction per commit.  Only the store's writer thread calls the methods."""

    def __init__(self, folder: StateFolder, retries: Retries) -> None:
        self._folder = folder
        self._retries = retries
        self._waiting: list[LedgerWrite] = []
        self._known: dict[tuple[str, str], LedgerWrite] = {}
        self._informed = folder.ledger  # the ledger that has every known fact, written or waiting
        self.dropped_count = 0

    def put(self, write: LedgerWrite) -> None:
        """Add a change to the next commit."""
        if write.known_as is not None:
            self._known[write.known_as] = write
        self._waiting.append(write)

    def write(self) -> bool:
        """Commit all changes in one transaction, or the storable ones one by one; return False if a change still waits."""
        if self._folder.ledger is not self._informed:  # a new ledger has no facts yet
            self._informed, self._waiting = self._folder.ledger, [*self._known.values(), *self._waiting]
        writes, self._waiting = self._waiting, []
        if not writes or self._retries.succeeds(partial(self._commit, writes)):
            return True
        if self._retries.failure is not Failure.VALUE:
            self._waiting = writes
            self.give_up_excess()
            return False
        for write in writes:
            if not self._retries.succeeds(partial(self._commit, [write])):
                if self._retries.failure is Failure.VALUE:
                    self.dropped_count += 1
                else:
                    self._waiting.append(write)
        return not self._waiting

    def give_up_excess(self) -> None:
        """Drop and count the oldest waiting changes beyond ``RETRIED_COUNT``."""
        excess_count = max(0, len(self._waiting) - RETRIED_COUNT)
        del self._waiting[:excess_count]
        self.dropped_count += excess_count

    def _commit(self, writes: list[LedgerWrite]) -> None:
        ledger = self._folder.ledger
        try:
            with ledger.database.atomic():
                for write in writes:
                    write.apply(ledger)
        except BaseException:
            ledger.recount()
            raise


class Committer:
    """Owner of the files.  Only the writer's thread may call the methods other than ``statistics`` and ``set_limits``.

    Raises StoreError: when the folder cannot be used (another writer, a newer schema, no permission).
    """

    def __init__(self, state: Path, facts: WriterFacts, limits: StoreLimits) -> None:
        self._facts = facts
        self._limits = limits
        self._committed_ns: int | None = None
        self._house_kept_ns = self._wall_offset_ns = 0
        self._sizes_bytes = (0, 0)
        self._exported_wall_s: float | None = None
        self.folder = StateFolder(
            state, facts, segment_bytes=limits.fitting_segment_bytes, evidence_bytes=limits.evidence_bytes
        )
        self._retries = Retries(make_room=self.folder.segments.drop_oldest, replace=self._replace)
        self._rows = RowWriter(self.folder.segments, self._retries)
        self._ledger = LedgerWriter(self.folder, self._retries)
        with self.folder.opening():
            self._keep_house()

    def set_limits(self, limits: StoreLimits) -> None:
        """Change the limits from the next housekeeping on; a budget below four segments also makes segments smaller."""
        self._limits = limits
        self.folder.segments.segment_bytes = limits.fitting_segment_bytes
        self.folder.set_evidence(limits.evidence_bytes)

    def commit(self, items: Iterable[Storable]) -> bool:
        """Commit these items and all waiting ones; return False if a storable item could not be committed."""
        for item in items:
            if isinstance(item, Sweep):
                self._rows.take(item)
            elif isinstance(item, LedgerWrite):
                self._ledger.put(item)
            else:
                self._rows.hold(item)
        is_there = self.folder.is_there or self._retries.succeeds(self._begin_again)
        is_usable = is_there and self._retries.succeeds(self.folder.renew_logs)
        for event in self._rows.gather():
            self._ledger.put(LedgerWrite(partial(Ledger.put_event, event=event, wall_s=self._facts.wall_s(event.at_ns))))
        if is_usable:
            is_stored = all((self._rows.write(), self._ledger.write()))  # both, even if one fails
        else:
            is_stored = False
            self._ledger.give_up_excess()
            if is_there:
                self._rows.give_up_excess()
            else:
                self._rows.give_up()
        if is_stored:
            self._retries.all_stored()
            self._committed_ns = self._facts.now_ns()
        if self.folder.is_there:  # the size of a broken segment cannot be read
            self._retries.succeeds(self._keep_house_if_due)
        return is_stored

    def statistics(self) -> dict[str, Any]:
        """Return counts of stored and lost data, as JSON values."""
        readings_bytes, ledger_bytes = self._sizes_bytes
        return {
            "rows_count": self._rows.rows_count,
            "readings_bytes": readings_bytes,
            "ledger_bytes": ledger_bytes,
            "bytes": readings_bytes + ledger_bytes,
            "budget_bytes": self._limits.budget_bytes,
            "dropped_count": self._rows.dropped_count + self._ledger.dropped_count,
            "dropped_segments_count": self.folder.segments.dropped_count,
            "set_aside_count": self.folder.set_aside_count,
            "disk_full": self._retries.failure is Failure.FULL,
            "refused": self._retries.refused,
            "committed_ns": self._committed_ns,
            "exported_wall_s": self._exported_wall_s,
            "journal": "wal" if self.folder.wal else "delete",
        }

    def _begin_again(self) -> None:
        self.folder.begin_again()
        self._rows.restart()

    def _replace(self, why: BaseException) -> bool:
        """Find broken files and set them aside, so that the next try writes to new ones; return False if none is broken."""
        broken = self.folder.broken()
        if self.folder.segments.live in broken:
            self._rows.restart()
        with contextlib.suppress(*UNSTORABLE):  # after a failure, the next commit finds the broken file again
            for each in broken:
                self.folder.set_aside(each, why)
        return bool(broken)

    def _keep_house_if_due(self) -> None:
        is_stepped = abs(self._facts.wall_offset_ns() - self._wall_offset_ns) >= STEP_NS
        is_due = self._facts.now_ns() - self._house_kept_ns >= HOUSEKEEPING_NS
        if is_stepped or is_due or self.folder.segments.is_full():
            self._keep_house()

    def _keep_house(self) -> None:
        segments, ledger = self.folder.segments, self.folder.ledger
        self._house_kept_ns = now_ns = self._facts.now_ns()
        self._wall_offset_ns = self._facts.wall_offset_ns()
        ledger.put_clock(now_ns, self._wall_offset_ns)
        if segments.rotate_if_full():
            self._rows.restart()
        segments.settle()
        limits = self._limits
        # Permanent data can outgrow any budget, so half of the budget stays reserved for readings.
        other_bytes = min(ledger.size_bytes, limits.budget_bytes // 2)
        wall_s = (now_ns + self._wall_offset_ns) / 1e9
        segments.retain(limits.budget_bytes, limits.max_age_s, wall_s=wall_s, other_bytes=other_bytes)
        self._sizes_bytes = (segments.size_bytes, ledger.size_bytes)
        self._exported_wall_s = read_mark_wall_s(self.folder.path)
