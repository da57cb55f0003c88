"""Tests of the socket record in the state folder, by which clients with another default socket find the user's daemon."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from gpuwatch.client.connection import connect
from gpuwatch.config.settings import load
from gpuwatch.errors import DaemonError
from gpuwatch.wire import store_owner
from tests.gpuwatch.live import ended
from tests.security.people import NOBODY, only_root
from tests.waiting import wait_until

SOURCE = "simulated:steady-copy"
WINDOW = """
import threading, gpuwatch
with gpuwatch.window("one") as w:
    threading.Event().wait(0.5)
print(f"reached {w.run_id}" if w.run_id else w.verdict.why, flush=True)
"""


@dataclass(frozen=True)
class Home:
    """One user's home, with the environments of a login session and of cron."""

    login: dict[str, str]
    cron: dict[str, str]

    def run(self, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    def daemon_pid(self, environment: dict[str, str]) -> int:
        settings = load({"source": SOURCE}, environment=environment)
        with connect(settings, start=False) as client:
            return client.welcome.pid


@pytest.fixture
def home() -> Iterator[Home]:
    with tempfile.TemporaryDirectory(prefix="gw") as name:  # pytest's own path is too long for a socket
        runtime = Path(name) / "run"
        runtime.mkdir(mode=0o700)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("GPUWATCH_", "XDG_"))}
        cron = {**kept, "HOME": name, "TMPDIR": name, "GPUWATCH_SOURCE": SOURCE, "GPUWATCH_DAEMON_IDLE_EXIT": "60s"}
        cron["PYTHONPATH"] = str(Path(__file__).parents[3])
        found = Home({**cron, "XDG_RUNTIME_DIR": str(runtime)}, cron)
        try:
            yield found
        finally:
            for environment in (found.login, found.cron):
                try:
                    pid = found.daemon_pid(environment)
                except DaemonError:
                    continue
                os.kill(pid, signal.SIGTERM)
                wait_until(partial(ended, pid))


@pytest.mark.parametrize("first", ["login", "cron"])
def test_windows_of_login_and_cron_share_one_daemon(home: Home, first: str) -> None:
    """Login and cron share one daemon, although XDG_RUNTIME_DIR changes the default socket."""
    order = (home.login, home.cron) if first == "login" else (home.cron, home.login)
    assert home.run(order[0], "-c", WINDOW).stdout.startswith("reached"), "the first window starts the daemon"
    second = home.run(order[1], "-c", WINDOW)
    assert second.stdout.startswith("reached"), (second.stdout, second.stderr)
    assert "starting a daemon" not in second.stderr
    assert home.daemon_pid(home.login) == home.daemon_pid(home.cron)


def test_commands_find_the_daemon_of_another_default_socket(home: Home) -> None:
    home.run(home.login, "-c", WINDOW)
    top = home.run(home.cron, "-m", "gpuwatch", "top", "--once")
    assert (top.returncode, "SIMULATED" in top.stdout) == (0, True), top.stderr
    assert f"pid {home.daemon_pid(home.login)}" in home.run(home.cron, "-m", "gpuwatch", "doctor").stdout
    run = home.run(home.cron, "-m", "gpuwatch", "run", "--", "true")
    assert (run.returncode, "no verdict" in run.stderr) == (0, False), run.stderr


def test_simultaneous_first_windows_share_one_daemon(home: Home) -> None:
    programs = [
        subprocess.Popen([sys.executable, "-c", WINDOW], env=each, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for each in (home.login, home.cron)
    ]
    for program in programs:
        out, err = program.communicate(timeout=120)
        assert out.startswith("reached"), (out, err)
    assert home.daemon_pid(home.login) == home.daemon_pid(home.cron)


def test_record_of_a_dead_daemon_does_not_hinder_a_new_one(home: Home) -> None:
    home.run(home.login, "-c", WINDOW)
    pid = home.daemon_pid(home.login)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: ended(pid))
    assert home.run(home.cron, "-c", WINDOW).stdout.startswith("reached")
    assert home.daemon_pid(home.cron) == home.daemon_pid(home.login) != pid


def test_stopping_daemon_removes_its_socket_record(home: Home) -> None:
    home.run(home.login, "-c", WINDOW)
    state = load({"source": SOURCE}, environment=home.login).state
    pid = home.daemon_pid(home.cron)
    assert store_owner.recorded_socket(state) == load({"source": SOURCE}, environment=home.login).socket
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: ended(pid))
    assert store_owner.recorded_socket(state) is None


class TestAlone:
    def test_socket_record_is_removed_only_for_its_socket(self, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir(mode=0o700)
        path = tmp_path / "run" / "s"
        store_owner.record_socket(tmp_path, path, mode=0o600)
        assert store_owner.recorded_socket(tmp_path) == path
        assert (tmp_path / store_owner.NAME).stat().st_mode & 0o777 == 0o600
        store_owner.forget_socket(tmp_path, tmp_path / "run" / "other")
        assert store_owner.recorded_socket(tmp_path) == path
        store_owner.forget_socket(tmp_path, path)
        assert store_owner.recorded_socket(tmp_path) is None
        assert [each.name for each in tmp_path.iterdir()] == ["run"]

    @pytest.mark.parametrize("content", [b"", b"\n", b"relative/s\n", b"/" + b"x" * 200, b"/a\0b\n", b"\xff\xfe"])
    def test_invalid_socket_record_is_ignored(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / store_owner.NAME).write_bytes(content)
        assert store_owner.recorded_socket(tmp_path) is None

    @pytest.mark.parametrize("kind", ["link", "pipe", "folder", "writable", "open folder"])
    def test_unsafe_socket_record_is_ignored(self, tmp_path: Path, kind: str) -> None:
        """A record is ignored if others can write the record or the socket's folder, or if the record is not a plain file."""
        (tmp_path / "run").mkdir(mode=0o700)
        store_owner.record_socket(tmp_path, tmp_path / "run" / "s", mode=0o600)
        record = tmp_path / store_owner.NAME
        if kind == "writable":
            record.chmod(0o666)
        elif kind == "open folder":
            (tmp_path / "run").chmod(0o777)
        else:
            record.rename(tmp_path / "real")
            if kind == "link":
                record.symlink_to(tmp_path / "real")
            elif kind == "pipe":
                os.mkfifo(record)
            else:
                record.mkdir()
        assert store_owner.recorded_socket(tmp_path) is None

    @only_root
    @pytest.mark.parametrize("theirs", ["record", "folder"])
    def test_socket_record_of_another_user_is_ignored(self, tmp_path: Path, theirs: str) -> None:
        (tmp_path / "run").mkdir(mode=0o700)
        store_owner.record_socket(tmp_path, tmp_path / "run" / "s", mode=0o600)
        os.chown(tmp_path / (store_owner.NAME if theirs == "record" else "run"), NOBODY, NOBODY)
        assert store_owner.recorded_socket(tmp_path) is None

    @only_root
    def test_recorded_socket_of_another_user_is_not_trusted(self, home: Home) -> None:
        """A client refuses another user's listener at the recorded path, because the kernel identifies the peer."""
        settings = load({"source": SOURCE}, environment=home.cron)
        path = Path(home.login["XDG_RUNTIME_DIR"]) / "gpuwatch" / "s"
        path.parent.mkdir(mode=0o700)
        settings.state.mkdir(parents=True, mode=0o700)
        store_owner.record_socket(settings.state, path, mode=0o600)
        ready, go = os.pipe()
        child = os.fork()
        if child == 0:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
                os.setuid(NOBODY)
                listener.listen()
                os.write(go, b"x")
                signal.pause()
        os.read(ready, 1)
        try:
            with pytest.raises(DaemonError, match=f"found uid {NOBODY}"):
                connect(settings, start=False)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
