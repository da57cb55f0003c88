"""Replay of an earlier version's recorded conversation: its clients against this daemon, its daemon against this client."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from gpuwatch import clock
from tests.compatibility.old_version import OLD
from tests.waiting import PATIENCE_S, wait_until

Message: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One message, its sender and its connection."""

    connection: int
    speaker: str
    message: Message


def recorded() -> list[Line]:
    """Return the messages of the earlier version's clients and daemon, in order."""
    lines = (json.loads(line) for line in (OLD / "conversation.jsonl").read_text().splitlines())
    return [Line(each["connection"], each["from"], each["line"]) for each in lines]


def exchanges() -> list[tuple[int, Message, Message]]:
    """Return each request with its connection and its reply."""
    pending: dict[int, Message] = {}
    found = []
    for line in recorded():
        if line.speaker == "client":
            pending[line.connection] = line.message
        else:
            found.append((line.connection, pending.pop(line.connection), line.message))
    return found


@dataclass(slots=True)
class Replayer:
    """The earlier version's clients: their requests, with the ids and times of current windows."""

    path: Path
    state: Path
    _runs: dict[str, str] = field(default_factory=dict)
    _shifts_ns: dict[str, int] = field(default_factory=dict)

    def replay(self) -> Iterator[tuple[Message, Message, Message]]:
        """Yield each replayed request with its recorded reply and the current reply."""
        connections: dict[int, socket.socket] = {}
        try:
            for number, request, before in exchanges():
                if request["type"] == "leave":  # the recorder sent this, and no client of that version did
                    continue
                if number not in connections:
                    connections[number] = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                    connections[number].settimeout(PATIENCE_S)
                    connections[number].connect(str(self.path))
                connections[number].sendall(json.dumps(self._today(request)).encode() + b"\n")
                after = json.loads(connections[number].makefile("rb").readline())
                if before["type"] == "opened" == after["type"]:
                    self._runs[before["run"]] = after["run"]
                    self._shifts_ns[before["run"]] = after["opened_ns"] - before["opened_ns"]
                yield request, before, after
        finally:
            for connection in connections.values():
                connection.close()

    def _today(self, request: Message) -> Message:
        """Return a recorded request with the ids and times of a current window, once the window's end has passed."""
        request = dict(request)
        if "state" in request:
            request["state"] = str(self.state)
        run = request.get("run", "")
        if run in self._runs:
            request["run"] = self._runs[run]
            shift_ns = self._shifts_ns[run]
            for name in ("begin_ns", "end_ns"):
                if name in request:
                    request[name] += shift_ns
            if "at_ns" in request:
                at_ns = np.frombuffer(base64.b64decode(request["at_ns"]), "<i8") + shift_ns
                request["at_ns"] = base64.b64encode(at_ns.astype("<i8").tobytes()).decode()
            if "end_ns" in request:
                wait_until(lambda: clock.now_ns() >= request["end_ns"], what="the window has its length")
        return request


class OldDaemon:
    """A socket that answers like the earlier version's daemon, and records the requests."""

    def __init__(self, path: Path, state: Path) -> None:
        self.asked: list[Message] = []
        self.warning: str | None = None  # of an opened window
        self._state = state
        self._answers: dict[str, list[Message]] = {}
        for _, request, reply in exchanges():
            if reply["type"] != "refused" or request["type"] == "leave":
                self._answers.setdefault(request["type"], []).append(reply)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                self.asked.append(request)
                reply = self._reply(request)
                connection.sendall(json.dumps(reply).encode() + b"\n")
                if reply["type"] == "refused":  # an unknown message ends the connection
                    return

    def _reply(self, request: Message) -> Message:
        reply = dict(self._answers.get(request["type"], self._answers["leave"])[0])
        match reply["type"]:
            case "welcome":
                reply |= {"state": str(self._state), "pid": os.getpid()}
            case "opened":
                reply |= {"opened_ns": clock.now_ns(), "warning": self.warning}
        return reply
