"""The only writer of a state folder: a queue that any thread fills, and a thread that usually commits it twice a second."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from annotate.evidence import Device, Lane, RecordedWindow, Timings
from gpuwatch import clock as clocks
from gpuwatch.clock import MonotonicClock
from gpuwatch.errors import StoreError
from gpuwatch.interfaces import Clock, Run, Sweep
from gpuwatch.store.committer import Committer, LedgerWrite, Storable
from gpuwatch.store.compaction import SegmentRows
from gpuwatch.store.ledger import Ledger
from gpuwatch.store.state_folder import StateFolder
from gpuwatch.store.store_options import StoreLimits, WriterFacts
from gpuwatch.wire.packed_times import PackedTimes
from gpuwatch.wire.spans import NamedSpans

_log = logging.getLogger("gpuwatch.store")

QUEUE_COUNT = 100_000  # a minute of sixteen GPUs at 100 Hz: a writer that far behind will not catch up


class Store:
    """A sink of sweeps that stores them compacted.  Any thread may call the public methods.

    Raises StoreError: when the folder cannot be used (another writer, a newer schema, no permission).
    """

    def __init__(
        self,
        state: Path,
        *,
        source: str,
        boot_id: str,
        limits: StoreLimits = StoreLimits(),  # noqa: B008 - frozen
        clock: Clock | None = None,
        wall_offset_ns: Callable[[], int] = clocks.wall_offset_ns,
        mode: int = 0o600,  # mode of the files; 0o640 for the system's daemon, so that its group can read
    ) -> None:
        self._limits = limits
        self._facts = WriterFacts(
            source=source,
            boot_id=boot_id,
            mode=mode,
            now_ns=(clock or MonotonicClock()).now_ns,
            wall_offset_ns=wall_offset_ns,
        )
        self._queue: deque[Storable | Future[bool]] = deque()
        self._dropped_count = 0
        self._is_resting = False
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._committer = Committer(state, self._facts, limits)
        self._thread = threading.Thread(target=self._run, name="gpuwatch-store", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.folder.close()
            raise StoreError(
                f"{state}: expected to start a writer thread, found: {error}; raise the limit of tasks or memory"
            ) from error

    @property
    def folder(self) -> StateFolder:
        """Return the state folder.  The folder belongs to the writer's thread: use it only directly after a flush."""
        return self._committer.folder

    def take(self, sweep: Sweep) -> None:
        """Queue a sweep without raising (a sink); drop and count the sweep if the queue is full."""
        if len(self._queue) < QUEUE_COUNT:
            self._queue.append(sweep)
        else:
            self._dropped_count += 1

    def put_device(self, device: Device) -> None:
        """Store a GPU's current identity, limits and modes."""
        at_ns = self._facts.now_ns()
        wall_s = self._facts.wall_s(at_ns)
        self._put(lambda ledger: ledger.put_device(device, at_ns, wall_s), known_as=("device", device.uuid))

    def put_refresh(self, uuid: str, refresh_ns: Mapping[str, int]) -> None:
        """Store the refresh period of each signal of a GPU."""
        learnt = dict(refresh_ns)
        self._put(lambda ledger: ledger.put_refresh(uuid, learnt), known_as=("refresh", uuid))

    def put_gap(self, uuid: str, lane: Lane, begin_ns: int, end_ns: int) -> None:
        """Store a gap of a lane that no sweep reports."""
        self._queue.append(SegmentRows(gaps=[(uuid, lane, begin_ns, end_ns)]))

    def put_run(self, run: Run, evidence: Mapping[str, bytes] | None = None, signatures: Sequence[bytes] = ()) -> None:
        """Insert or replace a run, with each GPU's packed evidence and a signature for each verdict, if there are any.

        The writer's thread commits the run at once.
        """
        packed, signed = dict(evidence or {}), tuple(signatures)
        self._put(lambda ledger: ledger.put_run(run, packed, signed))
        self._wake.set()

    def put_timings(self, run_id: str, timings: Timings | PackedTimes) -> None:
        """Store a run's times of single iterations."""
        packed = timings if isinstance(timings, PackedTimes) else PackedTimes.of(timings)
        self._put(lambda ledger: ledger.put_timings(run_id, packed))

    def put_spans(self, run_id: str, what: str, spans: NamedSpans) -> None:
        """Store a run's spans: declared ``other`` work, or ``pauses`` of its host."""
        self._put(lambda ledger: ledger.put_spans(run_id, what, spans))

    def put_recorded(self, run: Run, recorded: Mapping[str, RecordedWindow]) -> None:
        """Add a run's numbers to the records of its work, by the digests of the work keys."""
        added = dict(recorded)
        if added:
            self._put(lambda ledger: ledger.put_recorded(run, added))

    def set_resting(self, resting: bool) -> None:  # noqa: FBT001 - the state is the whole call
        """Commit rarely while True; when that ends, commit waiting rows at once."""
        was_resting, self._is_resting = self._is_resting, resting
        if was_resting and not resting:
            self._wake.set()

    def set_budget(self, budget_bytes: int, max_age_s: float) -> None:
        """Change the store's limits; they take effect at the next housekeeping, within about a minute."""
        self._limits = replace(self._limits, budget_bytes=budget_bytes, max_age_s=max_age_s)
        self._committer.set_limits(self._limits)

    def flush(self, timeout_s: float = 1.0) -> bool:
        """Wait until everything received so far is committed; return False on a timeout or a failure."""
        flush: Future[bool] = Future()
        self._queue.append(flush)
        self._wake.set()
        try:
            return flush.result(timeout_s)
        except TimeoutError:
            return False

    def statistics(self) -> dict[str, Any]:
        """Return counts of stored and lost data, as JSON values."""
        found = self._committer.statistics()
        return {
            **found,
            "queued_count": len(self._queue),
            "dropped_count": found["dropped_count"] + self._dropped_count,
        }

    def close(self) -> None:
        """Commit the rest and leave plain files that any reader can open.  A second call does nothing."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._wake.set()
        self._thread.join(10.0)
        if self._thread.is_alive():
            _log.error("the store's thread did not end; the next start repairs its files")
            return
        self.folder.close()

    def _put(self, apply: Callable[[Ledger], None], known_as: tuple[str, str] | None = None) -> None:
        self._queue.append(LedgerWrite(apply, known_as))

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(self._limits.rest_commit_s if self._is_resting else self._limits.commit_s)
            self._wake.clear()
            self._commit()
        self._commit()

    def _commit(self) -> None:
        items = [self._queue.popleft() for _ in range(len(self._queue))]
        is_stored = self._committer.commit(item for item in items if not isinstance(item, Future))
        for item in items:
            if isinstance(item, Future):
                item.set_result(is_stored)
