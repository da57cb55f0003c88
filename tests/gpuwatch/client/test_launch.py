"""Tests of windows that start a daemon."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import load
from gpuwatch.wire.peer import dial_user_daemon
from tests.gpuwatch.live import settings as settings_in
from tests.waiting import PATIENCE_S, sample_for, wait_until


def test_window_without_a_startable_daemon_is_unproven(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    settings = load(
        {"source": "simulated", "state": str(tmp_path / "file" / "state"), "socket": str(tmp_path / "s")},
        environment={"HOME": "/"},
    )
    ran = []
    with gpuwatch.window(settings=settings) as w:
        ran.append(1)
    assert ran == [1]
    assert w.verdict.status is gpuwatch.Status.UNPROVEN
    assert "daemon" in w.verdict.why


def test_meanwhile_runs_once_before_a_started_daemon_answers(tmp_path: Path) -> None:
    settings, answers = settings_in(tmp_path), []
    with connect(settings, meanwhile=lambda: answers.append(dial_user_daemon(settings))) as client:
        client.leave(now=True)
    assert answers == [None]


PROGRAM = """
import os, time
import gpuwatch
from gpuwatch.config import settings as config
busy_machine = gpuwatch.Policy(accept=["dark-time", "idle-stretch", "outliers"])
with gpuwatch.window("first", settings=config.load({flags!r}), policy=busy_machine) as w:
    time.sleep(1.2)
print(w.verdict.status.value, flush=True)
try:
    os.wait()
except ChildProcessError:
    print("childless")
"""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Run a benchmark that is bound to CPU core 0 and starts a daemon; return the daemon's folder and the ended process."""
    folder = tmp_path_factory.mktemp("started")
    flags = dict(flag.lstrip("-").split("=", 1) for flag in settings_in(folder).flags())
    program = folder / "bench.py"
    program.write_text(PROGRAM.format(flags={**flags, "daemon.idle_exit": "4s"}))
    bound = f"import os, runpy, sys; os.sched_setaffinity(0, {{0}}); runpy.run_path({str(program)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", bound], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return folder, done


def test_started_daemon_keeps_neither_pipe_nor_affinity(started: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = started
    assert done.stdout.startswith("valid\n"), done.stderr
    assert "starting a daemon" in done.stderr
    with connect(settings_in(folder), start=False) as client:
        pid = client.status()["pid"]
        assert len(os.sched_getaffinity(pid)) == os.cpu_count()
        assert os.getsid(pid) == pid
        assert b"OPENBLAS_NUM_THREADS=1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        streams = [os.readlink(f"/proc/{pid}/fd/{n}") for n in range(3)]  # noqa: PTH115
        # Standard error is the log, which then has the reason of an unexpected end.
        assert streams == ["/dev/null", "/dev/null", str(settings_in(folder).log)]
        assert client.status()["on_demand"]
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the daemon exits after its last client")


def test_window_leaves_the_benchmark_without_a_child(started: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = started
    assert done.stdout.endswith("childless\n"), done.stderr


def test_window_replaces_another_windows_failed_daemon(tmp_path: Path) -> None:
    """If another window's daemon fails to start, this window starts a new daemon."""
    flags = dict(flag.lstrip("-").split("=", 1) for flag in settings_in(tmp_path).flags())
    settings = load({**flags, "daemon.idle_exit": "1s"}, environment={"HOME": "/"})
    settings.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Like another daemon that starts, holds the lock, and ends before its first answer.
    with Path(f"{settings.socket}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ends = threading.Timer(1.0, fcntl.flock, (lock, fcntl.LOCK_UN))
        ends.start()
        with gpuwatch.window("second", settings=settings) as w:
            sample_for(0.3)
        ends.join()
    assert w.run_id is not None, str(w.verdict)


def test_daemon_failing_before_its_log_is_quoted(tmp_path: Path) -> None:
    """The verdict quotes the message of a daemon that fails before opening the log; no file descriptor stays open."""
    settings = settings_in(tmp_path)
    settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings.log.write_text("2026-01-01 10:00:00,000 INFO gpuwatch.daemon.daemon: stopped\n")
    settings.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    Path(f"{settings.socket}.lock").mkdir()
    descriptors = os.listdir("/proc/self/fd")  # noqa: PTH208 - names are wanted
    with gpuwatch.window("refused", settings=settings) as w:
        pass
    assert f"{settings.socket}.lock: cannot be locked" in str(w.verdict)
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)  # noqa: PTH208


def test_daemon_ending_at_start_is_quoted(tmp_path: Path) -> None:
    """The verdict quotes the message of a daemon that ends during its start; the log of the first attempt is kept."""
    settings = settings_in(tmp_path)
    settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings.log.write_text("the earlier daemon's line\n")
    (settings.state / "lock").mkdir()  # no process can own the store
    with gpuwatch.window("refused", settings=settings) as w:
        pass
    assert "expected a folder that can be written" in str(w.verdict)
    kept = (settings.state / "daemon.log.old").read_text()  # the log of the first of two attempts
    assert "expected a folder that can be written" in kept


def test_second_daemon_leaves_the_store_owners_log(tmp_path: Path) -> None:
    """A daemon that cannot own the store does not replace the log of the store's owner."""
    flags = dict(flag.lstrip("-").split("=", 1) for flag in settings_in(tmp_path).flags())
    settings = load({**flags, "daemon.idle_exit": "1s"}, environment={"HOME": "/"})
    other = load({**flags, "socket": f"{settings.socket}2"}, environment={"HOME": "/"})
    with connect(settings):
        with gpuwatch.window("refused", settings=other) as w:
            pass
        assert "expected a store without a writer" in str(w.verdict)
        log = settings.log.read_text()
    assert "ready: " in log
    assert "expected a store without a writer" in log


def test_window_without_xdg_runtime_dir_makes_a_private_folder(tmp_path: Path) -> None:
    """Without XDG_RUNTIME_DIR, the socket is in a private folder of mode 0700 below TMPDIR."""
    temporary = Path(tempfile.mkdtemp(prefix="t"))  # pytest's own path is too long for a socket
    program = tmp_path / "bench.py"
    program.write_text(PROGRAM.format(flags={"source": "simulated:steady-copy", "daemon.idle_exit": "1s"}))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "TMPDIR": str(temporary),
        "XDG_STATE_HOME": str(tmp_path / "st"),
    }
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=PATIENCE_S, env=environment, check=False
    )
    assert done.stdout.startswith("valid\n"), done.stderr
    (folder,) = temporary.glob("gpuwatch-*")
    assert folder.stat().st_mode & 0o777 == 0o700


def test_foreign_socket_folder_does_not_stop_the_benchmark(tmp_path: Path) -> None:
    """A link in place of the socket folder does not stop the benchmark; the verdict gives the link as the reason."""
    (tmp_path / "in-the-way").symlink_to(tmp_path)
    settings = load(
        {"source": "simulated", "state": str(tmp_path / "state"), "socket": str(tmp_path / "in-the-way" / "s")},
        environment={"HOME": "/"},
    )
    ran = []
    with gpuwatch.window(settings=settings) as w:
        ran.append(1)
    assert ran == [1]
    assert "symbolic link" in w.verdict.why
