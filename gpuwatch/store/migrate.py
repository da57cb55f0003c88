"""The migration of an older file by sqlite-utils, in a process of its own: that library may import pandas, the daemon never does.

``python -m gpuwatch.store.migrate FILE SET`` is that process.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite_utils import Migrations

    from gpuwatch.store.schema import MigrationSet

_HELD_S = 1.0  # how long another process may hold the file
_REFUSED = 3  # SQLite refused: its code and words are on standard output


def in_child(path: Path, set_name: str) -> None:
    """Apply the migrations that a file lacks.  Raises sqlite3.Error, OSError."""
    # -P: nothing is imported from the folder the daemon was started in, which may be everybody's.
    command = [sys.executable, "-P", "-m", __name__, str(path), set_name]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == _REFUSED:
        code, _, words = done.stdout.strip().partition(" ")
        error = sqlite3.OperationalError(words)
        error.sqlite_errorcode = int(code)
        raise error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise sqlite3.OperationalError(f"the migration of {path.name} ended with {done.returncode}: {last}")


def for_sqlite_utils(migrations: MigrationSet) -> Migrations:
    """Return the migrations in sqlite-utils' form."""
    from sqlite_utils import Migrations

    found = Migrations(migrations.name)
    for name, step in migrations.steps.items():
        found(name=name)(step)
    return found


def _main(path: str, set_name: str) -> int:
    from sqlite_utils import Database

    from gpuwatch.store import schema

    migrations = next(each for each in (schema.LEDGER, schema.READINGS) if each.name == set_name)
    try:
        for_sqlite_utils(migrations).apply(Database(sqlite3.connect(path, timeout=_HELD_S), execute_plugins=False))
    except sqlite3.Error as error:
        print(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR), error)  # noqa: T201 - to our parent
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
