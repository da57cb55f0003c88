"""``gpuwatch.db`` as others see it: read-only, from any process, while the writer lives or after it."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.errors import StoreError
from gpuwatch.store import files

# What a torn file can make of a row: nothing SQLite can read, or values that are none of ours.
DAMAGE = (
    sqlite3.Error,
    zlib.error,
    msgspec.MsgspecError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,  # JSON nested deeper than Python goes
)


class LedgerConnection:
    """A read-only connection.  Every method raises StoreError, in one line, where the store cannot answer."""

    def __init__(self, state: Path) -> None:
        self.state = Path(state)
        self.path = self.state / files.DATABASE
        self._db = files.open_to_read(self.path)

    def close(self) -> None:
        """Close the connection."""
        self._db.conn.close()

    def _first(self, sql: str, values: Iterable[Any] = ()) -> tuple[Any, ...] | None:
        return next(iter(self._rows(sql, values)), None)

    def _rows(self, sql: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        with self._as_store_error():
            return self._db.execute(sql, list(values)).fetchall()

    def _dicts(self, sql: str, values: Iterable[Any] = ()) -> list[dict[str, Any]]:
        with self._as_store_error():
            return list(self._db.query(sql, list(values)))

    @contextmanager
    def _as_store_error(self) -> Iterator[None]:
        try:
            yield
        except DAMAGE as error:
            raise StoreError(f"{self.path}: expected a readable gpuwatch database, found: {error}") from error
