"""The start of the user's daemon when none answers."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from gpuwatch import clock
from gpuwatch.config.settings import Settings, ensure_socket_folder
from gpuwatch.errors import DaemonError
from gpuwatch.wire import store_owner
from gpuwatch.wire.peer import dial_user_daemon

START_S = 15.0  # a cold start reads its modules from a slow disk and attaches to every GPU
YIELDED_S = 3.0  # another window's daemon that does not answer by then may have failed

# Variables that must not reach the daemon: injected profilers, device masks, a service's sockets, and switches that make
# Python slower or change its behaviour.
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

DAEMON_OPTIONS = ("-S", "-P", "-X", "gpuwatch_daemon")  # of Python, for ``on_demand_script.py``
_INSTALLED = ("site-packages", "dist-packages")  # names of the folders to which pip and Debian install packages


def say(line: str) -> None:
    """Write one line to standard error, and ignore a full disk or a closed stream."""
    with contextlib.suppress(Exception):  # a program may have replaced the stream
        sys.stderr.write(f"gpuwatch: {line}\n")


def start_daemon(settings: Settings, meanwhile: Callable[[], object] = lambda: None) -> socket.socket:
    """Start the user's daemon in its own session, run ``meanwhile``, and wait until the daemon answers.

    Raises DaemonError: as ``dial_user_daemon``, and when no daemon can be started, two fail, or none answers within START_S.
    Raises UsageError: when the socket's folder cannot be used.
    """
    ensure_socket_folder(settings.socket)
    say(f"starting a daemon (exits after {_time_text(settings.idle_exit_s)} without clients)")
    with contextlib.closing(_StartOutput(settings.log)) as output:
        child = _spawn(settings, output)
        meanwhile()
        now_ns = clock.now_ns()
        deadline_ns, again_ns, failed = now_ns + int(START_S * 1e9), now_ns + int(YIELDED_S * 1e9), False
        pause = threading.Event()
        while clock.now_ns() < deadline_ns:
            # The child ends once the detached daemon answers or fails, so that the benchmark has no extra child to wait for
            # or to kill.
            ended = child.poll()
            connection = dial_user_daemon(settings) if ended is not None else None
            if connection is not None:
                return connection
            # Replace a failed child once.  Replace a child that yielded to another window's silent daemon after YIELDED_S.
            if (ended and not _is_owner_starting(settings)) or (ended == 0 and clock.now_ns() > again_ns):
                if ended and failed:
                    raise DaemonError(f"the daemon stopped at start: {output.last()}", "unreachable")
                failed = failed or bool(ended)
                again_ns = clock.now_ns() + int(YIELDED_S * 1e9)
                child = _spawn(settings, output)
            pause.wait(0.002)
        if child.poll() is None:
            child.kill()
            child.wait()
        raise DaemonError(f"the daemon did not answer within {START_S:g} s: {output.last()}", "unreachable")


def _time_text(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"


def _is_owner_starting(settings: Settings) -> bool:
    """Return True if a daemon owns the store and has recorded no socket yet; always False with a configured socket."""
    return (
        settings.origin("socket") == "default"
        and store_owner.is_alive(settings.state)
        and store_owner.recorded_socket(settings.state) is None
    )


def daemon_command(settings: Settings) -> list[str]:
    """Return the command of the user's daemon: a script that starts without the hooks of other packages."""
    package = Path(__file__).parents[1]
    # No other folders: a benchmark's folder may hold modules with the names of the daemon's.
    # A program may also have put values that are no text into ``sys.path``: imports ignore these.
    named = [each for each in sys.path if isinstance(each, str) and Path(each).name in _INSTALLED]
    folders = os.pathsep.join([*named, str(package.parent)])
    script = package / "daemon" / "on_demand_script.py"
    return [sys.executable, *DAEMON_OPTIONS, str(script), folders, *settings.flags()]


def _spawn(settings: Settings, output: _StartOutput) -> subprocess.Popen[bytes]:
    if not sys.executable:  # empty in some embedded interpreters
        raise DaemonError(
            "expected the path of Python in sys.executable, found none; start a daemon with: gpuwatch daemon", "unreachable"
        )
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    # OpenBLAS would start a thread per processor in the daemon and in the worker.  If the limit of threads is reached,
    # OpenBLAS ends the process.
    environment = inherited | settings.variables() | {"OPENBLAS_NUM_THREADS": "1"}
    try:
        # A new session without inherited streams: the benchmark's pipes, terminal and Ctrl-C do not reach the daemon.
        return subprocess.Popen(
            daemon_command(settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output.file,
            start_new_session=True,
            close_fds=True,
            cwd="/",
            env=environment,
        )
    except OSError as error:
        raise DaemonError(f"the daemon could not be started: {error.strerror or error}", "unreachable") from error


class _StartOutput:
    """The output of a starting daemon: in memory until the daemon opens the log, which an earlier daemon may still use."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._log_before = self._log_version()
        self.file = subprocess.DEVNULL
        with contextlib.suppress(OSError):  # a seccomp filter may refuse memfd_create
            self.file = os.memfd_create("gpuwatch-start")

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)

    def last(self) -> str:
        """Return the starting daemon's fatal error or last line, else a hint at the log, or ``no output`` without a log."""
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").strip().splitlines()
            if lines and self._log_version() != self._log_before:
                # After a fatal error, many lines with the location follow.
                if crashed := [line for line in lines if line.startswith("Fatal Python error: ")]:
                    return crashed[-1]
                # A line of the log is date, time, level and module before the colon, and the message after it.
                return lines[-1].partition(": ")[2] or lines[-1]
        with contextlib.suppress(OSError):
            said = os.pread(self.file, 1 << 20, 0).decode(errors="replace").strip().splitlines() if self.file >= 0 else []
            if said:
                return said[-1].removeprefix("gpuwatch: ")
        return f"see {self._log}" if self._log_version() else "no output"

    def _log_version(self) -> tuple[int, int, int] | None:
        try:
            found = self._log.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns
