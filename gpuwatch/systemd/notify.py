"""The service manager's protocol: messages to the manager (sd_notify(3)), and sockets from it (sd_listen_fds(3)).

The protocol is small, so no library is used.  Messages are datagrams of ``NAME=value`` lines to the socket in NOTIFY_SOCKET.
Sockets are the descriptors from 3 on, if LISTEN_PID is this process.
"""

import contextlib
import logging
import os
import socket
from collections.abc import MutableMapping, Sequence
from pathlib import Path

from gpuwatch import clock
from gpuwatch.errors import UsageError

_log = logging.getLogger("gpuwatch.systemd.notify")

FIRST_DESCRIPTOR = 3
STATUS_LENGTH = 500  # most characters in the status line of `systemctl status`
_UNSET = "a service manager sets it; without one, unset it"
_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class Manager:
    """The service manager that started this process: systemd, a test, or none.  Without one, messages are dropped."""

    def __init__(self, address: str | None = None, *, watchdog_s: float | None = None) -> None:
        self._address = address
        self.watchdog_s = watchdog_s  # longest time between two WATCHDOG=1, or None without a watchdog

    @property
    def listens(self) -> bool:
        return self._address is not None

    def ready(self, status: str) -> None:
        """Report that the daemon serves, or after ``reloading`` that the reload has ended."""
        self._send(f"READY=1\n{self._status_line(status)}")

    def status(self, status: str, *, alive: bool = True) -> None:
        """Set the line of ``systemctl status``; with ``alive``, also feed the watchdog."""
        self._send(("WATCHDOG=1\n" if alive else "") + self._status_line(status))

    def reloading(self) -> None:
        self._send(f"RELOADING=1\nMONOTONIC_USEC={clock.now_ns() // 1000}")

    def stopping(self) -> None:
        self._send(f"STOPPING=1\n{self._status_line('stopping')}")

    def _status_line(self, status: str) -> str:
        # A second line would be a separate message, and an error text could then send READY=1.
        return f"STATUS={' '.join(status.split())[:STATUS_LENGTH]}"

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
                connection.setblocking(False)  # noqa: FBT003 - the standard library's signature; a full queue must not block the loop
                connection.sendto(message.encode(), self._address)
        except OSError as error:
            _log.warning("a message to the service manager was not sent: %s", error.strerror or error)


def taken(environment: MutableMapping[str, str]) -> tuple[Manager, list[socket.socket]]:
    """Return the manager named in the environment, and the manager's sockets.

    Remove the variables, because child processes must not use them.

    Raises UsageError: for values that no manager sets, and for a descriptor that is no socket.
    """
    variables = {name: environment.pop(name) for name in _VARIABLES if name in environment}
    return _manager(variables), _sockets(variables)


def listener_at(path: Path, sockets: Sequence[socket.socket]) -> socket.socket | None:
    """Return the daemon's socket from the service manager; None without one.

    Raises UsageError: for a socket of another kind or place, because its clients would hang, and for several sockets.
    """
    for one in sockets:
        name = one.getsockname() if one.family == socket.AF_UNIX else None
        if one.type != socket.SOCK_STREAM or not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise UsageError(
                f"LISTEN_FDS: expected a listening stream socket at {path}, found {name or one.getsockname()}; set ListenStream= to that path"
            )
        if not isinstance(name, str) or not name or Path(name).resolve() != path.resolve():
            raise UsageError(
                f"LISTEN_FDS: expected a socket at {path}, found one at {name or one.getsockname()};"
                " set ListenStream= and --socket to the same path"
            )
    if len(sockets) > 1:
        raise UsageError(f"LISTEN_FDS: expected one socket, found {len(sockets)}; keep one ListenStream= in the socket unit")
    return sockets[0] if sockets else None


def _manager(variables: MutableMapping[str, str]) -> Manager:
    address = variables.get("NOTIFY_SOCKET") or None
    if address is not None and address[0] not in "/@":
        raise UsageError(f"NOTIFY_SOCKET: expected a path, or @ and a name, found {address!r}; {_UNSET}")
    if address is not None and address[0] == "@":
        address = "\0" + address[1:]  # in the abstract namespace
    if variables.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return Manager(address)
    microseconds = _number("WATCHDOG_USEC", variables.get("WATCHDOG_USEC", "0"))
    return Manager(address, watchdog_s=microseconds / 1e6 if microseconds else None)


def _sockets(variables: MutableMapping[str, str]) -> list[socket.socket]:
    if variables.get("LISTEN_PID") != str(os.getpid()):
        return []  # the variables are absent, or were set for a parent process
    found = []
    for descriptor in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + _number("LISTEN_FDS", variables.get("LISTEN_FDS", "0"))):
        with contextlib.suppress(OSError):
            os.set_inheritable(descriptor, False)  # noqa: FBT003 - the standard library's signature
        try:
            found.append(socket.socket(fileno=descriptor))
        except OSError as error:
            raise UsageError(
                f"LISTEN_FDS: expected a socket as descriptor {descriptor}, found: {error.strerror}; {_UNSET}"
            ) from error
    return found


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise UsageError(f"{name}: expected a number, found {text!r}; {_UNSET}")
    return int(text)
