"""A client's connection to the daemon; ``connect`` starts a daemon if none is running."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from annotate import __version__
from gpuwatch import clock
from gpuwatch.client.launch import START_S, start_daemon
from gpuwatch.config.settings import SYSTEM_SOCKET, Settings
from gpuwatch.errors import DaemonError
from gpuwatch.wire import messages, packed_times
from gpuwatch.wire.packed_times import PackedTimes
from gpuwatch.wire.peer import ANSWER_S, dial, dial_user_daemon, is_manager, list_sockets, peer_uid

if TYPE_CHECKING:
    from annotate.evidence import Timings

_Reply = TypeVar("_Reply", bound=messages.Message)
_Result = TypeVar("_Result")

VERDICT_S = 30.0  # the judge yields to benchmarks and to other load
GREETING_S = 2.0  # limit of each step of a greeting, which a window spends in the benchmark's time
FAILED_S = 30.0  # after a daemon failed, this process does not try again for this time
PIECE_BYTES = 1 << 16
ATTEMPTS_COUNT = 3  # the daemon after one that exits may exit too

_starting = threading.Lock()  # only one thread at a time starts a daemon
_failed: dict[Path, tuple[int, str]] = {}  # by socket: end of the pause in ns, and the error
_answering: set[int] = set()  # PIDs of daemons that answered; a service manager that holds a socket is not among them
_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close a forked child's sockets, so that the daemon notices the parent's end.  Renew the lock, which may stay held."""
    global _starting  # noqa: PLW0603 - one per process
    _starting = threading.Lock()
    for client in list(_clients):
        client.close()


os.register_at_fork(after_in_child=_close_in_child)


class Client:
    """One greeted connection.  ``meanwhile`` runs between the greeting and its answer.

    Raises DaemonError: when the daemon refuses, is silent or goes away, or its answer cannot be read; so does every request.
    """

    def __init__(
        self,
        connection: socket.socket,
        settings: Settings,
        *,
        protocol: int = messages.PROTOCOL,
        meanwhile: Callable[[], object] | None = None,
        any_source: bool = False,
        patience_s: float = ANSWER_S,
    ) -> None:
        self._connection = connection
        self._buffer = bytearray()
        _clients.add(self)
        self.pid = os.getpid()
        pid, _ = peer_uid(connection)
        patience_s = START_S if pid not in _answering and is_manager(pid) else patience_s
        hello = messages.Hello(
            protocol=protocol,
            version=__version__,
            source=None if any_source else settings.source,
            state=None if any_source or settings.origin("state") == "default" else str(settings.state),
        )
        try:
            with self._answering_within(patience_s) as until_ns:
                self._send(hello, until_ns)
            if meanwhile is not None:
                meanwhile()
            with self._answering_within(patience_s) as until_ns:
                self.welcome = self._decode(self._read_line(until_ns), messages.Welcome)
            _answering.add(self.welcome.pid)
        except BaseException:
            connection.close()
            raise

    def open(
        self,
        *,
        label: str | None = None,
        claim: str = "sustained",
        policy: dict[str, Any] | None = None,
        gpus: list[str] | None = None,
        parent: str | None = None,
        declared: dict[str, messages.FactValue] | None = None,
        thread: int = 0,
    ) -> messages.Opened:
        """Open a window for this process and its descendants."""
        request = messages.Open(claim, label, policy or {}, gpus, parent, declared or {}, thread)
        return self.exchange(request, messages.Opened)

    def end_window(self, run: str, begin_ns: int, end_ns: int) -> None:
        """Fix a window's interval; times and declared facts may follow until the window is closed."""
        self.exchange(messages.End(run=run, begin_ns=begin_ns, end_ns=end_ns), messages.TimesTaken)

    def times(self, run: str, times: Timings | PackedTimes) -> None:
        """Send times of iterations of a window not yet closed, in order."""
        for message in packed_times.messages(run, times):
            self.exchange(message, messages.TimesTaken)

    def send_spans(self, spans: messages.Spans) -> None:
        self.exchange(spans, messages.TimesTaken)

    def close_window(self, run: str, begin_ns: int, end_ns: int, declared: dict[str, messages.FactValue] | None = None) -> None:
        self.exchange(messages.Close(run=run, begin_ns=begin_ns, end_ns=end_ns, declared=declared or {}), messages.Closed)

    def verdicts(self, run: str, *, wait_s: float = VERDICT_S) -> messages.JudgedReply:
        """Wait for a window's verdicts; ``status`` is open, closing or judging if no verdict arrives in time."""
        return self.exchange(messages.AskVerdicts(run=run, wait_s=wait_s), messages.JudgedReply, patience_s=wait_s + ANSWER_S)

    def status(self) -> dict[str, Any]:
        return self.exchange(messages.AskStatus(), messages.StatusReply).facts

    def readings(self, since_ns: int = 0) -> messages.Readings:
        """Return the last readings of every GPU, and the windows; ``gpuwatch.view.live.of`` converts this answer to records."""
        return self.exchange(messages.AskReadings(since_ns=since_ns), messages.Readings)

    def leave(self, *, now: bool = False) -> None:
        """Request the daemon's exit; with ``now`` even with open windows.

        Raises DaemonError: when the daemon refuses, with code ``windows-open``, ``client-came`` or ``not-yours``.
        """
        self.exchange(messages.Leave(now=now), messages.Leaving)

    def close(self) -> None:
        # A program that closes all its descriptors, as daemons do, has closed this socket already.
        with contextlib.suppress(OSError):
            self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def exchange(self, request: messages.Message, expected: type[_Reply], *, patience_s: float = ANSWER_S) -> _Reply:
        """Send a request and return its answer."""
        with self._answering_within(patience_s) as until_ns:
            try:
                self._send(request, until_ns)
                line = self._read_line(until_ns)
            except messages.WireError:  # too long: the received part stays in the buffer, so the next answer fails too
                raise
            except BaseException:
                self.close()  # a late answer would be taken for the answer to the next request
                raise
            return self._decode(line, expected)

    def _send(self, request: messages.Message, until_ns: int) -> None:
        self._wait_until(until_ns)
        self._connection.sendall(messages.encode(request))  # the timeout covers the whole message

    def _wait_until(self, until_ns: int) -> None:
        """Limit the next call of the socket to the time left.  Raises TimeoutError: when no time is left."""
        left_ns = until_ns - clock.now_ns()
        if left_ns <= 0:
            raise TimeoutError
        self._connection.settimeout(left_ns / 1e9)

    @staticmethod
    def _decode(line: bytes, expected: type[_Reply]) -> _Reply:
        reply = messages.decode_reply(line)
        if isinstance(reply, messages.Refused):
            raise DaemonError(reply.message, reply.code)
        if not isinstance(reply, expected):
            raise DaemonError(f"expected {expected.__name__} from the daemon, found {type(reply).__name__}", "bad-answer")
        return reply

    @staticmethod
    @contextlib.contextmanager
    def _answering_within(patience_s: float) -> Iterator[int]:
        """Yield the block's deadline in ns, and convert errors of socket and protocol inside to DaemonError."""
        try:
            yield clock.now_ns() + int(patience_s * 1e9)
        except TimeoutError:
            raise DaemonError(f"no answer from the daemon within {patience_s:g} s", "silent") from None
        except OSError as error:
            raise DaemonError(f"the daemon went away ({error.strerror or error})", "gone") from error
        except messages.WireError as error:
            raise DaemonError(f"cannot read the daemon's answer: {error}", "bad-answer") from error

    def _read_line(self, until_ns: int) -> bytes:
        """Read the next line.  Raises TimeoutError, OSError, WireError: at the deadline, for a lost connection and a long line."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > messages.ANSWER_BYTES:
                raise messages.WireError(
                    "too-long", f"expected a line of at most {messages.ANSWER_BYTES} bytes, found a longer one"
                )
            self._wait_until(until_ns)
            piece = self._connection.recv(PIECE_BYTES)
            if not piece:
                raise ConnectionResetError(0, "connection closed")
            self._buffer += piece
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line


def connect(settings: Settings, *, start: bool = True, meanwhile: Callable[[], object] | None = None) -> Client:
    """Connect to the system's daemon (default settings only), else the user's; with ``start``, start the user's if none runs.

    ``meanwhile`` runs while a daemon starts or its first answer is pending, once for each daemon reached.
    Raises DaemonError, UsageError: when no daemon serves this client, and when the socket's folder cannot be used.
    """
    return connect_and(lambda _: None, settings, start=start, meanwhile=meanwhile)[0]


def connect_and(
    ask: Callable[[Client], _Result], settings: Settings, *, start: bool = True, meanwhile: Callable[[], object] | None = None
) -> tuple[Client, _Result]:
    """Return a client as ``connect`` does, and the result of ``ask``, which sends the first request.

    If the daemon exits between greeting and request, the next daemon gets both again.
    Raises DaemonError, UsageError: as ``connect``, and as ``ask``.
    """
    attempts_count = 0
    while True:
        attempts_count += 1
        client = None
        try:
            client = _attempt(settings, start, meanwhile)
            return client, ask(client)
        except BaseException as error:
            if client is not None:
                client.close()
            if attempts_count == ATTEMPTS_COUNT or not isinstance(error, DaemonError) or error.code != "gone":
                raise


def _attempt(settings: Settings, start: bool, meanwhile: Callable[[], object] | None) -> Client:  # noqa: FBT001 - as connect's
    """Connect once; for FAILED_S after a failed start or a silent daemon, repeat the error."""
    until_ns, why = _failed.get(settings.socket, (0, ""))
    if clock.now_ns() < until_ns:
        raise DaemonError(why, "unreachable")
    try:
        return _connect(settings, start, meanwhile)
    except DaemonError as error:
        if error.code in ("silent", "unreachable") and start:
            _failed[settings.socket] = (clock.now_ns() + int(FAILED_S * 1e9), str(error))
        raise


def connect_at(path: Path, settings: Settings) -> Client | None:
    """Connect to the daemon at this socket, with any source and store; return None if no daemon listens.

    Raises DaemonError: as ``dial``, and as ``Client``.
    """
    connection = dial(path)
    if connection is None:
        return None
    pid, _ = peer_uid(connection)
    try:
        return Client(connection, settings, any_source=True)
    except DaemonError as error:
        stops = f"; stop process {pid} with: kill {pid}" if pid and error.code == "silent" else ""
        raise DaemonError(f"{path}: {error}{stops}", error.code) from error


def connect_running(settings: Settings) -> Client | None:
    """Connect to the daemon at a socket of these settings, with any source and store; return None if no daemon is running.

    Raises DaemonError: as ``connect_at``.
    """
    return next((found for path in list_sockets(settings) if (found := connect_at(path, settings)) is not None), None)


def _connect(settings: Settings, start: bool, meanwhile: Callable[[], object] | None) -> Client:  # noqa: FBT001 - as connect's
    patience_s = GREETING_S if start else ANSWER_S  # a command that starts no daemon delays no benchmark
    for path in list_sockets(settings):
        try:
            connection = dial(path)
            if connection is not None:
                return Client(connection, settings, meanwhile=meanwhile, patience_s=patience_s)
        except DaemonError as error:
            # If the system daemon cannot serve this client, try the user's daemon.
            if path != SYSTEM_SOCKET or path == settings.socket or error.code not in ("unreachable", "silent", "busy", "gone"):
                raise
    if not start:
        raise DaemonError(f"no daemon answers at {settings.socket}; start one with: gpuwatch daemon", "unreachable")
    with _starting:
        if (connection := dial_user_daemon(settings)) is None:  # otherwise another thread has started it
            connection, meanwhile = start_daemon(settings, meanwhile or (lambda: None)), None
        return Client(connection, settings, meanwhile=meanwhile, patience_s=patience_s)
