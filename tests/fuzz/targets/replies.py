"""Target: for any bytes from the daemon, the client returns a result or raises DaemonError, without a hang."""

from __future__ import annotations

import contextlib
import socket

from annotate.errors import InvalidValueError
from annotate.verdict import Verdict
from gpuwatch.client.connection import Client
from gpuwatch.config import settings
from gpuwatch.errors import DaemonError
from gpuwatch.view import live
from gpuwatch.wire import messages

_SETTINGS = settings.load({"source": "simulated", "socket": "/nowhere"}, environment={"HOME": "/"})
_WELCOME = messages.encode(
    messages.Welcome(protocol=1, version="0", source="simulated", simulated=True, state="/", pid=1, boot_id="b")
)


def target(data: bytes) -> None:
    greeting = b"" if data[:1] == b"!" else _WELCOME
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            theirs.sendall((greeting + data)[:100_000])
        theirs.shutdown(socket.SHUT_WR)
        with contextlib.suppress(DaemonError), contextlib.closing(Client(ours, _SETTINGS)) as client:
            before = live.of(client.readings())
            for ask in (client.status, lambda: live.of(client.readings(1), before), client.open):
                with contextlib.suppress(DaemonError):
                    ask()
            for verdict in client.verdicts("a").verdicts:
                with contextlib.suppress(InvalidValueError):
                    str(Verdict.from_dict(verdict))
