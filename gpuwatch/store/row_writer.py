"""The path of readings into the live segment: compacted, held while they cannot be written, replaced by gaps if lost.

A bisection finds bad rows among good ones, so that one bad name or number costs no other row of its commit.
"""

import logging
from collections.abc import Callable

from annotate.evidence import Event
from gpuwatch.interfaces import Sweep
from gpuwatch.store.compaction import Compactor, SegmentRows
from gpuwatch.store.retries import UNSTORABLE, Failure, Retries
from gpuwatch.store.segments import Segments

_log = logging.getLogger("gpuwatch.store")

HELD_COUNT = 100_000  # rows that wait while another process holds the segment: fifty megabytes


class RowWriter:
    """Takes sweeps and writes rows of the live segment.  It belongs to the writer's thread."""

    def __init__(self, segments: Segments, retries: Retries) -> None:
        self._segments = segments
        self._retries = retries
        self._compactor = Compactor()
        self._held = SegmentRows()  # not written yet
        self.rows_count = self.dropped_count = 0

    def take(self, sweep: Sweep) -> None:
        """Compact one sweep; drop and count a malformed one."""
        try:
            self._compactor.take(sweep)
        except UNSTORABLE as error:
            self.dropped_count += 1
            _log.error("a sweep of %s was not stored: %s: %s", sweep.uuid, type(error).__name__, error)

    def hold(self, rows: SegmentRows) -> None:
        """Add rows that do not come from sweeps to the next write."""
        self._held.take(rows)

    def gather(self) -> list[Event]:
        """Hold every new row for the next write; return the new events, which go into the ledger."""
        rows = self._compactor.rows()
        self._held.take(rows)
        return rows.events

    def restart(self) -> None:
        """Extend no earlier row from now on: earlier rows went into another file or are lost."""
        self._compactor.restart()

    def write(self) -> bool:
        """Commit every held row; return False if some still wait or were given up because the disk is full."""
        failure = self._write(self._held)
        if failure is None:
            self._held = SegmentRows()
            return True
        if failure is Failure.VALUE:
            return self._write_without_bad()
        if failure is not Failure.PASSING or len(self._held) > HELD_COUNT:
            self.give_up()
        return False

    def give_up_excess(self) -> None:
        """Bound the rows that wait while nothing can be written."""
        if len(self._held) > HELD_COUNT:
            self.give_up()

    def give_up(self) -> None:
        """Leave a gap in place of the held rows, and restart."""
        loss = self._held.loss()
        self.dropped_count += len(self._held) - len(self._held.gaps)
        self._held = loss
        self.restart()

    def _write_without_bad(self) -> bool:
        """Replace rows that can never be written with a gap, and write all others."""
        bad, self._held = sift(self._held, self._write)
        self.dropped_count += len(bad)
        loss = SegmentRows(readings=bad.readings).loss()
        if self._write(loss) not in (None, Failure.VALUE):
            self._held.take(loss)
        return not len(self._held)

    def _write(self, rows: SegmentRows) -> Failure | None:
        """Commit these rows; return the reason if that failed."""

        def commit() -> None:
            self.rows_count += self._segments.live.write(rows)

        return None if self._retries.succeeds(commit) else self._retries.failure


BAD_COUNT = 64  # bad rows searched for in a commit; beyond that, all unsifted rows are given up with them


def sift(rows: SegmentRows, write: Callable[[SegmentRows], Failure | None]) -> tuple[SegmentRows, SegmentRows]:
    """Write every writable row; return the rows that can never be written, and those to retry.

    ``write`` returns the reason for a failure, None for success.
    """
    bad, again, waiting = SegmentRows(), SegmentRows(), [rows]
    while waiting:
        part = waiting.pop()
        failure = write(part)
        if failure is Failure.VALUE and len(part) > 1 and len(bad) < BAD_COUNT:
            waiting += reversed(part.halves())
        elif failure is Failure.VALUE:
            bad.take(part)
        elif failure is not None:  # the disk is at fault, so no other part can succeed now
            again.take(part)
            while waiting:
                again.take(waiting.pop())
    return bad, again
