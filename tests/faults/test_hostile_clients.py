"""Tests of clients that are silent, send half lines or too much, or never read: others are served, and memory is bounded."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

import gpuwatch
from gpuwatch import clock
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings
from gpuwatch.daemon import server
from gpuwatch.wire import messages
from tests.faults import stores
from tests.gpuwatch.live import Live, running
from tests.waiting import PATIENCE_S, wait_until

HELLO = messages.encode(messages.Hello(protocol=1, version="test"))
SERVED_S = 1.0  # limit to open and close a window on an idle machine, with any other clients
MOST_GROWN_BYTES = 100 << 20
Serves: TypeAlias = Callable[..., None]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Run a daemon that has judged a first window."""
    with running(tmp_path_factory.mktemp("hostile")) as live:
        with gpuwatch.window("first", settings=live.settings) as w:  # the first window loads further modules
            pass
        assert w.verdict
        yield live


def dial(settings: Settings, *lines: bytes) -> socket.socket:
    """Connect to the daemon, and send these lines."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(PATIENCE_S)
    connection.connect(str(settings.socket))
    for line in lines:
        connection.sendall(line)
    return connection


@pytest.fixture(params=[None, pytest.param(SERVED_S, marks=pytest.mark.slow)], ids=["served", "in time"])
def serves(request: pytest.FixtureRequest) -> Serves:
    """Return a function that opens a window during an attack, and checks its time on an idle machine (``-m slow``)."""

    def window(settings: Settings, times: float = 1.0) -> None:
        begun_ns = clock.now_ns()
        with gpuwatch.window("beside", settings=settings) as w:
            pass
        assert w.run_id is not None, w.verdict.why
        assert request.param is None or (clock.now_ns() - begun_ns) / 1e9 < times * request.param

    return window


@contextlib.contextmanager
def bounded(live: Live) -> Iterator[None]:
    """Check that the daemon's memory grows within the limit, and that descriptors are closed afterwards."""
    before_bytes, before_count = stores.memory_bytes(live.process.pid), stores.descriptors(live.process.pid)
    yield
    assert stores.memory_bytes(live.process.pid) - before_bytes < MOST_GROWN_BYTES
    wait_until(
        lambda: stores.descriptors(live.process.pid) <= before_count + 2,
        what=lambda: f"{stores.descriptors(live.process.pid)} descriptors, {before_count} before",
        every_s=0.1,
    )


def test_silent_connections_do_not_delay_others(daemon: Live, serves: Serves) -> None:
    with bounded(daemon):
        silent = [dial(daemon.settings) for _ in range(500)]
        serves(daemon.settings)
        for connection in silent:
            connection.close()


@pytest.mark.soak
def test_silent_connection_is_closed_at_the_deadline(daemon: Live, serves: Serves) -> None:
    with bounded(daemon):
        silent = [dial(daemon.settings) for _ in range(500)]
        silent[0].settimeout(server.GREETING_S + PATIENCE_S)
        assert silent[0].recv(1) == b""  # the daemon has closed the connection
        serves(daemon.settings)
        for connection in silent:
            connection.close()


def test_half_lines_before_the_greeting_use_little_memory(daemon: Live, serves: Serves) -> None:
    with bounded(daemon):
        half = [dial(daemon.settings, b'{"type":"hello","version":"' + b"x" * 30_000) for _ in range(500)]
        serves(daemon.settings)
        for connection in half:
            connection.close()


def test_half_lines_after_the_greeting_are_limited_together(daemon: Live, serves: Serves) -> None:
    """Two hundred half lines of a megabyte exceed the common limit: memory stays below 1 GiB, and windows are served."""
    with bounded(daemon):
        half = []
        for _ in range(200):
            connection = dial(daemon.settings, HELLO)
            connection.recv(4096)
            connection.settimeout(0.2)
            with contextlib.suppress(OSError):  # refused while sending
                connection.sendall(b"x" * 1_000_000)
            half.append(connection)
        assert stores.memory_bytes(daemon.process.pid) < 1 << 30
        for connection in half:
            connection.close()
        serves(daemon.settings)


def test_endless_line_is_refused(daemon: Live, serves: Serves) -> None:
    with bounded(daemon), dial(daemon.settings, HELLO) as connection:
        connection.recv(4096)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(b"x" * (10 << 20))
        assert json.loads(connection.recv(4096).split(b"\n")[0])["code"] == "too-long"
    serves(daemon.settings)


def test_client_that_never_reads_does_not_delay_others(daemon: Live, serves: Serves) -> None:
    with bounded(daemon):
        deaf = []
        for _ in range(20):
            connection = dial(daemon.settings, HELLO)
            connection.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                while True:
                    connection.sendall(b'{"type":"status"}\n' * 200)
            deaf.append(connection)
        serves(daemon.settings, 3.0)  # the daemon still works on the requests
        for connection in deaf:
            connection.close()


def test_requests_of_a_gone_client_are_dropped(daemon: Live, serves: Serves) -> None:
    """Twenty clients send thousands of requests to a stopped daemon and exit; the daemon then serves a window."""
    with bounded(daemon):
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            for _ in range(20):
                with dial(daemon.settings, HELLO) as connection, contextlib.suppress(TimeoutError):
                    connection.settimeout(0.05)
                    while True:
                        connection.sendall(b'{"type":"status"}\n' * 200)
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        serves(daemon.settings)


# One thread sends requests at full speed, and another reads the answers, so that the daemon never waits.
ASKS = """
import socket, sys, threading
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
def read():
    while connection.recv(1 << 20):
        pass
threading.Thread(target=read, daemon=True).start()
connection.sendall(sys.argv[2].encode())
print("asking", flush=True)
while True:
    connection.sendall(sys.argv[3].encode() * 200)
"""


@pytest.mark.parametrize("question", ['{"type":"status"}', "no question"])
def test_flooding_client_takes_turns_with_others(daemon: Live, serves: Serves, question: str) -> None:
    command = [sys.executable, "-c", ASKS, str(daemon.settings.socket), HELLO.decode(), question + "\n"]
    with bounded(daemon), contextlib.ExitStack() as stack:
        for _ in range(2):
            asking = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
            stack.callback(asking.kill)
            assert asking.stdout is not None
            assert asking.stdout.readline() == b"asking\n"
        for _ in range(5):
            serves(daemon.settings)


def test_hostile_clients_leave_no_connection_or_error(daemon: Live) -> None:
    with connect(daemon.settings) as client:
        assert client.status()["clients_count"] == 1
    assert "Traceback" not in daemon.log.read_text()
    assert "ERROR" not in daemon.log.read_text()
