"""The server that forks processes for ``forked.py``: ``python -m tests.gpuwatch.fork_server DESCRIPTOR``."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, TextIO

from tests.gpuwatch import forked

# Modules that a daemon and the commands import.  None starts a thread, and only ``gpuwatch.auto`` reads a setting (GPUWATCH).
IMPORTED = (
    "annotate.capsule.pack",
    "annotate.judge",
    "annotate.work_record",
    "gpuwatch.auto",
    "gpuwatch.cli.audit",
    "gpuwatch.cli.daemon",
    "gpuwatch.cli.doctor",
    "gpuwatch.cli.mark",
    "gpuwatch.cli.run",
    "gpuwatch.cli.show",
    "gpuwatch.daemon.daemon",
    "gpuwatch.daemon.process",
    "gpuwatch.exporter.exporter",
    "gpuwatch.sampling.measure",
    "gpuwatch.signing",
    "gpuwatch.sources.nvml",
    "gpuwatch.sources.simulated",
    "gpuwatch.store.reader",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "cryptography.hazmat.primitives.serialization",
    "numpy.ma",
    "psutil",
)
_PATH = sys.path[1:]  # without the folder that ``-m`` adds


def serve(descriptor: int) -> None:
    """Fork a process for each message until the client is gone; return in the forked process."""
    with socket.socket(fileno=descriptor) as asked:
        while True:
            head, streams, _, _ = socket.recv_fds(asked, 4, 3)
            if not head:
                os._exit(0)
            message = json.loads(asked.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
            pid = fork_orphan()
            if pid is None:
                break
            for each in streams:
                os.close(each)
            asked.sendall(pid.to_bytes(4, "big"))
    begin(message, streams)


def fork_orphan() -> int | None:
    """Fork a process whose direct parent has ended; return the new process's PID, or None in the new process."""
    readable, writable = os.pipe()
    between = os.fork()
    if between == 0:
        parent = os.getpid()
        if pid := os.fork():
            os.write(writable, pid.to_bytes(4, "big"))
            os._exit(0)
        while os.getppid() == parent:
            os.sched_yield()
        os.close(readable)
        os.close(writable)
        return None
    os.waitpid(between, 0)
    pid = int.from_bytes(os.read(readable, 4), "big")
    os.close(readable)
    os.close(writable)
    return pid


def begin(message: dict[str, Any], streams: list[int]) -> None:
    """Take over the message's session, process group, streams, folder, environment and arguments; close other descriptors.

    The process loads the environment's mock driver.  A daemon without ``REAL_CHILDREN`` gets a fork server for its children.
    """
    if message["session"]:
        os.setsid()
    if message["process_group"] >= 0:
        os.setpgid(0, message["process_group"])
    above = [os.dup(each) for each in streams]  # above the three descriptors that are replaced
    for number, each in enumerate(above):
        os.dup2(each, number)
    os.closerange(len(above), os.sysconf("SC_OPEN_MAX"))
    os.chdir(message["folder"])
    os.environ.clear()
    os.environ.update(message["environment"])
    time.tzset()
    if (driver := forked.driver_of(os.environ)) is not None:
        ctypes.CDLL(str(driver))
    sys.stdin, sys.stdout, sys.stderr = (stream_of(number) for number in range(3))
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc, assignment]
    option, *sys.argv = message["words"]
    sys.orig_argv = [sys.executable, *message["words"]]
    first = message["folder"] if option == "-m" else ""
    sys.path[:] = _PATH if message["is_safe_path"] else [first, *_PATH]
    if option == "-c":
        sys.argv[0] = option
    elif forked.REAL_CHILDREN in os.environ:
        return
    elif sys.argv[-1] == "daemon":
        serve_daemon(serve)
    elif sys.argv[0] == "gpuwatch.daemon.on_demand":
        # The daemon will be a fork of this process, and only the daemon's own server can give it children.
        first_fork = iter([serve_daemon])
        os.register_at_fork(after_in_child=lambda: [each(serve_and_exit) for each in first_fork])


def serve_daemon(serves: Callable[[int], None]) -> None:
    """Fork a server for the processes that this process, a daemon, will start; return in the daemon.

    The server calls ``serves`` with its descriptor, and returns in the daemon's children if ``serves`` does.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.fork() == 0:
        ours.close()
        serves(theirs.detach())
        return
    theirs.close()
    own = forked.ForkServer(ours)
    forked.server = lambda: own  # type: ignore[assignment]
    subprocess.Popen = forked.ForkedPopen  # type: ignore[misc]


def end(code: object) -> None:
    """End a process as Python does, but keep its modules: their destruction would copy every page shared with the server.

    Returns if the code is a text, or if a stream cannot be flushed: Python then prints the text or the error.
    """
    status = 0 if code is None else code
    if isinstance(status, int):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status & 0xFF)


def stream_of(number: int) -> TextIO:
    """Return a standard stream, opened as Python does."""
    if number == 0:
        return open(0, encoding="utf-8", closefd=False)
    made = open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - a descriptor
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    if number == 1:
        made.reconfigure(write_through=at_once, line_buffering=made.isatty())
    else:
        made.reconfigure(write_through=at_once, line_buffering=True, errors="backslashreplace")
    return made


def serve_to_the_end(descriptor: int) -> None:
    """Fork a process for each message, and run the message's module or code in that process."""
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    serve(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run_program()
    except SystemExit as ended:
        end(ended.code)
        raise
    end(None)


def serve_and_exit(descriptor: int) -> None:
    """Serve without a return: the caller is the start of a daemon, which must not go on in the daemon's children."""
    try:
        serve_to_the_end(descriptor)
    finally:
        os._exit(1)


def run_program() -> None:
    """Run the module or the code of this process's arguments as ``__main__``."""
    _, option, program, *_ = sys.orig_argv
    if option == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(program, "<string>", "exec"), vars(main))


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a caller may start the first child with blocked signals
    for each in IMPORTED:
        importlib.import_module(each)
    serve_to_the_end(int(sys.argv[1]))
