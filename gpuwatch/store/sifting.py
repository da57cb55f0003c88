"""Bad rows among good ones: found by halves, so that one name or number costs no other row of its commit."""

from __future__ import annotations

from collections.abc import Callable

from gpuwatch.store.compaction import SegmentRows
from gpuwatch.store.retries import Failure

BAD_COUNT = 64  # bad rows of a commit that are looked for; what is not sifted by then is given up with them


def sift(rows: SegmentRows, write: Callable[[SegmentRows], Failure | None]) -> tuple[SegmentRows, SegmentRows]:
    """Write every row that can be written; return the rows that never can be, and those to be tried again.

    ``write`` gives the reason why rows were not written, None if they were.
    """
    bad, again, waiting = SegmentRows(), SegmentRows(), [rows]
    while waiting:
        part = waiting.pop()
        failure = write(part)
        if failure is Failure.VALUE and len(part) > 1 and len(bad) < BAD_COUNT:
            waiting += reversed(part.halves())
        elif failure is Failure.VALUE:
            bad.take(part)
        elif failure is not None:  # the disk, not the rows: no other part will fare better now
            again.take(part)
            while waiting:
                again.take(waiting.pop())
    return bad, again
