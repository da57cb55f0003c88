"""The segments of a state folder as others see them: dropped, damaged or written to while they are read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from sqlite_utils import Database

from gpuwatch.errors import StoreError
from gpuwatch.store import files
from gpuwatch.store.ledger_connection import DAMAGE

_SLACK_NS = 60_000_000_000
_FIRST_ROW = "SELECT boot_id, begin_ns FROM segment"

_log = logging.getLogger("gpuwatch.store")
_T = TypeVar("_T")


class SegmentReader:
    """The segments of a folder by the time they hold.  Methods raise StoreError, in one line."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._begins: dict[Path, tuple[str, int]] = {}

    def paths(self, boot_id: str, begin_ns: int, end_ns: int) -> Iterator[Path]:
        """Segments of a boot that may hold readings of an interval, oldest first."""
        of_boot = []
        for path in sorted(self._state.glob(files.SEGMENTS)):
            if path not in self._begins:
                row = self._first_row(path)
                if row is None:
                    continue
                self._begins[path] = (row[0], row[1])
            if self._begins[path][0] == boot_id:
                of_boot.append((self._begins[path][1], path))
        for i, (segment_ns, path) in enumerate(of_boot):
            ends_ns = of_boot[i + 1][0] if i + 1 < len(of_boot) else None
            # What was read just before a segment began may lie in it, and a blob of power begins seconds earlier.
            if segment_ns - _SLACK_NS <= end_ns and (ends_ns is None or ends_ns + _SLACK_NS >= begin_ns):
                yield path

    def _first_row(self, path: Path) -> tuple[str, int] | None:
        """A segment's boot and beginning; None for a damaged one, whose readings are missed where they are asked for."""
        try:
            row: tuple[str, int] | None = query_segment(path, lambda db: db.execute(_FIRST_ROW).fetchone())
        except StoreError as error:
            if error.__cause__ is None or not (files.is_broken(error.__cause__) or "no such" in str(error.__cause__)):
                raise
            _log.warning("%s; it is left out", error)
            return None
        return row


def query_segment(path: Path, query: Callable[[Database], _T]) -> _T | None:
    """Query one segment; None if the writer dropped it meanwhile.  Raises StoreError, in one line."""
    try:
        db = files.open_to_read(path)
    except StoreError:
        if not path.exists():
            return None
        raise
    try:
        return query(db)
    except DAMAGE as error:
        raise StoreError(f"{path}: expected readings, found: {error}") from error
    finally:
        db.conn.close()
