"""The daemon as a process: left by its parent, alone on its socket, with its log; and how it ends."""

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

END_S = 30  # more than all that a daemon waits for at its end


def main(
    settings: Settings, *, code_of: Callable[[Callable[[], None]], int], on_demand: bool = False, shared: bool = False
) -> None:
    """Run a daemon in the foreground of this process, and end it; ``shared``: for every user, each their own windows.

    Returns only where no daemon is needed.  ``code_of`` says what went wrong while it ran, and gives the code to end with.
    Raises UsageError where one already serves the socket.
    """
    manager, sockets = notify.taken(os.environ)
    listener = notify.listener_at(settings.socket, sockets)
    ready = _leave_parent() if on_demand else lambda: None
    _raise_limits()
    config.ensure_socket_folder(settings.socket)
    make_room = None if on_demand else partial(handover.make_room, settings, say, is_handed=listener is not None)
    with _only_one(settings, make_room) as first:
        if not first:
            ready()  # another window was quicker: both use its daemon
            return
        ensure_state_folder(settings.state, mode=0o750 if shared else 0o700)
        log_to(settings, on_demand=on_demand)
        # A thread that samples waits for the interpreter lock; the default of 5 ms would be half its period.
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
        if on_demand:  # the log is all that the starting window can quote; else the command says it
            _log.error("%s", error)
        raise


def _end(run: Callable[[], int]) -> NoReturn:
    """Run, and end here: by then all that is ours is closed and flushed, and the interpreter would wait for its threads.

    One inside a hung call of a driver or a disk can be neither joined nor ended, and one that could not be started for
    want of memory never says that it has ended.  What is left out are the log's flush and that of the streams, done here.
    """
    code = 1
    try:
        code = run()
    except BaseException:  # noqa: BLE001 - said as the interpreter would, which is not reached
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, full, or none
                stream.flush()
        os._exit(code)


def _end_in_time() -> None:
    """Have the kernel end this process if its end takes too long: a lock it held would keep the next daemon out."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(END_S)


def _watch_children_without_threads() -> None:
    """Learn of the worker's end from the kernel, as Python 3.12 does; 3.11 starts a thread for each process it runs."""
    if sys.version_info < (3, 12):
        with contextlib.suppress(OSError):  # a service's or container's filter of system calls may refuse it
            os.close(os.pidfd_open(os.getpid()))
            asyncio.set_child_watcher(asyncio.PidfdChildWatcher())


def _leave_parent() -> Callable[[], None]:
    """Become nobody's child; gives what tells the process that was started in our place that we answer.

    That one then ends with 0, or with 1 as soon as we do without having said so.
    """
    here, there = os.pipe()
    if os.fork():
        os.close(there)
        os._exit(0 if os.read(here, 1) else 1)
    os.close(here)
    os.setsid()
    _undo_inheritance()

    def ready() -> None:
        with contextlib.suppress(OSError):
            os.write(there, b"r")
            os.close(there)

    return ready


# A thousand windows are a thousand connections.  The rest a benchmark set for itself, and its daemon serves others too.
_LIMITS = (
    resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_DATA,
    resource.RLIMIT_NPROC,
)  # fmt: skip


def _raise_limits() -> None:
    """Raise what this process may use to the most that it may set."""
    for limit in _LIMITS:
        _, hard = resource.getrlimit(limit)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (hard, hard))


def _undo_inheritance() -> None:
    """Let go of what the benchmark that started us is bound to: its processors, its priority, its umask."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, the judge's worker would end without a code


@contextlib.contextmanager
def _only_one(settings: Settings, make_room: Callable[[], None] | None) -> Iterator[bool]:
    """Hold the lock beside the socket; False if another process holds it.  The kernel lets go of it when we die.

    ``make_room`` has the daemon that a window started leave; the lock is then waited for.
    Raises UsageError: when that one stays, or another daemon serves the socket or the store.
    """
    path = Path(f"{settings.socket}.lock")
    try:
        # Never through a link somebody put there, and never emptied: it may be a file that is not ours.
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
    """Lock, after the daemon that has the lock and does not answer yet, or no more, has answered or ended.

    Raises UsageError: when it does neither.
    """
    make_room()
    until_ns, pause = clock.now_ns() + round(START_S * 1e9), threading.Event()
    while not _is_locked_now(lock):
        if clock.now_ns() > until_ns:
            pid = _holder(path)
            named = f"process {pid}" if pid is not None else "a process"
            stops = f"kill {pid}" if pid is not None else f"fuser -k {path}"
            raise UsageError(
                f"{socket}: expected no daemon there, found {named} that holds it and does not answer;"
                f" stop it with: {stops}, or choose another --socket and --state"
            )
        pause.wait(0.05)
        make_room()


def _holder(path: Path) -> int | None:
    """The process that holds a lock on a file, None where the kernel does not tell."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        inode = str(path.stat().st_ino)
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()  # 1: FLOCK ADVISORY WRITE 4538 00:2d:1234 0 EOF
            if words[1:2] == ["FLOCK"] and words[5].rpartition(":")[2] == inode and int(words[4]) > 0:
                return int(words[4])
    return None
