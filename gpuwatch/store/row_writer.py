"""The writer of readings into the live segment.

The writer compacts readings into rows, holds rows while writes fail, and replaces lost rows with gaps.  A bisection
separates bad rows from good ones, so that a commit with few bad rows loses only these.
"""

import logging
from collections.abc import Callable

from annotate.evidence import Event
from gpuwatch.interfaces import Sweep
from gpuwatch.store.compaction import Compactor, SegmentRows
from gpuwatch.store.retries import UNSTORABLE, Failure, Retries
from gpuwatch.store.segments import Segments

_log = logging.getLogger("gpuwatch.store")

HELD_COUNT = 100_000  # most rows that wait while another process locks the segment


class RowWriter:
    """A writer of sweeps as rows of the live segment.  Only the store's writer thread calls the methods."""

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
        """Hold every new row for the next write; return the new events, which the caller stores in the ledger."""
        rows = self._compactor.rows()
        self._held.take(rows)
        return rows.events

    def restart(self) -> None:
        """Begin new rows: earlier rows are in another file or lost, so later sweeps cannot extend them."""
        self._compactor.restart()

    def write(self) -> bool:
        """Commit every held row; return False if rows still wait, or were given up for a full disk or too many waiting rows."""
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
        """Give up the held rows if more than ``HELD_COUNT`` wait."""
        if len(self._held) > HELD_COUNT:
            self.give_up()

    def give_up(self) -> None:
        """Replace the held rows with gaps that show their loss, and restart."""
        loss = self._held.loss()
        self.dropped_count += len(self._held) - len(self._held.gaps)
        self._held = loss
        self.restart()

    def _write_without_bad(self) -> bool:
        """Write the good rows, and replace bad rows of the fast lane with gaps; return True if no row waits."""
        bad, self._held = sift(self._held, self._write)
        self.dropped_count += len(bad)
        loss = SegmentRows(readings=bad.readings).loss()
        if self._write(loss) not in (None, Failure.VALUE):
            self._held.take(loss)
        return not len(self._held)

    def _write(self, rows: SegmentRows) -> Failure | None:
        """Commit these rows; return the reason for a failure, None for success."""

        def commit() -> None:
            self.rows_count += self._segments.live.write(rows)

        return None if self._retries.succeeds(commit) else self._retries.failure


BAD_COUNT = 64  # most bad rows to isolate in a commit; beyond that, ``sift`` gives up each failing part as a whole


def sift(rows: SegmentRows, write: Callable[[SegmentRows], Failure | None]) -> tuple[SegmentRows, SegmentRows]:
    """Write every good row; return the rows to give up, and the rows to retry.

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
        elif failure is not None:  # the file or the disk failed, so no other part can succeed now
            again.take(part)
            while waiting:
                again.take(waiting.pop())
    return bad, again
