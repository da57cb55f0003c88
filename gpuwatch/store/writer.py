"""The one writer of a state folder: a thread that takes sweeps from a queue and commits twice a second."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from annotate.evidence import Device, Event, Lane, Timings
from gpuwatch import clock as clocks
from gpuwatch.clock import MonotonicClock
from gpuwatch.errors import StoreError
from gpuwatch.interfaces import Clock, Run, Sweep
from gpuwatch.store.compaction import Keeper, SegmentRows
from gpuwatch.store.ledger import Ledger
from gpuwatch.store.retries import UNSTORABLE, Attempts, Failure
from gpuwatch.store.sifting import sift
from gpuwatch.store.state_folder import Folder

_log = logging.getLogger("gpuwatch.store")

MAX_AGE_S = 30 * 86_400.0
HOUSEKEEPING_NS = 60_000_000_000
STEP_NS = 100_000_000  # a time daemon slews by at most 83 ms a second; more within a commit is a step
LEAST_SEGMENT_BYTES = 256 << 10  # an empty one takes 76 kB: a page for each table and index
QUEUE_COUNT = 100_000  # a minute of sixteen GPUs at 100 Hz: a writer that far behind will not catch up
RETRIED_COUNT = 10_000  # runs and the like that wait for room on a full disk
HELD_COUNT = 100_000  # rows that wait while somebody else holds the segment: fifty megabytes

_Write = Callable[[Ledger], None]


def _put_event(event: Event, wall_s: float, ledger: Ledger) -> None:
    ledger.put_event(event, wall_s)


class _Flush:
    def __init__(self) -> None:
        self.done = threading.Event()
        self.ok = False


class Store:
    """Takes sweeps as a sink and keeps what is worth keeping.  All public methods may be called from any thread.

    Raises StoreError if the folder cannot be used: another writer, a newer schema, no permission.
    """

    def __init__(
        self,
        state: Path,
        *,
        source: str,
        boot_id: str,
        budget_bytes: int = 2 << 30,
        max_age_s: float = MAX_AGE_S,
        segment_bytes: int = 64 << 20,
        commit_s: float = 0.5,
        clock: Clock | None = None,
        wall_offset_ns: Callable[[], int] = clocks.wall_offset_ns,
        mode: int = 0o600,  # of files; the system's daemon lets its group read: 0o640
    ) -> None:
        self._budget_bytes = budget_bytes
        self._max_age_s = max_age_s
        self._commit_s = commit_s
        self._now_ns = (clock or MonotonicClock()).now_ns
        self._wall_offset_ns = wall_offset_ns
        self._queue: deque[Sweep | _Write | _Flush] = deque()
        self._keeper = Keeper()
        self._writes: list[_Write] = []
        self._known: dict[tuple[str, str], _Write] = {}  # what a ledger is told once and must know, by what and GPU
        self._held = SegmentRows()  # could not be written yet
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._rows_count = self._dropped_count = 0
        self._committed_ns: int | None = None
        self._kept_ns = self._offset_ns = 0
        self._sizes = (0, 0)
        self._folder = Folder(
            state, source=source, boot_id=boot_id, mode=mode, segment_bytes=self._segment_bytes(segment_bytes),
            evidence_bytes=budget_bytes // 2, now_ns=self._now_ns, wall_offset_ns=wall_offset_ns,
        )  # fmt: skip
        self._taught = self._folder.ledger
        self._attempts = Attempts(make_room=self._folder.shelf.drop_oldest, replace=self._replace)
        with self._folder.opening():
            self._keep_house()
        self._thread = threading.Thread(target=self._run, name="gpuwatch-store", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._folder.close()
            raise StoreError(
                f"{state}: expected a thread that writes, found: {error}; raise the limit of tasks or memory"
            ) from error

    def take(self, sweep: Sweep) -> None:
        """As a sink: microseconds, never raises; when the writer is hopelessly behind, sweeps are dropped and counted."""
        if len(self._queue) < QUEUE_COUNT:
            self._queue.append(sweep)
        else:
            self._dropped_count += 1

    def put_device(self, device: Device) -> None:
        """Note a GPU's identity, limits and modes as they are now."""
        at_ns = self._now_ns()
        wall_s = (at_ns + self._wall_offset_ns()) / 1e9
        self._put_known("device", device.uuid, lambda ledger: ledger.put_device(device, at_ns, wall_s))

    def put_refresh(self, uuid: str, refresh_ns: Mapping[str, int]) -> None:
        """Note how often each signal of a GPU changes."""
        learnt = dict(refresh_ns)
        self._put_known("refresh", uuid, lambda ledger: ledger.put_refresh(uuid, learnt))

    def put_gap(self, uuid: str, lane: Lane, begin_ns: int, end_ns: int) -> None:
        """Note a stretch in which a lane was not read, for whoever knows of one that the sweeps do not show."""
        rows = SegmentRows(gaps=[(uuid, lane, begin_ns, end_ns)])
        self._put(lambda _: self._count(self._folder.shelf.live.write(rows)))

    def put_run(self, run: Run, evidence: Mapping[str, bytes] | None = None, signatures: Sequence[bytes] = ()) -> None:
        """Insert or replace a run, with each GPU's packed evidence and a signature for each verdict, if there are any.

        Committed at once, by the writer's thread.
        """
        kept, signed = dict(evidence or {}), tuple(signatures)
        self._put(lambda ledger: ledger.put_run(run, kept, signed))
        self._wake.set()

    def put_timings(self, run_id: str, timings: Timings) -> None:
        """Keep a run's times of single iterations."""
        self._put(lambda ledger: ledger.put_timings(run_id, timings))

    def set_budget(self, budget_bytes: int, max_age_s: float) -> None:
        """Change what may be kept; it takes effect within a minute."""
        self._budget_bytes, self._max_age_s = budget_bytes, max_age_s
        self._folder.set_evidence(budget_bytes // 2)

    def flush(self, timeout_s: float = 1.0) -> bool:
        """Wait until everything taken so far is committed; False if it is not after that time, or could not be."""
        flush = _Flush()
        self._queue.append(flush)
        self._wake.set()
        return flush.done.wait(timeout_s) and flush.ok

    def statistics(self) -> dict[str, Any]:
        """What was kept and lost, as JSON values."""
        readings_bytes, ledger_bytes = self._sizes
        return {
            "rows_count": self._rows_count,
            "readings_bytes": readings_bytes,
            "ledger_bytes": ledger_bytes,
            "bytes": readings_bytes + ledger_bytes,
            "budget_bytes": self._budget_bytes,
            "queued_count": len(self._queue),
            "dropped_count": self._dropped_count,
            "dropped_segments_count": self._folder.shelf.dropped_count,
            "set_aside_count": self._folder.set_aside_count,
            "disk_full": self._attempts.failure is Failure.FULL,
            "refused": self._attempts.refused,
            "committed_ns": self._committed_ns,
            "journal": "wal" if self._folder.wal else "delete",
        }

    def close(self) -> None:
        """Commit what is left and leave plain files that open read-only anywhere.  A second call does nothing."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._wake.set()
        self._thread.join(10.0)
        if self._thread.is_alive():
            _log.error("the store's thread does not end: its files are left to the next start")
            return
        self._folder.close()

    # What follows runs in the writer's thread, or before it starts

    def _put(self, write: _Write) -> None:
        self._queue.append(write)

    def _put_known(self, what: str, uuid: str, write: _Write) -> None:
        self._known[what, uuid] = write
        self._put(write)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(self._commit_s)
            self._wake.clear()
            self._commit()
        self._commit()

    def _commit(self) -> None:
        flushes: list[_Flush] = []
        for _ in range(len(self._queue)):
            item = self._queue.popleft()
            if isinstance(item, Sweep):
                self._keep(item)
            elif isinstance(item, _Flush):
                flushes.append(item)
            else:
                self._writes.append(item)
        is_there = self._folder.is_there or self._attempts.succeeds(self._begin_again)
        if is_there and self._attempts.succeeds(self._folder.renew_logs):
            ok = all((self._write_rows(), self._write_ledger()))  # each for itself
        else:
            ok = False
            self._held.take(self._keeper.rows())
            if not is_there or len(self._held) > HELD_COUNT:
                self._lose(self._held)
        now_ns = self._now_ns()
        if ok:
            self._attempts.all_stored()
            self._committed_ns = now_ns
        if self._folder.is_there:  # a segment that broke and could not be replaced yet cannot even say how full it is
            self._attempts.succeeds(self._keep_house_if_due)
        for flush in flushes:
            flush.ok = ok
            flush.done.set()

    def _keep(self, sweep: Sweep) -> None:
        try:
            self._keeper.take(sweep)
        except UNSTORABLE as error:
            self._dropped_count += 1
            _log.error("a sweep of %s was not kept: %s: %s", sweep.uuid, type(error).__name__, error)

    def _write_rows(self) -> bool:
        rows = self._keeper.rows()
        for event in rows.events:
            wall_s = (event.at_ns + self._wall_offset_ns()) / 1e9
            self._writes.append(partial(_put_event, event, wall_s))
        held = self._held
        held.take(rows)
        failure = self._write(held)
        if failure is None:
            self._held = SegmentRows()
            return True
        if failure is Failure.VALUE:
            return self._write_without_bad(held)
        if failure is Failure.PASSING and len(held) <= HELD_COUNT:
            return False
        self._lose(held)
        return False

    def _write_without_bad(self, rows: SegmentRows) -> bool:
        """Set the rows aside that can never be written, leaving a gap in their place, and write all others."""
        bad, self._held = sift(rows, self._write)
        self._dropped_count += len(bad)
        loss = SegmentRows(readings=bad.readings).loss()
        if self._write(loss) not in (None, Failure.VALUE):
            self._held.take(loss)
        return not len(self._held)

    def _write(self, rows: SegmentRows) -> Failure | None:
        """Commit these rows; the reason if they were not."""
        stored = self._attempts.succeeds(lambda: self._count(self._folder.shelf.live.write(rows)))
        return None if stored else self._attempts.failure

    def _lose(self, rows: SegmentRows) -> None:
        """What could not be written is a silence in the record, and must not be leant on by what comes next."""
        loss = rows.loss()
        self._dropped_count += len(rows) - len(rows.gaps)
        self._held = loss
        self._keeper.restart()

    def _write_ledger(self) -> bool:
        """Everything for the ledger in one transaction; if one write is at fault, each in its own without it."""
        if self._folder.ledger is not self._taught:  # a new one knows nothing yet
            self._taught, self._writes = self._folder.ledger, [*self._known.values(), *self._writes]
        writes = self._writes
        if not writes:
            return True
        if self._attempts.succeeds(lambda: self._together(writes)):
            self._writes = []
            return True
        if self._attempts.failure is not Failure.VALUE:
            self._writes = writes[-RETRIED_COUNT:]
            self._dropped_count += max(0, len(writes) - RETRIED_COUNT)
            return False
        self._writes = []
        for write in writes:
            if not self._attempts.succeeds(partial(self._together, [write])):
                if self._attempts.failure is Failure.VALUE:
                    self._dropped_count += 1
                else:
                    self._writes.append(write)
        return not self._writes

    def _together(self, writes: list[_Write]) -> None:
        ledger = self._folder.ledger
        with ledger.database.atomic():
            for write in writes:
                write(ledger)

    def _begin_again(self) -> None:
        self._folder.begin_again()
        self._keeper.restart()

    def _replace(self, why: BaseException) -> bool:
        """Find out which file is broken and set it aside: what it did not take goes into a new one, in a moment."""
        broken = self._folder.broken()
        if self._folder.shelf.live in broken:
            self._keeper.restart()
        with contextlib.suppress(*UNSTORABLE):  # where it cannot be replaced now, it is missed by the next commit
            for each in broken:
                self._folder.set_aside(each, why)
        return bool(broken)

    def _keep_house_if_due(self) -> None:
        stepped = abs(self._wall_offset_ns() - self._offset_ns) >= STEP_NS
        if stepped or self._folder.shelf.is_full() or self._now_ns() - self._kept_ns >= HOUSEKEEPING_NS:
            self._keep_house()

    def _keep_house(self) -> None:
        now_ns = self._now_ns()
        self._kept_ns = now_ns
        offset_ns = self._offset_ns = self._wall_offset_ns()
        self._folder.ledger.put_clock(now_ns, offset_ns)
        if self._folder.shelf.rotate_if_full():
            self._keeper.restart()
        self._folder.shelf.settle()
        # What is kept for good outgrows any budget some day (6 kB a window): half of it stays the readings' own.
        other_bytes = min(self._folder.ledger.size_bytes, self._budget_bytes // 2)
        self._folder.shelf.retain(
            self._budget_bytes, self._max_age_s, wall_s=(now_ns + offset_ns) / 1e9, other_bytes=other_bytes
        )
        self._sizes = (self._folder.shelf.size_bytes, self._folder.ledger.size_bytes)

    def _segment_bytes(self, segment_bytes: int) -> int:
        """Small enough that dropping one makes a difference to the budget."""
        return max(LEAST_SEGMENT_BYTES, min(segment_bytes, self._budget_bytes // 4))

    def _count(self, rows_count: int) -> None:
        self._rows_count += rows_count
