"""A command that runs as if started directly, with its own streams, signals and exit code.

The child stays in gpuwatch's process group: it reads from the terminal, and Ctrl-C, Ctrl-Z and window size reach it directly.
gpuwatch forwards the signals of other processes.  If a process signals the whole group, as timeout(1) does, the child
therefore gets the signal twice.
"""

import contextlib
import errno
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuwatch import clock
from gpuwatch.cli.exit_codes import Exit, Stop

FORWARDED = frozenset({
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
})  # fmt: skip
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A command's exit code as a shell reports it (128 + signal), its signal, and its elapsed and CPU times."""

    exit_code: int
    signal: str | None
    elapsed_s: float
    user_s: float
    system_s: float


@contextlib.contextmanager
def signals_held() -> Iterator[set[signal.Signals]]:
    """Block the signals to forward, and yield the signal mask for the child.

    Threads that start meanwhile inherit the blocked signals, so none of them can take a signal.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD})
    mask = {number for number in before if isinstance(number, signal.Signals)}
    # The kernel keeps no exit code for a parent that ignores SIGCHLD, and a shell's `trap '' CHLD` is inherited.
    is_ignored = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    if is_ignored:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield mask
    finally:
        if is_ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        # Drop signals for a command that has ended: Ctrl-C ends the command, not gpuwatch's report.
        while signal.sigtimedwait(FORWARDED, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def refuse_if_ended() -> None:
    """Raise Stop if a signal to end arrived before the command started."""
    for number in _ENDING:
        if number in signal.sigpending():
            raise Stop(Exit.INTERRUPTED, f"received {number.name} before the command started; nothing was run", "interrupted")


def refuse_if_unable(name: str) -> None:
    """Raise Stop for a command that does not exist or is no program, before anything is opened; ``spawn`` finds other faults."""
    if shutil.which(name) is None:
        is_there = Path(name).is_dir() or shutil.which(name, mode=os.F_OK) is not None
        code = errno.EACCES if is_there else errno.ENOENT
        raise not_started(name, OSError(code, os.strerror(code)))


def not_started(name: str, error: OSError) -> Stop:
    """Return the Stop for a command that the kernel did not start, with the exit codes of env(1)."""
    missing = error.errno == errno.ENOENT
    code, word = (Exit.NOT_FOUND, "not-found") if missing else (Exit.NOT_EXECUTABLE, "not-executable")
    return Stop(code, f"{name}: {error.strerror}", word)


def spawn(command: Sequence[str], environment: Mapping[str, str], mask: set[signal.Signals]) -> int:
    """Start a command found on PATH and return its pid.

    Raises Stop: when the command cannot be started, with the exit codes of env(1).
    """
    try:
        try:
            return _spawn(command[0], command, environment, mask)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without a #! line: execvp(3), and so env and nohup, run it with the shell.
            path = shutil.which(command[0]) or command[0]
            return _spawn("/bin/sh", ["/bin/sh", path, *command[1:]], environment, mask)
    except OSError as error:
        raise not_started(command[0], error) from None
    except ValueError as error:  # a zero byte
        raise Stop(Exit.WRAPPER_FAILED, f"{command[0]!r}: {error}", "usage") from None


def _spawn(path: str, command: Sequence[str], environment: Mapping[str, str], mask: set[signal.Signals]) -> int:
    # Python ignores these two signals; the command must start with their default actions.
    own = (signal.SIGPIPE, signal.SIGXFSZ)
    return os.posix_spawnp(path, list(command), dict(environment), setsigmask=mask, setsigdef=own)


_LOOK_S = 0.1


def wait(pid: int) -> Outcome:
    """Forward signals until the command ends, and return its outcome.  Call ``wait`` inside ``signals_held``."""
    begin_ns = clock.now_ns()
    while True:
        ended, status, used = os.wait4(pid, os.WNOHANG)
        if ended:
            break
        # The kernel may deliver SIGCHLD to another thread (numpy's libraries start some), which discards it: so the wait has
        # a timeout.
        arrived = signal.sigtimedwait(FORWARDED | {signal.SIGCHLD}, _LOOK_S)
        if arrived is None:
            continue
        # A positive code means the kernel: the terminal signalled the whole group, so the child has the signal already.
        if arrived.si_signo != signal.SIGCHLD and arrived.si_code <= 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, arrived.si_signo)
    code = os.waitstatus_to_exitcode(status)
    return Outcome(
        exit_code=code if code >= 0 else 128 - code,
        signal=_signal_name(-code) if code < 0 else None,
        elapsed_s=(clock.now_ns() - begin_ns) / 1e9,
        user_s=used.ru_utime,
        system_s=used.ru_stime,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)
