"""Numbered migrations: gpuwatch creates new files, and sqlite-utils migrates older files in a child process.

sqlite-utils may import pandas, which the daemon never imports.  ``python -m gpuwatch.store.migrate FILE SET`` is the child.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gpuwatch.store.database import Database

if TYPE_CHECKING:
    from sqlite_utils import Migrations
_HELD_S = 1.0  # longest wait for another process's lock
_REFUSED = 3  # exit code for a refusal by SQLite: its code and message are on standard output


# The table of applied migrations, in the form that sqlite-utils expects.
_APPLIED = (
    """CREATE TABLE "_sqlite_migrations" (
   "id" INTEGER PRIMARY KEY,
   "migration_set" TEXT,
   "name" TEXT,
   "applied_at" TEXT
)""",
    """CREATE UNIQUE INDEX "idx__sqlite_migrations_migration_set_name"
    ON "_sqlite_migrations" ("migration_set", "name")""",
)


class Executes(Protocol):
    """The part of a database, gpuwatch's or sqlite-utils', that a migration uses."""

    def execute(self, sql: str, values: Any = ..., /) -> sqlite3.Cursor:
        """Run one statement."""


Step = Callable[[Executes], None]


@dataclass(frozen=True)
class MigrationSet:
    """Numbered migrations of one kind of file.  A released name and its function never change."""

    name: str
    steps: dict[str, Step] = field(default_factory=dict)

    def __call__(self, *, name: str) -> Callable[[Step], Step]:
        def inner(step: Step) -> Step:
            self.steps[name] = step
            return step

        return inner


def bring_up(db: Database, path: Path, migrations: MigrationSet) -> None:
    """Apply the migrations that a file lacks.  Raises sqlite3.Error, OSError."""
    if not db.table_names():
        with db.atomic():
            for statement in _APPLIED:
                db.execute(statement)
            for name, step in migrations.steps.items():
                step(db)
                now = str(dt.datetime.now(dt.UTC))
                db.execute(
                    "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES (?, ?, ?)",
                    (migrations.name, name, now),
                )
    elif not migrations.steps.keys() <= applied(db, migrations):
        in_child(path, migrations.name)


def is_newer(db: Database, migrations: MigrationSet) -> bool:
    """Return whether a later version of gpuwatch has migrated the file."""
    return not applied(db, migrations) <= migrations.steps.keys()


def applied(db: Database, migrations: MigrationSet) -> set[str]:
    if "_sqlite_migrations" not in db.table_names():
        return set()
    return {row[0] for row in db.execute("SELECT name FROM _sqlite_migrations WHERE migration_set = ?", (migrations.name,))}


def in_child(path: Path, set_name: str) -> None:
    """Apply the missing migrations in a child process.  Raises sqlite3.Error, OSError."""
    # -P: import nothing from the daemon's start folder, which other users may be able to write.
    command = [sys.executable, "-P", "-m", __name__, str(path), set_name]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == _REFUSED:
        code, _, words = done.stdout.strip().partition(" ")
        error = sqlite3.OperationalError(words)
        error.sqlite_errorcode = int(code)
        raise error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no error message"])[-1]
        raise sqlite3.OperationalError(f"the migration of {path.name} ended with exit code {done.returncode}: {last}")


def for_sqlite_utils(migrations: MigrationSet) -> Migrations:
    """Return the migrations in sqlite-utils' form."""
    from sqlite_utils import Migrations

    found = Migrations(migrations.name)
    for name, step in migrations.steps.items():
        found(name=name)(step)
    return found


def _main(path: str, set_name: str) -> int:
    import sqlite_utils

    from gpuwatch.store import schema

    migrations = next(each for each in (schema.LEDGER, schema.READINGS) if each.name == set_name)
    try:
        for_sqlite_utils(migrations).apply(sqlite_utils.Database(sqlite3.connect(path, timeout=_HELD_S), execute_plugins=False))
    except sqlite3.Error as error:
        print(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR), error)  # noqa: T201 - to the parent process
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
