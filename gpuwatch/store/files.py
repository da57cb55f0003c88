"""Files of databases: opening, checking, closing to one plain file, setting aside, locking, sizes, errors and file systems."""

import contextlib
import fcntl
import logging
import os
import shlex
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from gpuwatch.errors import StoreError
from gpuwatch.store.database import Database
from gpuwatch.wire import store_owner

_log = logging.getLogger("gpuwatch.store")

DATABASE = "gpuwatch.db"
SEGMENTS = "readings-*.db"
SQLITE_VERSION = sqlite3.sqlite_version

# On these, locks and a write-ahead log's shared memory do not work between machines.
NETWORK_TYPES = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "fuse.sshfs",
    "fuse.glusterfs", "fuse.ceph", "virtiofs",
})  # fmt: skip

PAGE_BYTES = 4096
_LOG_PAGES_COUNT = 256  # SQLite writes back a log of this size: 1 MiB
_BUSY_S = 5.0
_HELD_S = 1.0  # longest wait of the writer, which keeps its rows and retries
_CACHE_KIB = 1000  # most statements add rows, so half of SQLite's default per connection is enough
_CHECK_STEPS = 1000  # virtual machine steps of SQLite between two readings of the clock
_PROBES_COUNT, _PROBE_S = 20, 0.01  # ``store_owner.is_alive`` probes the lock for microseconds only
_HEADER_BYTES = 100  # https://www.sqlite.org/fileformat.html: bytes 18 and 19 are 2 in WAL mode
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_SHMSIZE}
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
# Another process holds the file, a file system became read-only, or memory or descriptors are short.
_PASSING = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR,
}  # fmt: skip
# Errors of database calls.  A torn file may also hold invalid text, even inside SQLite's own error message.
REFUSALS = (sqlite3.Error, UnicodeDecodeError)


def is_full(error: BaseException) -> bool:
    """Return whether SQLite could not write, as on a full disk or quota."""
    code = getattr(error, "sqlite_errorcode", None)
    return code in _FULL or (code or 0) & 0xFF == sqlite3.SQLITE_FULL


def is_broken(error: BaseException) -> bool:
    """Return whether the file is torn or not a database."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    return isinstance(error, UnicodeDecodeError) or code == sqlite3.SQLITE_IOERR_SHORT_READ or code & 0xFF in _BROKEN


def is_passing(error: BaseException) -> bool:
    """Return whether the same write may succeed later, unchanged."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    return isinstance(error, MemoryError | OSError) or (code & 0xFF in _PASSING and not is_broken(error))


def identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the file at this path; None without a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def open_to_write(path: Path, *, mode: int, wal: bool, durable: bool) -> Database:
    """Return a connection that may move to another thread.  ``durable``: a commit survives loss of power.

    Raises REFUSALS, OSError: when the file cannot be opened, made or prepared.
    """
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, mode))  # SQLite gives its log the same mode
    return _prepared(sqlite3.connect(path, timeout=_HELD_S, check_same_thread=False), wal=wal, durable=durable)


def reopen_to_write(path: Path, *, durable: bool) -> Database:
    """Return a connection to an existing file with a write-ahead log.

    Raises REFUSALS: when the file cannot be opened.
    """
    uri = f"{path.resolve().as_uri()}?mode=rw"
    return _prepared(sqlite3.connect(uri, uri=True, timeout=_HELD_S, check_same_thread=False), wal=True, durable=durable)


def _prepared(connection: sqlite3.Connection, *, wal: bool, durable: bool) -> Database:
    try:
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute(f"PRAGMA journal_mode={'WAL' if wal else 'DELETE'}")
        connection.execute(f"PRAGMA synchronous={'FULL' if durable or not wal else 'NORMAL'}")
        connection.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES_COUNT}")
        connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        connection.execute("PRAGMA temp_store=MEMORY")
    except REFUSALS:
        connection.close()
        raise
    return Database(connection)


def open_to_read(path: Path) -> Database:
    """Return a read-only connection, even without a living writer or write permission.

    Raises StoreError: when the file is missing, cannot be read, or is not a database.
    """
    uri = path.resolve().as_uri()
    refused: Exception | None = None
    # Without write permission, SQLite cannot open a log that has no writer; if the log is empty, the file alone is complete.
    for query in ("mode=ro", "mode=ro&immutable=1"):
        if "immutable" in query and size_bytes(Path(f"{path}-wal")):
            break
        try:
            connection = sqlite3.connect(f"{uri}?{query}", uri=True, timeout=_BUSY_S, check_same_thread=False)
        except sqlite3.Error as error:
            refused = refused or error
            continue
        try:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except REFUSALS as error:
            connection.close()
            refused = refused or error
            continue
        return Database(connection)
    if not path.exists():
        raise StoreError(f"{path}: expected a gpuwatch database, found none")
    raise StoreError(f"{path}: expected a readable gpuwatch database, found: {refused}") from refused


def write_back(database: Database) -> bool:
    """Write the whole write-ahead log back into the file; return False if a reader prevents it now."""
    database.conn.execute("PRAGMA busy_timeout=100")  # as in ``close_plain``
    try:
        is_busy: int = database.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        database.conn.execute(f"PRAGMA busy_timeout={_HELD_S * 1000:.0f}")
    return not is_busy


def close_plain(database: Database, path: Path) -> bool:
    """Close a database and leave one plain file.  Return False if a reader prevents that; then call ``settle`` later."""
    try:
        database.conn.execute("PRAGMA busy_timeout=100")  # short, because the writer must not wait for a reader
        database.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.conn.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        _log.debug("%s still needs its write-ahead log: %s", path.name, error)
    database.conn.close()
    return not needs_settling(path)


def needs_settling(path: Path) -> bool:
    """Return whether a closed file still needs its write-ahead log: the header is in WAL mode, or the log exists."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError:
        return False
    return header[18:19] == b"\x02" or Path(f"{path}-wal").exists()


def settle(path: Path) -> bool:
    """Merge the files left by a writer into one plain file; return False if a reader prevents that.

    Raises REFUSALS: when SQLite cannot read the database.
    """
    connection = sqlite3.connect(path, timeout=0.1, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except REFUSALS:
        connection.close()
        raise
    return close_plain(Database(connection), path)


def check(database: Database, *, now_ns: Callable[[], int], limit_ns: int = 5_000_000_000) -> str | None:
    """Return the first defect that SQLite's quick check finds, or None if the check finds none within ``limit_ns``."""
    until_ns = now_ns() + limit_ns
    database.conn.set_progress_handler(lambda: int(now_ns() > until_ns), _CHECK_STEPS)
    try:
        found: str = database.conn.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            return None
        raise
    finally:
        database.conn.set_progress_handler(None, 0)
    return None if found == "ok" else found


def set_aside(path: Path, why: object, *, wall_s: float) -> Path:
    """Rename a broken database and its log, so that both stay for inspection; return the new path."""
    aside = path.with_name(f"{path.name}.corrupt-{int(wall_s)}")
    while aside.exists():
        aside = aside.with_name(f"{aside.name}x")
    for suffix in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
    _log.error("%s is damaged (%s): set aside as %s", path, why, aside.name)
    return aside


def remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def size_bytes(path: Path) -> int:
    """Return the size of a file; 0 if the file does not exist."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def file_system(path: Path, *, mountinfo: Path = Path("/proc/self/mountinfo")) -> str | None:
    """Return the type of the file system that holds a path, or None if it cannot be found."""
    try:
        lines = mountinfo.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    real, best, found = str(path.resolve()), "", None
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = left.split()[4].replace("\\040", " ")
        above = mount if mount.endswith("/") else f"{mount}/"
        if len(mount) >= len(best) and f"{real}/".startswith(above):
            best, found = mount, right.split()[0]
    return found


def is_locked_by(descriptor: int, folder: Path) -> bool:
    """Return whether this descriptor still holds the folder's lock."""
    held = os.fstat(descriptor)
    return identity(folder / store_owner.LOCK) == (held.st_dev, held.st_ino)


def lock(folder: Path, *, mode: int) -> int:
    """Lock a folder for one writer until the returned descriptor is closed.

    Raises StoreError: when another writer holds the lock.
    Raises OSError: when the lock's file cannot be written.
    """
    path = folder / store_owner.LOCK
    # Only the owner may open the file: any reader of a file can lock it, and could keep every daemon from starting.
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, mode & 0o600)
    try:
        with contextlib.suppress(PermissionError):  # the file was made by another version, as another user
            os.fchmod(descriptor, mode & 0o600)
        try:
            _lock_patiently(descriptor)
        except BlockingIOError as error:
            pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            raise StoreError(f"{folder}: {_owned(pid, store_owner.recorded_socket(folder))}") from error
        (folder / store_owner.NAME).unlink(missing_ok=True)  # the previous owner's record
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock_patiently(descriptor: int) -> None:
    """Take the lock, with retries because ``store_owner.is_alive`` shares the lock for a moment.  Raises BlockingIOError."""
    pause = threading.Event()
    for _ in range(_PROBES_COUNT):
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        pause.wait(_PROBE_S)
    return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _owned(pid: str, socket: Path | None) -> str:
    writer = f"the gpuwatch daemon of pid {pid}" if pid else "another gpuwatch daemon"  # no PID: it has just started
    found = f"expected a store without a writer, found {writer} writing it"
    if socket is None:
        stop = f"stop it with: kill {pid}" if pid else "try again in a second"
        return f"{found}; {stop}, or choose another --state and --socket"
    option = shlex.quote(f"--socket={socket}")
    return f"{found}; use its socket with {option}, or stop it with: gpuwatch {option} daemon stop"
