"""Clients that say nothing, half a line, far too much, or never read: the others are served, and memory stays bounded."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import gpuwatch
from gpuwatch import clock, server, wire
from gpuwatch.client import connect
from gpuwatch.config import Settings
from tests.faults import stores
from tests.gpuwatch.live import Live, running

HELLO = wire.encode(wire.Hello(protocol=1, version="test"))
SERVED_S = 1.0  # a window opens within this, whoever else is there; alone it takes some 5 ms
MOST_GROWN_BYTES = 100 << 20


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with running(tmp_path_factory.mktemp("hostile")) as live:
        with gpuwatch.window("first", settings=live.settings) as w:  # what only the first window loads is loaded
            pass
        assert w.verdict
        yield live


def dial(settings: Settings, *lines: bytes) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(15)
    connection.connect(str(settings.socket))
    for line in lines:
        connection.sendall(line)
    return connection


def window_s(settings: Settings) -> float:
    begun_ns = clock.now_ns()
    with gpuwatch.window("beside", settings=settings) as w:
        pass
    assert w.run_id is not None, w.verdict.why
    return (clock.now_ns() - begun_ns) / 1e9


@contextlib.contextmanager
def bounded(live: Live) -> Iterator[None]:
    """Others are served meanwhile; memory grows by no more than it may, and no descriptor is left."""
    before_bytes, before_count = stores.memory_bytes(live.process.pid), stores.descriptors(live.process.pid)
    yield
    assert stores.memory_bytes(live.process.pid) - before_bytes < MOST_GROWN_BYTES
    for _ in range(100):
        if stores.descriptors(live.process.pid) <= before_count + 2:
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"{stores.descriptors(live.process.pid)} descriptors, {before_count} before")


def test_five_hundred_that_say_nothing_hold_up_nobody(daemon: Live) -> None:
    with bounded(daemon):
        silent = [dial(daemon.settings) for _ in range(500)]
        assert window_s(daemon.settings) < SERVED_S
        for connection in silent:
            connection.close()


@pytest.mark.soak
def test_who_says_nothing_is_closed_after_a_while(daemon: Live) -> None:
    with bounded(daemon):
        silent = [dial(daemon.settings) for _ in range(500)]
        silent[0].settimeout(server.GREETING_S + 5)
        assert silent[0].recv(1) == b""  # closed by the daemon, which waits no longer
        assert window_s(daemon.settings) < SERVED_S
        for connection in silent:
            connection.close()


def test_half_lines_before_the_greeting_hold_little(daemon: Live) -> None:
    with bounded(daemon):
        half = [dial(daemon.settings, b'{"type":"hello","version":"' + b"x" * 30_000) for _ in range(500)]
        assert window_s(daemon.settings) < SERVED_S
        for connection in half:
            connection.close()


def test_half_lines_after_it_are_bounded_together(daemon: Live) -> None:
    """Two hundred of nearly a megabyte would be more than all may hold: the last are refused, and windows go on."""
    with bounded(daemon):
        half = []
        for _ in range(200):
            connection = dial(daemon.settings, HELLO)
            connection.recv(4096)
            connection.settimeout(0.2)
            with contextlib.suppress(OSError):  # refused while it speaks
                connection.sendall(b"x" * 1_000_000)
            half.append(connection)
        assert stores.memory_bytes(daemon.process.pid) < 1 << 30
        for connection in half:
            connection.close()
        assert window_s(daemon.settings) < SERVED_S


def test_ten_megabytes_without_an_end_are_refused(daemon: Live) -> None:
    with bounded(daemon), dial(daemon.settings, HELLO) as connection:
        connection.recv(4096)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(b"x" * (10 << 20))
        assert json.loads(connection.recv(4096).split(b"\n")[0])["code"] == "too-long"
    assert window_s(daemon.settings) < SERVED_S


def test_who_never_reads_its_answers_holds_up_nobody(daemon: Live) -> None:
    with bounded(daemon):
        deaf = []
        for _ in range(20):
            connection = dial(daemon.settings, HELLO)
            connection.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                while True:
                    connection.sendall(b'{"type":"status"}\n' * 200)
            deaf.append(connection)
        assert window_s(daemon.settings) < 3 * SERVED_S  # the daemon still works on what was asked
        for connection in deaf:
            connection.close()


def test_who_asked_much_and_went_is_answered_no_more(daemon: Live) -> None:
    """Twenty put in thousands of questions each while the daemon stands still, and are gone when it goes on."""
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
        assert window_s(daemon.settings) < SERVED_S


# Asks as fast as it can, and another thread reads the answers, so that the daemon never has to wait for it.
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
def test_who_asks_without_waiting_for_answers_takes_turns(daemon: Live, question: str) -> None:
    command = [sys.executable, "-c", ASKS, str(daemon.settings.socket), HELLO.decode(), question + "\n"]
    with bounded(daemon), contextlib.ExitStack() as stack:
        for _ in range(2):
            asking = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
            stack.callback(asking.kill)
            assert asking.stdout is not None
            assert asking.stdout.readline() == b"asking\n"
        for _ in range(5):
            assert window_s(daemon.settings) < SERVED_S


def test_after_all_of_them_nothing_is_left(daemon: Live) -> None:
    with connect(daemon.settings) as client:
        assert client.status()["clients_count"] == 1
    assert "Traceback" not in daemon.log.read_text()
    assert "ERROR" not in daemon.log.read_text()
