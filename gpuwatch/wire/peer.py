"""The daemon's Unix socket: its path, a trusted connection to it, and the credentials of the peer process."""

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from gpuwatch.config.settings import SYSTEM_SOCKET, Settings
from gpuwatch.errors import DaemonError
from gpuwatch.wire import store_owner

ANSWER_S = 5.0  # a daemon that is silent for longer counts as gone


def peer_uid(connection: socket.socket) -> tuple[int, int]:
    """Return the peer's pid and uid from the kernel; the pid is 0 if this PID namespace hides the process."""
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid, uid


def dial(path: Path) -> socket.socket | None:
    """Connect to the socket at this path; return None if no process listens.

    Raises DaemonError: when the socket refuses this user, the connection fails otherwise, or another user listens there.
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
    # Any user may listen at a path in a shared folder: trust only this user, root, and the owner of the system's socket.
    if uid not in (os.getuid(), 0) and not (path == SYSTEM_SOCKET and uid == owner):
        connection.close()
        raise DaemonError(
            f"{path}: expected a daemon of uid {os.getuid()} or root, found uid {uid}; remove the socket", "untrusted"
        )
    return connection


def _moved_off_streams(connection: socket.socket) -> socket.socket:
    """Move a socket off the descriptors of closed standard streams, so that a library's output cannot reach the daemon."""
    if connection.fileno() > 2:
        return connection
    with connection:
        return socket.socket(fileno=fcntl.fcntl(connection, fcntl.F_DUPFD_CLOEXEC, 3))


def _refusal(path: Path, error: OSError) -> str:
    """Return the reason for a refused connection, and the remedy."""
    why = error.strerror or str(error)
    if isinstance(error, PermissionError):
        with contextlib.suppress(OSError):
            owner = path.stat().st_uid
            return f"{why}: the daemon there serves uid {owner} only; serve every user with: gpuwatch daemon --system"
    return why


def is_manager(pid: int) -> bool:
    """Return True if a service manager holds the socket for a starting daemon: the listener is systemd, or dead."""
    if not pid:  # not visible from this PID namespace
        return False
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "systemd\n"
    except FileNotFoundError:
        return Path("/proc/self").exists()
    except OSError:
        return False


def list_sockets(settings: Settings) -> Iterator[Path]:
    """Yield every socket in the order to try: the system daemon's under default settings, then the user's."""
    if settings.origin("socket") == "default" and settings.origin("state") == "default" and settings.source == "auto":
        yield SYSTEM_SOCKET
    yield from list_user_sockets(settings)


def list_user_sockets(settings: Settings) -> Iterator[Path]:
    """Yield the paths of the user's daemon: the socket of the settings, then the one recorded by the store's owner."""
    yield settings.socket
    recorded = store_owner.recorded_socket(settings.state) if settings.origin("socket") == "default" else None
    if recorded is not None and recorded != settings.socket:
        yield recorded


def dial_user_daemon(settings: Settings) -> socket.socket | None:
    """Connect to the user's daemon; return None if no daemon listens.

    Raises DaemonError: as ``dial``.
    """
    return next((found for path in list_user_sockets(settings) if (found := dial(path)) is not None), None)
