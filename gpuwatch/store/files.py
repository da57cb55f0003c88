"""Files of a store: where they lie, whether they are whole, how they are set aside, and which go first."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from gpuwatch import clock
from gpuwatch.errors import StoreError

_log = logging.getLogger("gpuwatch.store")

PERMANENT = "gpuwatch.db"
_BESIDE = ("-wal", "-shm", "-journal")

# Shared memory and file locks of a write-ahead log do not work across machines.
NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "9p",
                                  "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "afs", "panfs", "wekafs"})  # fmt: skip


def segments(state: Path) -> list[Path]:
    """The segments of a store, oldest first; their names sort by the time they were begun."""
    return sorted(state.glob("readings-*.db"))


def segment_path(state: Path, wall_s: float) -> Path:
    return state / f"readings-{int(wall_s * 1000):013d}.db"


def size_bytes(path: Path) -> int:
    """What a database takes on disk, log included; 0 if it is gone."""
    total = 0
    for name in (path, *(Path(f"{path}{suffix}") for suffix in _BESIDE)):
        with contextlib.suppress(OSError):
            total += name.stat().st_size
    return total


def remove(path: Path) -> None:
    for name in (path, *(Path(f"{path}{suffix}") for suffix in _BESIDE)):
        with contextlib.suppress(FileNotFoundError):
            name.unlink()


def set_aside(path: Path) -> Path:
    """Rename a damaged database, log and all, so that a new one can take its place and somebody may look at it."""
    aside = Path(f"{path}.corrupt-{int(clock.wall_s())}")
    _log.error("%s is damaged; set aside as %s", path.name, aside.name)
    for suffix in ("", *_BESIDE):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
    return aside


def set_aside_count(state: Path) -> int:
    return len([path for path in state.glob("*.corrupt-*") if not path.name.endswith(_BESIDE)])


def newer_version(path: Path, version: int) -> int | None:
    """The schema version of a file if it is newer than ours, read without opening it for writing."""
    try:
        with path.open("rb") as file:
            file.seek(60)  # user_version in the database header, see the SQLite file format
            found = int.from_bytes(file.read(4), "big", signed=True)
    except OSError:
        return None
    return found if found > version else None


def is_damaged(path: Path) -> bool:
    """Whether a database fails SQLite's check.  Only one that was not closed cleanly is looked through."""
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except OSError:
        return False
    if not head:
        return False
    if not head.startswith(b"SQLite format 3\0"):
        return True
    logged = head[18] == 2  # the write-ahead-log flag: a clean close leaves 1
    if not logged:
        return False
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok")
    except sqlite3.DatabaseError:
        return True


def file_system(path: Path, *, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """The kind of file system a path lies on, None where that cannot be told."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
        real = str(path.resolve())
    except OSError:
        return None
    best, kind = -1, None
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = fields[4].replace("\\040", " ")
        below = real == point or real.startswith(point.rstrip("/") + "/")
        if below and len(point) >= best:
            best, kind = len(point), right.split()[0]
    return kind


@contextlib.contextmanager
def writer_lock(state: Path) -> Iterator[None]:
    """Hold the only right to write to a store.  Raises StoreError that names the process that has it."""
    path = state / "writer.lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"{state}: expected a folder that can be written, found: {error.strerror}; choose another --state") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
            raise StoreError(f"{state}: process {holder} already writes to this store; stop it or choose another --state") from None
        os.truncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(lock)
