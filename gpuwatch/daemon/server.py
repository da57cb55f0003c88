"""The daemon's socket: its connections, their users, and the dispatch of each message."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuwatch import clock
from gpuwatch.config.settings import ensure_socket_folder
from gpuwatch.daemon.greeting import Greeting, in_protocol
from gpuwatch.daemon.held_marks import HeldMarks
from gpuwatch.daemon.line_reader import PIECE_BYTES, LineReader, UnfinishedLines, receive, send
from gpuwatch.daemon.socket_place import SocketPlace
from gpuwatch.daemon.tracked_window import is_untrusted
from gpuwatch.daemon.window_limits import check_declared
from gpuwatch.daemon.windows import Windows
from gpuwatch.errors import StoreError, UsageError
from gpuwatch.wire import messages
from gpuwatch.wire.peer import peer_uid

_log = logging.getLogger("gpuwatch.daemon.server")

GREETING_S = 10.0  # a connection without a greeting for this long is closed
GREETING_BYTES = 1 << 15  # the longest possible path, with room to spare
BACKLOG_COUNT, ACCEPTED_COUNT = 1024, 64  # connections queued by the kernel; connections that asyncio accepts in one turn
CONNECTIONS_COUNT = 4096
USER_CONNECTIONS_COUNT = 1024  # per user of a shared daemon, so that other users are served too
VERDICTS_S = 600.0  # the longest wait for a verdict that a client may request
WINDOWS_COUNT = 256  # open windows of a connection; gpuwatch.window() uses a connection for each


@dataclass(frozen=True, slots=True)
class Answers:
    """Functions that answer requests about the daemon itself."""

    greeting: Callable[[], Greeting]
    status: Callable[[], dict[str, Any]]
    readings: Callable[[int, int], messages.Readings]  # arguments: the user id, and the oldest time in ns
    leave: Callable[[messages.Leave], messages.Reply]


@dataclass(slots=True)
class _Peer:
    pid: int
    uid: int
    protocol: int = messages.PROTOCOL
    runs: set[str] = field(default_factory=set)


class Server:
    """A listener that passes requests to the windows.  A closed connection ends the windows opened on it."""

    def __init__(self, windows: Windows, answers: Answers, *, is_shared: bool) -> None:
        self._windows = windows
        self._marks = HeldMarks(windows)
        self._untrusted: set[str] = set()  # runs of untrusted code, on connections that are open now
        self._answers = answers
        self._is_shared = is_shared  # a system daemon serves every local user, each with separate windows
        self._greeted_ns: dict[asyncio.Task[None] | None, int] = {}  # by connection
        self._server: asyncio.Server | None = None
        self._place: SocketPlace | None = None  # only for a socket that this daemon bound and may remove
        self._lost: str | None = None  # the reason why clients cannot find this daemon
        self._is_leaving = False
        self._connections: set[asyncio.Task[None]] = set()
        self._by_uid: Counter[int] = Counter()
        self._unfinished_lines = UnfinishedLines()

    @property
    def client_count(self) -> int:
        return len(self._connections)

    def last_greeted_ns(self) -> int:
        """Return the time of the last welcome on another connection, or 0: that client may be about to open a window."""
        asking = asyncio.current_task()
        return max((at_ns for task, at_ns in self._greeted_ns.items() if task is not asking), default=0)

    async def listen(self, path: Path) -> None:
        """Bind the socket and serve.

        Raises UsageError: when the path cannot hold a socket.
        """
        self._place = SocketPlace(path, is_shared=self._is_shared)
        await self.serve(self._place.bind())

    async def reappear(self) -> None:
        """Listen again if the socket was removed: clients could not find it, and the lock keeps other daemons out."""
        place = self._place
        if place is None:
            return
        try:
            if place.is_there():
                return
            ensure_socket_folder(place.path)
            if self._server is not None:
                self._server.close()  # open connections continue
            await self.serve(place.bind())
        except (UsageError, OSError) as error:
            if self._lost is None:
                _log.error("%s", error)
            self._lost = str(error)
        else:
            _log.warning("%s: the socket was removed; listening there again", place.path)
            self._lost = None

    async def serve(self, listener: socket.socket) -> None:
        """Serve a socket that this process or a service manager bound, with the connections already queued."""
        # By default, Python 3.13 removes the path of a closed listener; 3.12 lacks this option.
        cleanup: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        listener.setblocking(False)  # noqa: FBT003 - the standard library's signature
        # asyncio accepts up to ``backlog`` connections in one turn.  Without free descriptors, it logs each failed attempt,
        # every second.  The kernel's own queue, set below, is longer.
        self._server = await asyncio.start_unix_server(
            self._connected, sock=listener, limit=PIECE_BYTES, backlog=ACCEPTED_COUNT, **cleanup
        )
        listener.listen(BACKLOG_COUNT)

    async def close(self) -> None:
        self.stop_listening()
        for connection in self._connections:
            connection.cancel()

    def stop_listening(self) -> None:
        """Accept no more connections and windows; open connections continue."""
        self._is_leaving = True
        if self._server is not None:
            self._server.close()
        if self._place is not None:
            self._place.remove()
            self._place = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:  # asyncio runs every connection in a task
            return
        pid, uid = peer_uid(writer.get_extra_info("socket"))
        peer = _Peer(pid, uid)
        lines = LineReader(reader, self._unfinished_lines, uid)
        self._connections.add(task)
        self._by_uid[uid] += 1
        try:
            if len(self._connections) > CONNECTIONS_COUNT:
                await _turn_away(
                    reader, writer, "busy", f"expected at most {CONNECTIONS_COUNT} connections, found more; close some"
                )
            elif self._is_shared and uid and self._by_uid[uid] > USER_CONNECTIONS_COUNT:
                why = f"expected at most {USER_CONNECTIONS_COUNT} connections of your user, found more; close some"
                await _turn_away(reader, writer, "busy", why)
            elif not self._is_shared and uid not in (os.getuid(), 0):
                await _turn_away(
                    reader, writer, "not-yours", f"this daemon serves uid {os.getuid()}, not {uid}; start your own daemon"
                )
            elif await self._greet(peer, lines, writer):
                while await self._serve(peer, lines, writer):
                    pass
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client went away, or the daemon stops
        except MemoryError:
            _log.error("out of memory: the connection of process %d is closed", pid)
            writer.transport.abort()
        except TimeoutError:  # the client is silent or does not read; the rest of the answer has no reader
            writer.transport.abort()
        finally:
            lines.close()
            self._connections.discard(task)
            self._greeted_ns.pop(task, None)
            self._by_uid -= Counter((uid,))  # forget users without connections
            writer.close()
            self._untrusted -= peer.runs
            for run in peer.runs:
                self._windows.abandon(run)

    async def _greet(self, peer: _Peer, lines: LineReader, writer: asyncio.StreamWriter) -> bool:
        request = await asyncio.wait_for(receive(lines, writer, GREETING_BYTES), GREETING_S)
        if request is None:
            return False
        if not isinstance(request, messages.Hello):
            await send(writer, messages.Refused("bad-message", "expected hello as the first message"))
            return False
        answer = self._answers.greeting().answer(request)
        await send(writer, answer)
        if isinstance(answer, messages.Refused):
            return False
        peer.protocol = answer.protocol
        self._greeted_ns[asyncio.current_task()] = clock.now_ns()
        return True

    async def _serve(self, peer: _Peer, lines: LineReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; return False when the connection must be closed."""
        request = await receive(lines, writer)
        if request is None:
            return False
        try:
            self._check_end(peer, request)
            reply = (
                await self._verdicts(peer, lines, request)
                if isinstance(request, messages.AskVerdicts)
                else self._answer(peer, request)
            )
        except messages.WireError as error:
            await send(writer, messages.refused(error.code, error))
            return False
        except UsageError as error:
            reply = messages.refused(error.code, error)
        except StoreError as error:
            reply = messages.refused("store", error)
        await send(writer, reply)
        return True

    def _answer(self, peer: _Peer, request: messages.Request) -> messages.Reply:
        match request:
            case messages.Open() if self._is_leaving:
                raise ConnectionResetError  # the client then connects to the next daemon
            case messages.OpenMark() | messages.CloseMark():
                check_declared(request)
                return self._marks.answer(request, pid=peer.pid, uid=peer.uid)
            case messages.Open():
                if len(peer.runs) >= WINDOWS_COUNT:
                    raise UsageError(f"expected at most {WINDOWS_COUNT} open windows per connection, found more; close some")
                check_declared(request)
                run, warning = self._windows.open(request, pid=peer.pid, uid=peer.uid)
                peer.runs.add(run.id)
                if is_untrusted(run.declared):
                    self._untrusted.add(run.id)
                return messages.Opened(run=run.id, opened_ns=run.begin_ns, warning=warning)
            case messages.End():
                self._windows.end(request.run, uid=peer.uid, begin_ns=request.begin_ns, end_ns=request.end_ns)
                return messages.TimesTaken(run=request.run)
            case messages.Times() | messages.Spans():
                self._windows.add_times(request, uid=peer.uid)
                return messages.TimesTaken(run=request.run)
            case messages.Close():
                check_declared(request)
                self._windows.close(request, uid=peer.uid)
                peer.runs.discard(request.run)
                self._untrusted.discard(request.run)
                return messages.Closed(run=request.run)
            case messages.AskStatus():
                return messages.StatusReply(facts=self._answers.status())
            case messages.AskReadings():
                return self._answers.readings(peer.uid, request.since_ns)
            case messages.Leave():
                if peer.uid not in (os.getuid(), 0):
                    return messages.Refused(
                        "not-yours", f"expected uid {os.getuid()} or root to stop this daemon, found uid {peer.uid}"
                    )
                return self._answers.leave(request)
            case _:
                return messages.Refused("bad-message", "expected hello only as the first message, found a second one")

    def _check_end(self, peer: _Peer, request: messages.Request) -> None:
        """Raise UsageError for an untrusted window that another connection opened, and for a window held by a mark."""
        if not isinstance(request, messages.End | messages.Times | messages.Spans | messages.Close):
            return
        if request.run in peer.runs:
            return
        if self._marks.holds(request.run):
            raise UsageError(f"window {request.run}: expected its end by its mark, found a message; use `gpuwatch mark end`")
        if request.run in self._untrusted:
            here = "expected data and end from the connection that opened it, found another connection"
            raise UsageError(f"untrusted window {request.run}: {here}; let the opening process send them")

    async def _verdicts(self, peer: _Peer, lines: LineReader, request: messages.AskVerdicts) -> messages.Reply:
        """Wait for the verdicts of a window, but no longer than the client stays connected.

        Raises ConnectionResetError, WireError: when the client went away or sent too much.
        Raises UsageError: for an open window of this connection, and for an unknown one.
        """
        if request.run in peer.runs and self._windows.is_open(request.run):
            raise UsageError(f"window {request.run}: expected it closed, found it open on this connection; close it first")
        wait_s = min(max(request.wait_s, 0.0), VERDICTS_S)
        judged = asyncio.ensure_future(self._windows.verdicts(request.run, uid=peer.uid, wait_s=wait_s))
        gone = asyncio.ensure_future(lines.gone())
        try:
            await asyncio.wait((judged, gone), return_when=asyncio.FIRST_COMPLETED)
            if not judged.done():
                gone.result()
                raise ConnectionResetError
            run = judged.result()
        finally:
            judged.cancel()
            gone.cancel()
            await asyncio.gather(judged, gone, return_exceptions=True)
        verdicts = in_protocol(peer.protocol, run.verdicts)
        return messages.JudgedReply(run=run.id, status=run.status, why=run.why, verdicts=verdicts, parent=run.parent)


async def _turn_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, code: str, why: str) -> None:
    """Refuse a connection, and wait up to a second for its greeting: an earlier close would discard the refusal."""
    await send(writer, messages.Refused(code, why))
    with contextlib.suppress(TimeoutError, asyncio.LimitOverrunError, ValueError):
        await asyncio.wait_for(reader.readline(), GREETING_S / 10)
