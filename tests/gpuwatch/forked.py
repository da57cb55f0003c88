"""Processes of ``python -m MODULE`` and ``python -c CODE`` forked from a server that has imported gpuwatch.

Importing for each test is slow.

A forked process has the given arguments, environment, folder and streams, and is a child of the test's process.  Memory,
name in ``ps`` and imports are the server's: tests of these start a real process.  A forked daemon has a separate server,
from which the daemon starts its judge's workers, unless the environment has ``REAL_CHILDREN``.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Prefixes of variables that Python, allocator, loader and sanitizers read only at start; for LD_LIBRARY_PATH see ``driver_of``.
BEGINNING = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "ASAN_", "UBSAN_")
LIBRARIES = "LD_LIBRARY_PATH"
DRIVER = "libnvidia-ml.so.1"  # the loader finds a loaded library by this name
REAL_CHILDREN = "FORKED_WITH_REAL_CHILDREN"
STREAMS_COUNT = 3
_NAMES = (
    "args", "executable", "preexec_fn", "close_fds", "pass_fds", "cwd", "env", "startupinfo", "creationflags", "shell",
    "p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite",
    "restore_signals", "gid", "gids", "uid", "umask", "start_new_session", "process_group",
)  # fmt: skip
_PLAIN = {
    "executable": None, "preexec_fn": None, "close_fds": True, "pass_fds": (), "shell": False, "restore_signals": True,
    "gid": None, "gids": None, "uid": None, "umask": -1,
}  # fmt: skip
_PR_SET_CHILD_SUBREAPER = 36
_one_request = threading.Lock()


class ForkedPopen(subprocess.Popen[Any]):
    """A ``subprocess.Popen`` that forks ``python -m`` and ``python -c`` from a server if possible, and starts others as usual."""

    def forks(self) -> ForkServer:
        """Return the server for this process's children."""
        return server()

    def _execute_child(self, *given: Any) -> None:
        asked = dict(zip(_NAMES, given, strict=True))
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        asked["args"] = _as_module(asked["args"])
        plain = all(asked[name] == value for name, value in _PLAIN.items())
        if not (plain and is_program(asked["args"]) and can_fork(environment)):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        words = [os.fspath(each) for each in asked["args"][1:]]
        is_safe_path = words[0] == "-P"
        message = {
            "words": words[is_safe_path:],
            "is_safe_path": is_safe_path,
            "folder": os.fspath(asked["cwd"] or Path.cwd()),
            "environment": environment,
            "session": bool(asked["start_new_session"]),
            "process_group": asked["process_group"],
        }
        streams = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        own = [number if stream == -1 else stream for number, stream in enumerate(streams)]
        self.pid = self.forks().start(message, own)
        self._child_created = True
        self._close_pipe_fds(*given[10:16])  # type: ignore[attr-defined]


@contextlib.contextmanager
def daemons_of_windows() -> Iterator[None]:
    """Until the end of the block, fork the daemons that windows and connections of this process start."""
    real = subprocess.Popen
    subprocess.Popen = ForkedPopen  # type: ignore[misc]
    try:
        yield
    finally:
        subprocess.Popen = real  # type: ignore[misc]


def run(
    command: Sequence[str | Path], *, timeout_s: float, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end without standard input, and return its output as text."""
    pipe = subprocess.PIPE
    with ForkedPopen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=environment, cwd=folder
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _as_module(words: Any) -> Any:
    """Return the command of a window's daemon in the form ``python -P -m MODULE …``, and any other command as it is."""
    from gpuwatch.client.launch import DAEMON_OPTIONS  # imported here: most processes fork before they need gpuwatch

    script = [sys.executable, *DAEMON_OPTIONS]
    if not isinstance(words, list) or words[: len(script)] != script:
        return words
    options = words[len(script) + 2 :]  # after the script and its folders
    return [sys.executable, "-P", "-m", "gpuwatch.daemon.on_demand", *options]


def is_program(words: Any) -> bool:
    """Return True for the commands ``python -m MODULE`` and ``python -c CODE``, with or without ``-P``."""
    if not isinstance(words, list | tuple) or words[:1] not in ([sys.executable], (sys.executable,)):
        return False
    option = list(words[2:3] if words[1:2] in (["-P"], ("-P",)) else words[1:2])
    return option in (["-m"], ["-c"])


def can_fork(environment: Mapping[str, str]) -> bool:
    """Return True if a server with this process's start-up variables can run a process with this environment."""
    ignored = None if driver_of(environment) is None else LIBRARIES
    ours, asked = (
        {name: value for name, value in each.items() if name.startswith(BEGINNING) and name != ignored}
        for each in (os.environ, environment)
    )
    return ours == asked


def driver_of(environment: Mapping[str, str]) -> Path | None:
    """Return the mock driver in LD_LIBRARY_PATH's first folder, for a forked process to load; None if absent or relative."""
    path = Path(environment.get(LIBRARIES, "").partition(":")[0]) / DRIVER
    return path if path.is_absolute() and path.is_file() else None


@cache
def server(module: str = "tests.gpuwatch.fork_server") -> ForkServer:
    """Start a server that ends with this process, once per module, and return the connection to the server."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", module, str(theirs.fileno())]
    with theirs:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=[theirs.fileno()])
    return ForkServer(ours, process)


class ForkServer:
    """The connection to a process that forks others."""

    def __init__(self, end: socket.socket, process: object = None) -> None:
        self._end, self._process = end, process  # the process is kept, because Popen warns of unreferenced living processes

    def start(self, message: Mapping[str, Any], streams: Sequence[int]) -> int:
        """Start the program of a message as a child of this process, with these standard streams; return the child's PID.

        The server's child forks and ends: the kernel makes the orphan a child of the nearest subreaper, this process.
        """
        blob = json.dumps(message).encode()
        with _one_request:
            _take_orphans(is_wanted=True)
            try:
                socket.send_fds(self._end, [len(blob).to_bytes(4, "big")], list(streams))
                self._end.sendall(blob)
                pid = int.from_bytes(self._end.recv(4, socket.MSG_WAITALL), "big")
            finally:
                _take_orphans(is_wanted=False)
        assert pid, "the fork server ended"
        return pid


def _take_orphans(*, is_wanted: bool) -> None:
    assert ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(is_wanted), 0, 0, 0) == 0
