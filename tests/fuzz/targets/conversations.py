"""Target: messages from several clients to the daemon's server and windows.

Every line gets an answer or ends its connection, no window outlives its connection, and no message causes an error in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

from annotate.evidence import Device
from gpuwatch import clock
from gpuwatch.daemon.flush import Flushing
from gpuwatch.daemon.greeting import Greeting
from gpuwatch.daemon.judged_windows import JudgedWindows
from gpuwatch.daemon.judgement import Judgement
from gpuwatch.daemon.server import Answers, Server
from gpuwatch.daemon.tracked_window import WindowServices
from gpuwatch.daemon.user_turns import UserThreads
from gpuwatch.daemon.windows import Windows
from gpuwatch.store import Store
from gpuwatch.wire import messages
from tests.fuzz.dealt import Dealt

_UUIDS = ("GPU-1a", "GPU-1b")
_CLIENTS_COUNT = 3
_A_STORE_COUNT = 2000  # conversations before the store is replaced by a new one
_HELLO = messages.encode(messages.Hello(protocol=1, version="0"))
_KINDS = ("hello", "open", "end", "times", "close", "verdicts", "status", "readings", "reboot")
_FIELDS = (
    "run", "begin_ns", "end_ns", "told", "label", "policy", "gpus", "parent", "claim", "protocol", "version", "source", "state",
    "at_ns", "took_s", "calls_count", "wait_s", "since_ns", "sm_clock_mhz",
)  # fmt: skip


class _Witness:
    """Two GPUs without work."""

    uuids = _UUIDS
    devices = MappingProxyType({uuid: Device(uuid=uuid, name="GPU") for uuid in _UUIDS})
    unanswered = ()
    name = "simulated"
    is_simulated = True
    absence = None

    @property
    def source(self) -> _Witness:
        return self

    edges = latest = source

    def adopt(self, uuid: str, pid: int) -> None: ...
    def window_opened(self, uuids: object) -> None: ...
    def window_closed(self, uuids: object) -> None: ...
    def process_list(self, uuid: str) -> None: ...
    async def mark(self, uuids: object) -> None: ...
    async def edge(self, uuids: object) -> None: ...
    async def read_power(self, uuids: object) -> None: ...
    async def hand_over(self, uuids: object) -> tuple[str, ...]:
        return ()


class _Judge:
    async def warm(self) -> None: ...

    async def judge(self, run: str, length_s: float = 0.0) -> Judgement:
        return Judgement(why="nothing was seen")


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(self.format(record))


class _World:
    """The daemon's server on a socket in this process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.errors = _Errors()
        self.loop.set_exception_handler(lambda _, context: self.errors.said.append(repr(context)))
        self.threads = ThreadPoolExecutor(2)
        self.folder = Path(tempfile.mkdtemp(prefix="gpuwatch-fuzz"))
        self.count = 0
        self._begin()

    def _begin(self) -> None:
        state = self.folder / f"state{self.count}"
        witness: Any = _Witness()
        judge: Any = _Judge()
        self.store = Store(state, source="simulated", boot_id="boot")
        flushing, threads = Flushing(self.store), UserThreads(self.threads)
        services = WindowServices(gpus=witness, store=self.store, judge=judge, flushing=flushing, threads=threads)
        self.windows = Windows(services, JudgedWindows(state, "boot"), boot_id="boot")
        answers = Answers(
            lambda: Greeting("simulated", True, state, "boot"),
            lambda: {"pid": 1},
            lambda uid, since_ns: messages.Readings(at_ns=since_ns, source="simulated"),
            lambda _: messages.Refused("windows-open", "1 window is open"),
        )
        self.server = Server(self.windows, answers, is_shared=True)
        self.path = state / "s"
        self.loop.run_until_complete(self.server.listen(self.path))

    def _end(self) -> None:
        self.loop.run_until_complete(self.windows.finish())
        self.loop.run_until_complete(self.server.close())
        assert self.windows.tracked_count == 0
        self.store.close()
        shutil.rmtree(self.path.parent)

    def converse(self, data: bytes) -> None:
        self.count += 1
        if self.count % _A_STORE_COUNT == 0:
            self._end()
            self._begin()
        log = logging.getLogger("gpuwatch")
        log.addHandler(self.errors)
        try:
            self.loop.run_until_complete(asyncio.wait_for(self._converse(Dealt(data)), 5.0))
        finally:
            log.removeHandler(self.errors)
        assert not self.errors.said, self.errors.said

    async def _converse(self, dealt: Dealt) -> None:
        clients = [await asyncio.open_unix_connection(str(self.path), limit=4 << 20) for _ in range(_CLIENTS_COUNT)]
        runs: list[str] = []
        for reader, writer in clients[1:]:  # the first client has not sent its Hello
            writer.write(_HELLO)
            await reader.readuntil()
        for _ in range(24):
            if not dealt:
                break
            reader, writer = dealt.choice(clients)
            line = _line(dealt, runs)
            with contextlib.suppress(ConnectionError):
                writer.write(line)
                answers = await _answers(reader, line)
                runs += [one.run for one in answers if isinstance(one, messages.Opened)]
        for _, writer in clients:
            writer.close()
        while self.server.client_count:
            await asyncio.sleep(0)
        assert all(run.status != "open" for run in self.windows.shown(uid=0))


async def _answers(reader: asyncio.StreamReader, line: bytes) -> list[messages.Reply]:
    """Return one answer per line, or fewer if the server ended the connection."""
    found = []
    for _ in range(line.count(b"\n")):
        try:
            found.append(messages.decode_reply(await reader.readuntil()))
        except asyncio.IncompleteReadError:
            break
    return found


def _line(dealt: Dealt, runs: list[str]) -> bytes:
    kind = dealt.byte()
    if kind < 16:
        return dealt.piece() + b"\n"
    message = _message(dealt, runs)
    for _ in range(dealt.byte() % 3):
        message[dealt.choice(_FIELDS)] = dealt.value()
    return json.dumps(message).encode() + b"\n"


def _message(dealt: Dealt, runs: list[str]) -> dict[str, Any]:
    """Return a message of a known or unknown kind, about a window of this conversation or an unknown window."""
    kind = dealt.choice(_KINDS)
    run = dealt.choice([*runs, "0" * 18])
    fits: dict[str, dict[str, Any]] = {
        "hello": {"protocol": 1, "version": "0"},
        "open": {"told": {dealt.text(): dealt.value()}, "gpus": dealt.choice([None, ["GPU-1a"], ["1"], []])},
        "end": {"run": run, "begin_ns": 0, "end_ns": 1},
        "times": {"run": run, "at_ns": "AAAAAAAAAAA=", "took_s": "AAAAAAAAAAA="},
        "close": {"run": run, "begin_ns": 0, "end_ns": 1, "told": {dealt.text(): dealt.value()}},
        "verdicts": {"run": run, "wait_s": 0},
    }
    message = {"type": kind, **fits.get(kind, {})}
    if kind in ("end", "close") and dealt.byte() % 2:
        message |= {"begin_ns": clock.now_ns() - dealt.byte() * 10, "end_ns": clock.now_ns()}
    return message


_world: list[_World] = []


def target(data: bytes) -> None:
    if not _world:
        _world.append(_World())
    _world[0].converse(data)
