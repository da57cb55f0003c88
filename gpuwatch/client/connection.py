"""The other end of the daemon's socket: finds the daemon, starts the user's where there is none, and asks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from annotate import __version__
from gpuwatch import clock
from gpuwatch.config.settings import SYSTEM_SOCKET, Settings, ensure_socket_folder
from gpuwatch.errors import DaemonError
from gpuwatch.wire import messages, store_owner

if TYPE_CHECKING:
    from annotate.evidence import Timings

_Reply = TypeVar("_Reply", bound=messages.Message)
_Result = TypeVar("_Result")

VERDICT_S = 30.0  # the judge gives way to benchmarks, and to whatever else keeps the processors busy
ANSWER_S = 5.0  # a daemon that says nothing for so long is treated as gone
GREETING_S = 1.0  # a window waits for this in the benchmark's own time
FAILED_S = 30.0  # how long a daemon that failed is not tried again by this process
YIELDED_S = 3.0  # another window's daemon that does not answer by then may have failed
PIECE_BYTES = 1 << 16
START_S = 15.0  # a cold start imports numpy and scipy and attaches to every GPU
ATTEMPTS_COUNT = 3  # at daemons that leave: one that a window starts meanwhile makes room in its turn

# What a benchmark's environment may hold that must not reach the daemon: injected profilers, device masks, and what makes
# Python many times slower.
_NOT_INHERITED = (
    "LD_AUDIT",
    "LD_PRELOAD",
    "CUDA_INJECTION64_PATH",
    "NVTX_INJECTION64_PATH",
    "CUDA_VISIBLE_DEVICES",
    "NOTIFY_SOCKET",
    "LISTEN_FDS",
    "PYTHONASYNCIODEBUG",
    "PYTHONDEBUG",
    "PYTHONDEVMODE",
    "PYTHONINSPECT",
    "PYTHONMALLOC",
    "PYTHONPROFILEIMPORTTIME",
    "PYTHONTRACEMALLOC",
    "PYTHONVERBOSE",
    "PYTHONWARNINGS",
    "COVERAGE_PROCESS_START",
)

_starting = threading.Lock()  # the windows of many threads start one daemon
_failed: dict[Path, tuple[int, str]] = {}  # by socket: until when, and why
_answering: set[int] = set()  # pids at the other ends: none of them is a service manager that holds a socket
_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _close_in_child() -> None:
    """A forked child lets go of its copies of the sockets: the daemon tells a dead benchmark by the closed connection.

    And of the lock, which the thread that holds it will not release here: that one is not in the child.
    """
    global _starting  # noqa: PLW0603 - the child's own
    _starting = threading.Lock()
    for client in list(_clients):
        client.close()


os.register_at_fork(after_in_child=_close_in_child)


class Client:
    """One greeted connection.  Every method raises DaemonError when the daemon refuses, is silent or goes away.

    ``meanwhile`` is done between the greeting and its answer, instead of waiting for it.
    """

    def __init__(
        self,
        connection: socket.socket,
        settings: Settings,
        *,
        protocol: int = messages.PROTOCOL,
        meanwhile: Callable[[], object] | None = None,
        any_source: bool = False,
    ) -> None:
        self._connection = connection
        self._buffer = bytearray()
        _clients.add(self)
        self.pid = os.getpid()
        patience_s = START_S if _is_starting(connection) else GREETING_S
        state = str(settings.state) if settings.origin("state") != "default" else None
        source = None if any_source else settings.source
        hello = messages.Hello(protocol=protocol, version=__version__, source=source, state=None if any_source else state)
        try:
            with self._explained(patience_s) as until_ns:
                self._say(hello, until_ns)
            if meanwhile is not None:
                meanwhile()
            with self._explained(patience_s) as until_ns:
                self.welcome = self._understood(self._line(until_ns), messages.Welcome)
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
        told: dict[str, messages.FactValue] | None = None,
    ) -> messages.Opened:
        """Begin a window around the process at this end and its descendants."""
        request = messages.Open(claim=claim, label=label, policy=policy or {}, gpus=gpus, parent=parent, told=told or {})
        return self._ask(request, messages.Opened)

    def end_window(self, run: str, begin_ns: int, end_ns: int) -> None:
        """Settle a window's interval; what there is to tell may take its time, until the window is closed."""
        self._ask(messages.End(run=run, begin_ns=begin_ns, end_ns=end_ns), messages.TimesTaken)

    def times(self, run: str, timings: Timings) -> None:
        """Hand over times of iterations of a window not yet closed; later ones follow earlier ones."""
        from gpuwatch.wire import timings as iterations  # numpy, which a window without times does without

        for message in iterations.messages(run, timings):
            self._ask(message, messages.TimesTaken)

    def close_window(self, run: str, begin_ns: int, end_ns: int, told: dict[str, messages.FactValue] | None = None) -> None:
        self._ask(messages.Close(run=run, begin_ns=begin_ns, end_ns=end_ns, told=told or {}), messages.Closed)

    def verdicts(self, run: str, *, wait_s: float = VERDICT_S) -> messages.JudgedReply:
        """Its ``status`` is open or judging where the verdict did not come in time."""
        return self._ask(messages.AskVerdicts(run=run, wait_s=wait_s), messages.JudgedReply, patience_s=wait_s + ANSWER_S)

    def status(self) -> dict[str, Any]:
        return self._ask(messages.AskStatus(), messages.StatusReply).facts

    def readings(self, since_ns: int = 0) -> messages.Readings:
        """What every GPU said last and the windows; ``live.of`` makes records of it."""
        return self._ask(messages.AskReadings(since_ns=since_ns), messages.Readings)

    def leave(self, *, now: bool = False) -> None:
        """Have the daemon end itself; ``now`` also with windows in hand.

        Raises DaemonError: when it refuses, with code ``windows-open``, ``client-came`` or ``not-yours``.
        """
        self._ask(messages.Leave(now=now), messages.Leaving)

    def close(self) -> None:
        # A program that closed every descriptor of its process, as daemons do, closed this one too.
        with contextlib.suppress(OSError):
            self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: messages.Message, expected: type[_Reply], *, patience_s: float = ANSWER_S) -> _Reply:
        with self._explained(patience_s) as until_ns:
            try:
                self._say(request, until_ns)
                line = self._line(until_ns)
            except messages.WireError:  # too long: what came of it stays, and refuses the next answer too
                raise
            except BaseException:
                self.close()  # its answer may still come, and the next question would take it for its own
                raise
            return self._understood(line, expected)

    def _say(self, request: messages.Message, until_ns: int) -> None:
        self._wait_until(until_ns)
        self._connection.sendall(messages.encode(request))  # its timeout is that of all of it

    def _wait_until(self, until_ns: int) -> None:
        """Give the next call of the socket what is left of the time.  Raises TimeoutError."""
        left_ns = until_ns - clock.now_ns()
        if left_ns <= 0:
            raise TimeoutError
        self._connection.settimeout(left_ns / 1e9)

    @staticmethod
    def _understood(line: bytes, expected: type[_Reply]) -> _Reply:
        reply = messages.decode_reply(line)
        if isinstance(reply, messages.Refused):
            raise DaemonError(reply.message, reply.code)
        if not isinstance(reply, expected):
            raise DaemonError(f"expected {expected.__name__} of the daemon, found {type(reply).__name__}", "bad-answer")
        return reply

    @staticmethod
    @contextlib.contextmanager
    def _explained(patience_s: float) -> Iterator[int]:
        """Give the deadline of what is done inside, and raise DaemonError for what goes wrong there."""
        try:
            yield clock.now_ns() + int(patience_s * 1e9)
        except TimeoutError:
            raise DaemonError(f"the daemon gave no answer within {patience_s:g} s", "silent") from None
        except OSError as error:
            raise DaemonError(f"the daemon went away ({error.strerror or error})", "gone") from error
        except messages.WireError as error:
            raise DaemonError(f"the daemon's answer is not understood: {error}", "bad-answer") from error

    def _line(self, until_ns: int) -> bytes:
        """Read the next line.  Raises TimeoutError: at the deadline, however much has come.  Raises WireError: when too long."""
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


def say(line: str) -> None:
    """One line on standard error, if there is one: a full disk or a closed stream is no reason to lose a window."""
    with contextlib.suppress(Exception):  # a stream that a program put there may raise anything
        sys.stderr.write(f"gpuwatch: {line}\n")


def peer_uid(connection: socket.socket) -> tuple[int, int]:
    """(pid, uid) of the process at the other end, by the kernel's word; the pid is 0 if it is not visible from here."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", credentials)
    return pid, uid


def _is_starting(connection: socket.socket) -> bool:
    """Whether a service manager holds the socket for a daemon that starts right now: who listened last is it, or is dead."""
    pid, _ = peer_uid(connection)
    if not pid or pid in _answering:  # not visible from here, or a daemon that has answered
        return False
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "systemd\n"
    except FileNotFoundError:
        return Path("/proc/self").exists()
    except OSError:
        return False


def connect(settings: Settings, *, start: bool = True, meanwhile: Callable[[], object] | None = None) -> Client:
    """A client of the running daemon: the system's, else the user's; with neither, the user's is started.

    ``meanwhile`` is done while a daemon's first answer is on its way, once for each daemon that was reached.
    Raises DaemonError with one line that says what to do.
    """
    return _retry_where_it_left(lambda: _attempt(settings, start, meanwhile))


def connect_and_open(
    settings: Settings, opening: Callable[[Client], messages.Opened], *, meanwhile: Callable[[], object] | None = None
) -> tuple[Client, messages.Opened]:
    """Return a client and the window that ``opening`` begins with it.

    A daemon may leave between its greeting and the opening: the daemon that takes its place is then given the window.
    Raises DaemonError: as ``connect``, and as ``opening``.
    """

    def attempt() -> tuple[Client, messages.Opened]:
        client = _attempt(settings, True, meanwhile)  # noqa: FBT003 - as connect's
        try:
            return client, opening(client)
        except BaseException:
            client.close()
            raise

    return _retry_where_it_left(attempt)


def _retry_where_it_left(attempt: Callable[[], _Result]) -> _Result:
    """Return the result of an attempt, made again where the daemon that it reached went away.  Raises DaemonError."""
    for _ in range(ATTEMPTS_COUNT - 1):
        try:
            return attempt()
        except DaemonError as error:
            if error.code != "gone":
                raise
    return attempt()


def _attempt(settings: Settings, start: bool, meanwhile: Callable[[], object] | None) -> Client:  # noqa: FBT001 - as connect's
    until_ns, why = _failed.get(settings.socket, (0, ""))
    if clock.now_ns() < until_ns:
        raise DaemonError(why, "unreachable")
    try:
        return _connect(settings, start, meanwhile)
    except DaemonError as error:
        if error.code in ("silent", "unreachable") and start:
            _failed[settings.socket] = (clock.now_ns() + int(FAILED_S * 1e9), str(error))
        raise


def at(path: Path, settings: Settings) -> Client | None:
    """A client of the daemon at this very socket, whatever it watches and keeps; None where none listens.

    Raises DaemonError: when it is not trusted, refuses or is silent.
    """
    connection = _dial(path)
    if connection is None:
        return None
    pid, _ = peer_uid(connection)
    try:
        return Client(connection, settings, any_source=True)
    except DaemonError as error:
        stops = f"; stop process {pid} with: kill {pid}" if pid and error.code == "silent" else ""
        raise DaemonError(f"{path}: {error}{stops}", error.code) from error


def running(settings: Settings) -> Client | None:
    """A client of the daemon that these settings lead to, whatever it watches and keeps; None where none runs.

    Raises DaemonError: as ``at``.
    """
    return next((found for path in _candidates(settings) if (found := at(path, settings)) is not None), None)


def _connect(settings: Settings, start: bool, meanwhile: Callable[[], object] | None) -> Client:  # noqa: FBT001 - as connect's
    found = _greeted(settings, meanwhile)
    if found is not None:
        return found
    if not start:
        raise DaemonError(f"no daemon answers at {settings.socket}; start one with: gpuwatch daemon", "unreachable")
    with _starting:
        connection = _dial_own(settings)  # another thread was quicker
        return Client(connection or _start(settings), settings, meanwhile=meanwhile)


def _greeted(settings: Settings, meanwhile: Callable[[], object] | None) -> Client | None:
    """A client of the first daemon that serves us; None where none runs."""
    for path in _candidates(settings):
        try:
            connection = _dial(path)
            if connection is not None:
                return Client(connection, settings, meanwhile=meanwhile)
        except DaemonError as error:
            # A system daemon that cannot serve us must not keep us from our own.
            if path != SYSTEM_SOCKET or path == settings.socket or error.code not in ("unreachable", "silent", "busy", "gone"):
                raise
    return None


def _candidates(settings: Settings) -> Iterator[Path]:
    if settings.origin("socket") == "default" and settings.origin("state") == "default" and settings.source == "auto":
        yield SYSTEM_SOCKET
    yield from _own_sockets(settings)


def _own_sockets(settings: Settings) -> Iterator[Path]:
    """Yield where the user's daemon may listen: the socket of the settings, else the one that the owner of the store recorded."""
    yield settings.socket
    recorded = store_owner.recorded_socket(settings.state) if settings.origin("socket") == "default" else None
    if recorded is not None and recorded != settings.socket:
        yield recorded


def _dial_own(settings: Settings) -> socket.socket | None:
    return next((found for path in _own_sockets(settings) if (found := _dial(path)) is not None), None)


def _dial(path: Path) -> socket.socket | None:
    connection = _clear_of_streams(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
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
        raise DaemonError(f"{path}: {_closed(path, error)}", "unreachable") from error
    # Anyone may listen at a path in a shared folder: trust ourselves, root, and whoever owns the system's socket.
    if uid not in (os.getuid(), 0) and not (path == SYSTEM_SOCKET and uid == owner):
        connection.close()
        raise DaemonError(f"{path}: expected a daemon of uid {os.getuid()} or root, found uid {uid}; remove it", "untrusted")
    return connection


def _clear_of_streams(connection: socket.socket) -> socket.socket:
    """Move a socket off the numbers of closed standard streams: what a library prints there must not reach the daemon."""
    if connection.fileno() > 2:
        return connection
    with connection:
        return socket.socket(fileno=fcntl.fcntl(connection, fcntl.F_DUPFD_CLOEXEC, 3))


def _closed(path: Path, error: OSError) -> str:
    """Why a socket takes no connection of ours, and what serves us."""
    why = error.strerror or str(error)
    if isinstance(error, PermissionError):
        with contextlib.suppress(OSError):
            owner = path.stat().st_uid
            return f"{why}: the daemon there serves uid {owner} only; serve every user with: gpuwatch daemon --system"
    return why


def _start(settings: Settings) -> socket.socket:
    """Start the user's daemon in a session of its own and wait until it answers."""
    ensure_socket_folder(settings.socket)
    say(f"starting the user's daemon (leaves {settings.idle_exit_s:g} s after its last client)")
    with _Words(settings.log) as words:
        return _started(settings, words)


def _started(settings: Settings, words: _Words) -> socket.socket:
    child = _spawned(settings, words)
    now_ns = clock.now_ns()
    deadline_ns, again_ns, failed = now_ns + int(START_S * 1e9), now_ns + int(YIELDED_S * 1e9), False
    pause = threading.Event()
    while clock.now_ns() < deadline_ns:
        # The child ends as soon as the daemon it leaves behind answers or fails: the benchmark has no child of ours to wait
        # for, to count or to kill.
        ended = child.poll()
        connection = _dial_own(settings) if ended is not None else None
        if connection is not None:
            return connection
        # It may have left the field to the daemon of another window, and that one failed; what fails once is tried once more.
        if (ended and not _is_owner_starting(settings)) or (ended == 0 and clock.now_ns() > again_ns):
            if ended and failed:
                raise DaemonError(f"the daemon stopped at start: {words.last()}", "unreachable")
            failed = failed or bool(ended)
            again_ns = clock.now_ns() + int(YIELDED_S * 1e9)
            child = _spawned(settings, words)
        pause.wait(0.02)
    if child.poll() is None:
        child.kill()
        child.wait()
    raise DaemonError(f"the daemon did not answer within {START_S:g} s: {words.last()}", "unreachable")


def _is_owner_starting(settings: Settings) -> bool:
    """Return whether a daemon that an environment with another default socket started has the store and no socket yet."""
    return (
        settings.origin("socket") == "default"
        and store_owner.is_alive(settings.state)
        and store_owner.recorded_socket(settings.state) is None
    )


def _spawned(settings: Settings, words: _Words) -> subprocess.Popen[bytes]:
    if not sys.executable:  # an embedded interpreter may not know one
        raise DaemonError(
            "expected Python's program in sys.executable, found none; start a daemon with: gpuwatch daemon", "unreachable"
        )
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    # numpy's library for matrices would start a thread a processor, before the daemon leaves its parent and in its worker
    # again; neither multiplies any, and where threads are short the library ends the process.
    environment = inherited | settings.variables() | {"OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", "gpuwatch", *settings.flags(), "daemon", "--on-demand"]
    try:
        # Its own session and no inherited streams: a pipe, a terminal or a Ctrl-C of the benchmark does not reach it.
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=words.file,
            start_new_session=True, close_fds=True, cwd="/", env=environment,
        )  # fmt: skip
    except OSError as error:
        raise DaemonError(f"the daemon could not be started: {error.strerror or error}", "unreachable") from error


class _Words:
    """What a daemon that we start says: in memory until it has its log, which may still be that of the one before."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._log_before = self._looked()
        self.file = subprocess.DEVNULL
        with contextlib.suppress(OSError):  # a filter of system calls may refuse it
            self.file = os.memfd_create("gpuwatch-start")

    def __enter__(self) -> _Words:
        return self

    def __exit__(self, *_: object) -> None:
        if self.file >= 0:
            os.close(self.file)

    def last(self) -> str:
        """The last line that is of this start."""
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").strip().splitlines()
            if lines and self._looked() != self._log_before:
                if crashed := [line for line in lines if line.startswith("Fatal Python error: ")]:  # where follows on many
                    return crashed[-1]
                # A line of the log is date, time, level and module before the colon, and what was said after it.
                return lines[-1].partition(": ")[2] or lines[-1]
        with contextlib.suppress(OSError):
            said = os.pread(self.file, 1 << 20, 0).decode(errors="replace").strip().splitlines() if self.file >= 0 else []
            if said:
                return said[-1].removeprefix("gpuwatch: ")
        return f"see {self._log}" if self._looked() else "it said nothing"

    def _looked(self) -> tuple[int, int, int] | None:
        try:
            found = self._log.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns
