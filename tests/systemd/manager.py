"""A service manager for tests, which listens at NOTIFY_SOCKET, starts daemons, and passes sockets to daemons."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuwatch import clock
from tests.waiting import PATIENCE_S

# LISTEN_PID is the daemon's PID, so the child sets this variable.  Sockets are first copied to high numbers, so that none is
# overwritten.
_HAND_OVER = """
import os, sys
far = [os.dup2(int(number), 100 + at) for at, number in enumerate(sys.argv[1].split(","))]
for at, number in enumerate(far):
    os.dup2(number, 3 + at)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(far))}
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass
class Manager:
    """The receiver of a service's messages; ``received`` has the messages with their times."""

    address: str
    connection: socket.socket
    received: list[tuple[int, dict[str, str]]] = field(default_factory=list)

    def until(self, holds: Callable[[dict[str, str]], bool], patience_s: float = PATIENCE_S) -> dict[str, str]:
        """Return the next message that fulfils the condition.  Raises AssertionError: when none arrives in time."""
        deadline_ns = clock.now_ns() + int(patience_s * 1e9)
        while (left_s := (deadline_ns - clock.now_ns()) / 1e9) > 0:
            self.connection.settimeout(left_s)
            with contextlib.suppress(TimeoutError):
                lines = self.connection.recv(65536).decode().split("\n")
                message = dict(line.partition("=")[::2] for line in lines)
                self.received.append((clock.now_ns(), message))
                if holds(message):
                    return message
        raise AssertionError(f"no message fulfilled the condition: {[message for _, message in self.received]}")

    def during(self, span_s: float) -> list[dict[str, str]]:
        """Return all messages within this time."""
        begun = len(self.received)
        with contextlib.suppress(AssertionError):
            self.until(lambda _: False, span_s)
        return [message for _, message in self.received[begun:]]


@contextlib.contextmanager
def manager(address: Path | str) -> Iterator[Manager]:
    """Yield a manager that listens at a path, or at an abstract name that starts with @."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.bind("\0" + str(address)[1:] if str(address).startswith("@") else str(address))
        yield Manager(str(address), connection)


@contextlib.contextmanager
def service(
    notified: Manager, arguments: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None,
    sockets: Sequence[socket.socket] = (), launcher: Sequence[str] = (sys.executable, "-m", "gpuwatch"),
) -> Iterator[subprocess.Popen[bytes]]:  # fmt: skip
    """Yield a daemon that is started and stopped as by a service manager."""
    env = {**os.environ, "NOTIFY_SOCKET": notified.address, **(environment or {})}
    numbers = [one.fileno() for one in sockets]
    command = [*launcher, *arguments]
    if numbers:
        command = [sys.executable, "-c", _HAND_OVER, ",".join(map(str, numbers)), *command]
    with log.open("ab") as errors:
        process = subprocess.Popen(command, stderr=errors, env=env, pass_fds=numbers)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(PATIENCE_S)
