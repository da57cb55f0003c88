"""Tests of the client with endless, long and late answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from gpuwatch.client.connection import Client
from gpuwatch.config import settings
from gpuwatch.errors import DaemonError
from gpuwatch.wire import messages
from gpuwatch.wire.peer import ANSWER_S

SETTINGS = settings.load({"source": "simulated", "socket": "/nowhere"}, environment={"HOME": "/"})
WELCOME = messages.encode(
    messages.Welcome(protocol=1, version="0", source="simulated", simulated=True, state="/", pid=1, boot_id="b")
)
DRIP_S = 0.1
DRIPS_COUNT = (
    120  # 12 s, longer than any deadline below: a client that waits for the whole answer gets the end of the connection instead
)
PIECE = b"x" * (1 << 20)


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket, threading.Event], None]) -> Iterator[socket.socket]:
    """Yield a connection whose other end runs ``answer`` until the end of the test."""
    ours, theirs = socket.socketpair()
    over = threading.Event()

    def serve() -> None:
        with theirs, contextlib.suppress(OSError):
            answer(theirs, over)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with ours:
            yield ours
    finally:
        over.set()
        thread.join()


def drip(connection: socket.socket, over: threading.Event) -> None:
    """Send one byte at a time, without an end of line."""
    for _ in range(DRIPS_COUNT):
        connection.sendall(b" ")
        if over.wait(DRIP_S):
            return


def greet_and_drip(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(WELCOME)
    drip(connection, over)


def greet_and_pour(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(WELCOME)
    for _ in range(4 * messages.ANSWER_BYTES // len(PIECE)):
        connection.sendall(PIECE)
        if over.is_set():
            return


def greet_and_answer_long(connection: socket.socket, over: threading.Event) -> None:
    """Send a greeting, then an answer just below the maximum, in pieces."""
    connection.sendall(WELCOME)
    connection.recv(4096)
    line = messages.encode(messages.StatusReply(facts={"padding": "x" * (messages.ANSWER_BYTES - 100)}))
    for begin in range(0, len(line), len(PIECE)):
        connection.sendall(line[begin : begin + len(PIECE)])
    over.wait()


def test_client_gives_up_a_slow_greeting_at_the_deadline() -> None:
    with answering(drip) as connection, pytest.raises(DaemonError, match="no answer from the daemon within") as caught:
        Client(connection, SETTINGS)
    assert caught.value.code == "silent"


def test_client_gives_up_a_slow_answer_at_the_deadline() -> None:
    said = f"no answer from the daemon within {ANSWER_S:g} s"
    with (
        answering(greet_and_drip) as connection,
        Client(connection, SETTINGS) as asking,
        pytest.raises(DaemonError, match=said) as caught,
    ):
        asking.status()
    assert caught.value.code == "silent"


def test_client_refuses_an_answer_without_an_end() -> None:
    with answering(greet_and_pour) as connection, Client(connection, SETTINGS) as asking:
        for _ in range(2):  # the next request does not continue with the rest
            with pytest.raises(DaemonError, match=f"at most {messages.ANSWER_BYTES} bytes") as caught:
                asking.status()
            assert caught.value.code == "bad-answer"


def test_client_reads_a_long_answer_completely() -> None:
    with answering(greet_and_answer_long) as connection, Client(connection, SETTINGS) as asking:
        assert len(asking.status()["padding"]) == messages.ANSWER_BYTES - 100


def test_late_answer_is_not_taken_for_the_next_answer() -> None:
    """After a timeout the client closes the connection, because a late answer could be another window's verdict."""
    asked_again = threading.Event()

    def late(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(WELCOME)
        asked_again.wait()
        connection.sendall(messages.encode(messages.JudgedReply(run="first", status="valid", why="", verdicts=[])))
        over.wait()

    with answering(late) as connection:
        greeted = Client(connection, SETTINGS)
        with pytest.raises(DaemonError, match="no answer"):
            greeted.verdicts("first", wait_s=0.2 - ANSWER_S)
        asked_again.set()
        with pytest.raises(DaemonError, match="went away"):
            greeted.verdicts("second", wait_s=1.0)
