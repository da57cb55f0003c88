"""The daemon's Unix socket: a trusted connection to it, and the credentials of the process at the other end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from pathlib import Path

from gpuwatch.config.paths import SYSTEM_SOCKET
from gpuwatch.errors import DaemonError

ANSWER_S = 5.0  # a daemon that is silent for longer is treated as gone


def peer_uid(connection: socket.socket) -> tuple[int, int]:
    """Return pid and uid of the process at the other end, by the kernel's word; the pid is 0 if it is not visible from here."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", credentials)
    return pid, uid


def dial(path: Path) -> socket.socket | None:
    """Connect to the socket at this path; None where none listens.

    Raises DaemonError: when it takes no connection of this user, or another user listens there.
    """
    connection = _moved_off_streams(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    try:
        connection.settimeout(ANSWER_S)
        connection.connect(str(path))
        _, uid = peer_uid(connection)
        owner = path.stat().st_uid
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        connection.close()
        return None
    except OSError as error:
        connection.close()
        raise DaemonError(f"{path}: {_refusal(path, error)}", "unreachable") from error
    # Anyone may listen at a path in a shared folder: trust ourselves, root, and whoever owns the system's socket.
    if uid not in (os.getuid(), 0) and not (path == SYSTEM_SOCKET and uid == owner):
        connection.close()
        raise DaemonError(f"{path}: expected a daemon of uid {os.getuid()} or root, found uid {uid}; remove it", "untrusted")
    return connection


def _moved_off_streams(connection: socket.socket) -> socket.socket:
    """Move a socket off the numbers of closed standard streams: what a library prints there must not reach the daemon."""
    if connection.fileno() > 2:
        return connection
    with connection:
        return socket.socket(fileno=fcntl.fcntl(connection, fcntl.F_DUPFD_CLOEXEC, 3))


def _refusal(path: Path, error: OSError) -> str:
    """Explain why a socket takes no connection of this user, and what would."""
    why = error.strerror or str(error)
    if isinstance(error, PermissionError):
        with contextlib.suppress(OSError):
            owner = path.stat().st_uid
            return f"{why}: the daemon there serves uid {owner} only; serve every user with: gpuwatch daemon --system"
    return why
