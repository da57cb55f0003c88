"""A connection with transactions as blocks: the part of sqlite-utils' Database that the store uses, without that package's imports.

sqlite-utils imports pandas where pandas is installed, which would slow down every daemon and every judge's worker (decision
0081).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class Database:
    """One connection.  A statement outside of a transaction commits at once.  Methods raise sqlite3.Error."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        connection.isolation_level = None  # keeps Python from beginning transactions itself
        self.conn = connection

    def execute(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self.conn.execute(sql, values)

    def query(self, sql: str, values: Sequence[Any] = ()) -> Iterator[dict[str, Any]]:
        """Yield the rows as dictionaries."""
        cursor = self.conn.execute(sql, values)
        names = [column[0] for column in cursor.description]
        for row in cursor:
            yield dict(zip(names, row, strict=True))

    def table_names(self) -> list[str]:
        """Return the names of the tables in order of creation."""
        return [row[0] for row in self.conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")]

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Make the block one transaction; a failing inner block undoes only itself."""
        begin, commit, undo = "BEGIN", "COMMIT", ["ROLLBACK"]
        if self.conn.in_transaction:
            point = f"gpuwatch_{os.urandom(8).hex()}"
            begin, commit, undo = f"SAVEPOINT {point}", f"RELEASE {point}", [f"ROLLBACK TO {point}", f"RELEASE {point}"]
        self.conn.execute(begin)
        try:
            yield
            self.conn.execute(commit)
        except BaseException:
            for statement in undo:
                if self.conn.in_transaction:  # some errors, such as a full disk, end the transaction
                    self.conn.execute(statement)
            raise
