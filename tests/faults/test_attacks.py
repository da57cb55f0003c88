"""Tests of unusual processes around a window: interrupted edges, broken streams, time and resource limits, held locks."""

from __future__ import annotations

import io
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch.client.connection import connect
from gpuwatch.config import settings
from gpuwatch.config.settings import Settings
from gpuwatch.store.files import lock
from gpuwatch.wire import store_owner
from tests.gpuwatch.forked import ForkedPopen
from tests.gpuwatch.live import Live, running
from tests.gpuwatch.live import settings as settings_in
from tests.security.people import NOBODY, only_root, open_folder
from tests.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).resolve().parents[2]
OPEN = ("open", "closing", "judging")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with running(tmp_path_factory.mktemp("attacked")) as live:
        yield live


@pytest.fixture
def blind(tmp_path: Path) -> Iterator[Live]:
    """Run a daemon that watches no GPU: a window on a named GPU opens with a warning on standard error."""
    with running(tmp_path, "replay:/none.gwc") as live:
        yield live


class Interrupts(io.StringIO):
    """A standard error that raises KeyboardInterrupt on every write."""

    def write(self, text: str) -> int:
        raise KeyboardInterrupt


class Raises(io.StringIO):
    """A broken standard error of a program."""

    def write(self, text: str) -> int:
        raise LookupError


class RaisingHandler(logging.Handler):
    """A broken log handler of a benchmark."""

    def emit(self, record: logging.LogRecord) -> None:
        raise LookupError


class NameInterrupts(type):
    """An exception type whose name raises KeyboardInterrupt."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]  # on ``type`` the name is not a property
        raise KeyboardInterrupt


class Odd(Exception, metaclass=NameInterrupts):  # noqa: N818 - its name is the attack
    """An exception whose type's name cannot be read."""


class TimeLimit(TimeoutError):  # noqa: N818 - a harness's name
    """A benchmark's own time limit."""


def status_of(label: str, found: Settings) -> str:
    """Return the daemon's status of the window with this label."""
    with connect(found) as client:
        return next(window.status for window in client.readings().windows if window.label == label)


def test_window_interrupted_at_opening_is_ended(blind: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon ends the window although the program continues and keeps the object, as in a notebook.

    The next window has no parent.
    """
    window = gpuwatch.window("at opening", settings=blind.settings, gpus=["GPU-none"])
    with monkeypatch.context() as changed:
        changed.setattr(sys, "stderr", Interrupts())  # the warning that no GPU is watched is the first write
        with pytest.raises(KeyboardInterrupt):
            window.__enter__()
    wait_until(lambda: status_of("at opening", blind.settings) not in OPEN, what="the end of the window")
    with gpuwatch.window("next", settings=blind.settings) as after:
        assert after.parent is None


def test_window_interrupted_at_the_end_is_ended(daemon: Live) -> None:
    window = gpuwatch.window("at its end", settings=daemon.settings)
    with pytest.raises(KeyboardInterrupt), window:
        raise Odd
    wait_until(lambda: status_of("at its end", daemon.settings) not in OPEN, what="the end of the window")
    assert "without closing" in window.verdict.why


def test_window_opens_with_a_broken_stderr(blind: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(sys, "stderr", Raises())
        with gpuwatch.window(settings=blind.settings, gpus=["GPU-none"]) as window:
            pass
    assert window.run_id is not None
    assert "no GPU is being watched" in window.verdict.why


def test_raising_log_handler_does_not_stop_the_benchmark(tmp_path: Path) -> None:
    handler = RaisingHandler()
    logging.getLogger("gpuwatch").addHandler(handler)
    try:
        nowhere = settings.load({"source": "simulated", "socket": "/proc/none/s"}, environment={"HOME": str(tmp_path)})
        with gpuwatch.window(settings=nowhere) as window:
            pass
        assert window.verdict.status is gpuwatch.Status.UNPROVEN
    finally:
        logging.getLogger("gpuwatch").removeHandler(handler)


def test_time_limit_of_a_benchmark_is_not_swallowed(tmp_path: Path) -> None:
    """A signal handler's TimeoutError propagates from the window, even during a wait for a daemon."""

    def limit(*_: object) -> None:
        raise TimeLimit

    found, before = settings_in(tmp_path), signal.signal(signal.SIGALRM, limit)
    try:
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(found.socket))
            silent.listen()
            with pytest.raises(TimeLimit):
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                gpuwatch.window(settings=found).__enter__()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_telemetry_failure_keeps_a_time_limits_exception(tmp_path: Path) -> None:
    """A telemetry failure does not replace the exception of a time limit that is being handled."""
    window = gpuwatch.window(settings=settings.load({"socket": "/proc/none/s"}, environment={"HOME": str(tmp_path)}))

    def limit(*_: object) -> None:
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, limit)
    try:
        with pytest.raises(TimeLimit):
            try:
                signal.raise_signal(signal.SIGALRM)
            finally:
                window.__enter__()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert window.begin_ns is not None


def test_output_to_a_closed_stream_does_not_reach_the_daemon(daemon: Live) -> None:
    """Output to a closed standard stream never reaches the daemon's connection, which could get the stream's number."""
    body = f"""
        import os, gpuwatch
        from gpuwatch.config import settings as config
        found = config.load(dict(source={daemon.settings.source!r}, state={str(daemon.settings.state)!r},
                                 socket={str(daemon.settings.socket)!r}))
        written = []
        with gpuwatch.window("closed streams", settings=found):
            for number in (0, 1, 2):
                try:
                    written.append(os.write(number, b"noise of a library\\n"))
                except OSError:
                    pass
        os._exit(len(written))
    """
    command = ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, textwrap.dedent(body)]
    assert subprocess.run(command, cwd=ROOT, timeout=PATIENCE_S, check=False).returncode == 0
    wait_until(lambda: status_of("closed streams", daemon.settings) not in OPEN, what="the end of the window")
    with connect(daemon.settings) as client:
        (why,) = (window.why for window in client.readings().windows if window.label == "closed streams")
    assert "without closing" not in why


def test_run_keeps_the_exit_code_if_sigchld_is_ignored(daemon: Live) -> None:
    ignoring = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    ours = [sys.executable, "-m", "gpuwatch", *daemon.settings.flags(), "run", "--", "sh", "-c", "exit 7"]
    command = [sys.executable, "-c", ignoring, *ours]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=ROOT)
    assert ended.returncode == 7, ended.stderr


def test_daemon_inherits_no_limits_or_tracing_of_a_window(tmp_path: Path) -> None:
    found = settings_in(tmp_path)
    body = f"""
        import resource, gpuwatch
        from gpuwatch.config import settings as config
        for limit, most in ((resource.RLIMIT_FSIZE, 50_000), (resource.RLIMIT_CPU, 300)):
            resource.setrlimit(limit, (most, resource.getrlimit(limit)[1]))
        found = config.load(dict(source={found.source!r}, state={str(found.state)!r}, socket={str(found.socket)!r}))
        with gpuwatch.window(settings=found) as window:
            pass
        print(window.run_id or window.verdict.why)
    """
    slow = {"PYTHONASYNCIODEBUG": "1", "PYTHONTRACEMALLOC": "1"}
    command = [sys.executable, "-c", textwrap.dedent(body)]
    told = subprocess.run(
        command, env=os.environ | slow, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    with connect(found, start=False) as client:
        pid = client.welcome.pid
        variables = Path(f"/proc/{pid}/environ").read_text()
        limits = [resource.prlimit(pid, limit) for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_CPU)]
        client.leave(now=True)
    assert all(soft == hard for soft, hard in limits), told.stdout
    assert not [name for name in slow if f"{name}=" in variables]


def test_missing_sys_executable_is_a_clear_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", None)
    with gpuwatch.window(settings=settings_in(tmp_path)) as window:
        pass
    assert "sys.executable" in window.verdict.why
    assert "TypeError" not in window.verdict.why


def test_socket_path_may_hold_undecodable_bytes() -> None:
    name = os.fsdecode(b"/tmp/\xff/s")
    assert str(settings.load({"socket": name}, environment={"HOME": "/"}).socket) == name


PROBES = "import sys\nfrom pathlib import Path\nfrom gpuwatch.wire import store_owner\nprint(flush=True)\n"
PROBES += "while True:\n    store_owner.is_alive(Path(sys.argv[1]))"


def test_checks_of_the_lock_do_not_refuse_a_daemon(tmp_path: Path) -> None:
    """Clients that check a store's owner share its lock for a moment; no daemon is refused."""
    os.close(lock(tmp_path, mode=0o600))
    with ForkedPopen([sys.executable, "-c", PROBES, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT) as probing:
        try:
            assert probing.stdout is not None
            assert probing.stdout.readline() == b"\n"
            for _ in range(1000):
                os.close(lock(tmp_path, mode=0o600))
        finally:
            probing.kill()


@only_root
def test_group_cannot_hold_the_lock_of_a_store() -> None:
    """A member of the group cannot take a shared lock, which would prevent daemons from starting."""
    with open_folder() as folder:
        (folder / store_owner.LOCK).touch(mode=0o640)  # the mode of an earlier version
        held = lock(folder, mode=0o640)
        os.close(held)
        command = ["flock", "--shared", "--nonblock", str(folder / store_owner.LOCK), "true"]
        told = subprocess.run(
            command, user=NOBODY, group=os.getgid(), extra_groups=[], cwd="/", capture_output=True, text=True, check=False
        )
    assert told.returncode != 0
    assert "Permission denied" in told.stderr
