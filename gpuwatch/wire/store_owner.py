"""The daemon that owns a store: the lock that proves the daemon alive, and the path of its socket, both in the store.

The default socket depends on ``XDG_RUNTIME_DIR``, and the default store does not.  So a client under cron or su has
another default socket than the user's daemon, and finds the daemon by this record.
"""

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from gpuwatch import atomic_write
from gpuwatch.config.paths import SOCKET_PATH_BYTES, is_folder_of_ours

LOCK = "lock"
NAME = "daemon.socket"


def is_alive(state: Path) -> bool:
    """Return True if a writer holds this folder."""
    try:
        descriptor = os.open(state / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(descriptor)
    return False


def record_socket(state: Path, socket: Path, *, mode: int) -> None:
    """Replace the record of the socket.  Only the owner of the store may call this.

    Raises OSError: when the folder cannot be written.
    """
    atomic_write.replace(state / NAME, os.fsencode(socket.absolute()) + b"\n", mode=mode)


def recorded_socket(state: Path) -> Path | None:
    """Return the recorded socket; None without a valid record, and if another user could have made the record or the socket."""
    path = _recorded(state)
    return path if path is not None and is_folder_of_ours(path.parent) else None


def forget_socket(state: Path, socket: Path) -> None:
    """Remove the record if it still names this socket."""
    if _recorded(state) == socket.absolute():
        with contextlib.suppress(OSError):
            (state / NAME).unlink()


def _recorded(state: Path) -> Path | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # reading a pipe would block
    try:
        descriptor = os.open(state / NAME, flags)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        ours = stat.S_ISREG(found.st_mode) and found.st_uid in (os.getuid(), 0) and not found.st_mode & 0o022
        content = os.read(descriptor, SOCKET_PATH_BYTES + 2) if ours else b""
    except OSError:
        return None
    finally:
        os.close(descriptor)
    name, newline, _ = content.partition(b"\n")
    if not newline or not name.startswith(b"/") or b"\0" in name:
        return None
    return Path(os.fsdecode(name))
