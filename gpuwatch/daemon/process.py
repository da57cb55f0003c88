"""The daemon as a process: alone on its socket, with a time limit on shutdown."""

import asyncio
import contextlib
import fcntl
import logging
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn

from gpuwatch import clock
from gpuwatch.client.launch import START_S, say
from gpuwatch.config import settings as config
from gpuwatch.config.paths import ensure_state_folder
from gpuwatch.config.settings import Settings
from gpuwatch.daemon import handover
from gpuwatch.daemon.daemon import Daemon
from gpuwatch.daemon.log import log_to
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.systemd import notify

_log = logging.getLogger("gpuwatch.daemon.daemon")

END_S = 30  # longer than the sum of all waits during shutdown


def main(
    settings: Settings,
    *,
    code_of: Callable[[Callable[[], None]], int],
    ready: Callable[[], None] | None = None,
    shared: bool = False,
) -> None:
    """Run a daemon, then exit the process.  ``shared`` serves every user, each with their own windows.

    Returns only where no daemon is needed.  ``code_of`` reports an error and returns the exit code.  ``ready`` reports an
    on-demand daemon, detached from its parent, as ready; None for a daemon that a person or a service manager started.
    Raises UsageError: when another daemon already serves the socket, and when the socket, a folder or the log cannot be used.
    """
    manager, sockets = notify.taken(os.environ)
    listener = notify.listener_at(settings.socket, sockets)
    on_demand, ready = ready is not None, ready or (lambda: None)
    _raise_limits()
    config.ensure_socket_folder(settings.socket)
    make_room = None if on_demand else partial(handover.make_room, settings, say, is_handed=listener is not None)
    with _only_one(settings, make_room) as first:
        if not first:
            ready()  # another window has just started a daemon: both windows use it
            return
        ensure_state_folder(settings.state, mode=0o750 if shared else 0o700)
        log_to(settings, on_demand=on_demand)
        # A sampling thread waits for the interpreter lock; the default of 5 ms would be half a sampling period.
        sys.setswitchinterval(0.0005)
        _watch_children_without_threads()
        make = partial(
            Daemon,
            settings,
            ready,
            on_demand=on_demand,
            shared=shared,
            manager=manager,
            listener=listener,
            leaving=_end_in_time,
        )
        _end(lambda: code_of(lambda: asyncio.run(_run(make, on_demand=on_demand))))


async def _run(make: Callable[[], Daemon], *, on_demand: bool) -> None:
    try:
        await make().run()
    except GpuwatchError as error:
        if on_demand:  # the starting window can quote only the log; otherwise the command prints the error
            _log.error("%s", error)
        raise


def _end(run: Callable[[], int]) -> NoReturn:
    """Run, flush the log and the streams, and exit without the interpreter's shutdown, which would wait for threads.

    A thread inside a hung driver or disk call cannot be joined or ended.  A thread that failed to start for lack of
    memory never reports its end.
    """
    code = 1
    try:
        code = run()
    except BaseException:  # noqa: BLE001 - printed here because the interpreter's own report is not reached
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, full, or absent
                stream.flush()
        os._exit(code)


def _end_in_time() -> None:
    """Have the kernel end this process after a slow shutdown, because the process's locks keep the next daemon out."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(END_S)


def _watch_children_without_threads() -> None:
    """Watch child processes through a pidfd, as Python 3.12 does; 3.11 starts a thread for each child process."""
    if sys.version_info < (3, 12):
        with contextlib.suppress(OSError):  # a seccomp filter may refuse the call
            os.close(os.pidfd_open(os.getpid()))
            asyncio.set_child_watcher(asyncio.PidfdChildWatcher())


# A thousand windows need a thousand connections.  A benchmark may have set the other limits for its own processes.
_LIMITS = (
    resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_DATA,
    resource.RLIMIT_NPROC,
)  # fmt: skip


def _raise_limits() -> None:
    for limit in _LIMITS:
        _, hard = resource.getrlimit(limit)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (hard, hard))


@contextlib.contextmanager
def _only_one(settings: Settings, make_room: Callable[[], None] | None) -> Iterator[bool]:
    """Hold the lock file next to the socket; without ``make_room``, yield False if another process holds the lock.

    ``make_room`` stops a daemon that a window started; this function then waits for the lock.
    Raises UsageError: when the file cannot be locked, that daemon stays, or another one serves the socket or the store.
    """
    path = Path(f"{settings.socket}.lock")
    try:
        # Never follow a link or truncate: another user may have linked the path to another file.
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"{path}: cannot be locked: {error.strerror}; choose another --socket") from error
    try:
        if make_room is not None:
            _wait_for(lock, path, settings.socket, make_room)
            yield True
        else:
            yield _is_locked_now(lock)
    finally:
        os.close(lock)


def _is_locked_now(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_for(lock: int, path: Path, socket: Path, make_room: Callable[[], None]) -> None:
    """Wait for the lock, and call ``make_room`` until the lock is free.

    Raises UsageError: when the process that holds the lock neither answers nor ends in time.
    """
    make_room()
    until_ns, pause = clock.now_ns() + round(START_S * 1e9), threading.Event()
    while not _is_locked_now(lock):
        if clock.now_ns() > until_ns:
            pid = _holder(path)
            named = f"process {pid}" if pid is not None else "a process"
            stops = f"kill {pid}" if pid is not None else f"fuser -k {path}"
            raise UsageError(
                f"{socket}: expected no daemon, found {named} that holds the socket's lock and does not answer;"
                f" stop that process with: {stops}, or choose another --socket and --state"
            )
        pause.wait(0.05)
        make_room()


def _holder(path: Path) -> int | None:
    """Return the process that holds a lock on a file, or None if /proc/locks does not list the lock."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        inode = str(path.stat().st_ino)
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()  # 1: FLOCK ADVISORY WRITE 4538 00:2d:1234 0 EOF
            if words[1:2] == ["FLOCK"] and words[5].rpartition(":")[2] == inode and int(words[4]) > 0:
                return int(words[4])
    return None
