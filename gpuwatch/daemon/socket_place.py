"""The place of a daemon's socket in the file system."""

import contextlib
import os
import socket
import stat
from pathlib import Path

from gpuwatch.errors import UsageError


class SocketPlace:
    """A path on which this daemon listens until its socket is removed or replaced."""

    def __init__(self, path: Path, *, is_shared: bool) -> None:
        self.path = path
        self._umask = 0o111 if is_shared else 0o177
        self._bound: tuple[int, int] | None = None

    def bind(self) -> socket.socket:
        """Bind a socket and replace one that a dead daemon left; the caller's lock proves that daemon dead.

        Raises UsageError: when the path cannot hold a socket.
        """
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(self.path.lstat().st_mode):
                raise UsageError(
                    f"{self.path}: expected a socket or nothing, found another kind of file; choose another --socket"
                )
            self.path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(self._umask)
        try:
            listener.bind(str(self.path))
        except OSError as error:
            listener.close()
            raise UsageError(f"{self.path}: cannot listen: {error.strerror or error}; choose another --socket") from error
        finally:
            os.umask(before)
        self._bound = _identity(self.path)
        return listener

    def is_there(self) -> bool:
        """Return whether the bound socket still exists.

        Raises UsageError: when another file has replaced the socket.
        """
        found = _identity(self.path)
        if found not in (None, self._bound):
            raise UsageError(
                f"{self.path}: expected this daemon's socket, found another one; new windows cannot reach this daemon: restart it"
            )
        return found is not None

    def remove(self) -> None:
        """Remove the socket, unless another file has replaced it."""
        with contextlib.suppress(OSError, UsageError):
            if self.is_there():
                self.path.unlink()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
