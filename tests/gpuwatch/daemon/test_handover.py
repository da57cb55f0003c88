"""Tests of the hand-over between daemons, of `gpuwatch.start()`, and of `gpuwatch daemon stop` and `gpuwatch daemon status`."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import gpuwatch
from gpuwatch.cli import main
from gpuwatch.client.connection import connect, connect_at
from gpuwatch.config.settings import Settings, load
from gpuwatch.daemon import handover
from gpuwatch.errors import DaemonError, UsageError
from gpuwatch.store import Reader
from gpuwatch.wire import messages
from tests.gpuwatch import forked
from tests.gpuwatch.forked import ForkedPopen
from tests.gpuwatch.live import ended, running, settings, wait_for
from tests.systemd.manager import manager, service
from tests.systemd.test_service import ready
from tests.waiting import PATIENCE_S, let_pass, wait_until


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


def second_daemon(found: Settings) -> Ended:
    """Start a daemon that must be refused, and return its exit code and output."""
    words = [sys.executable, "-m", "gpuwatch", *found.flags(), "daemon"]
    done = forked.run(words, timeout_s=PATIENCE_S)
    return Ended(done.returncode, done.stdout, done.stderr)


def command(found: Settings, *arguments: str) -> Ended:
    """Run `gpuwatch daemon stop` or `status` in this process."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main([*found.flags(), "daemon", *arguments])
    return Ended(code, out.getvalue(), err.getvalue())


@pytest.fixture
def on_demand(tmp_path: Path) -> Iterator[Settings]:
    """Yield the settings of a daemon that its first client has started."""
    flags = dict(flag.lstrip("-").split("=", 1) for flag in settings(tmp_path).flags())
    found = load({**flags, "daemon.idle_exit": "300s"}, environment={"HOME": "/"})
    with forked.daemons_of_windows(), connect(found) as client:
        pid = client.welcome.pid
    try:
        yield found
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: ended(pid))


def pid_at(found: Settings) -> int:
    with connect(found, start=False) as client:
        return client.welcome.pid


def test_persons_daemon_replaces_an_on_demand_daemon(on_demand: Settings, tmp_path: Path) -> None:
    """A person's daemon replaces an on-demand daemon: earlier windows stay stored, later windows reach the new daemon."""
    with gpuwatch.window("before", settings=on_demand) as w:
        pass
    first = pid_at(on_demand)
    assert w.run_id is not None
    with running(tmp_path) as live:
        wait_until(lambda: answers(live.settings, live.process.pid))
        assert ended(first)
        with gpuwatch.window("after", settings=live.settings) as w:
            pass
        assert w.run_id is not None
        assert (
            f"taking over from the daemon that a window started (pid {first}, {live.settings.socket})" in live.log.read_text()
        )
    with Reader(on_demand.state) as reader:
        assert {run.label: run.status in ("open", "closing", "judging") for run in reader.runs()} == {
            "before": False,
            "after": False,
        }


def test_takeover_finds_the_store_owner_at_another_socket(on_demand: Settings, tmp_path: Path) -> None:
    """A daemon that takes over a store reaches the store's owner at another socket."""
    first = pid_at(on_demand)
    other = load(
        {"source": on_demand.source, "state": str(on_demand.state), "socket": f"{on_demand.socket}2"}, environment={"HOME": "/"}
    )
    with (tmp_path / "log2").open("wb") as log:
        process = ForkedPopen([sys.executable, "-m", "gpuwatch", *other.flags(), "daemon"], stderr=log)
    try:
        wait_for(other, process, tmp_path / "log2")
        assert ended(first)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def test_takeover_waits_for_an_open_window_and_loses_nothing(on_demand: Settings, tmp_path: Path) -> None:
    with gpuwatch.window("open meanwhile", settings=on_demand) as w:
        with (tmp_path / "log").open("wb") as log:
            process = ForkedPopen([sys.executable, "-m", "gpuwatch", *on_demand.flags(), "daemon"], stderr=log)
        wait_until(lambda: "1 window is open or being judged; waiting 30 s" in (tmp_path / "log").read_text())
        assert process.poll() is None
    try:
        assert w.verdict.findings, w.verdict.why
        wait_until(lambda: answers(on_demand, process.pid))
        with gpuwatch.window("of the second", settings=on_demand) as w:
            pass
        assert w.run_id is not None
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def answers(found: Settings, pid: int) -> bool:
    try:
        return pid_at(found) == pid
    except DaemonError:
        return False


def test_windows_opened_during_a_takeover_are_all_watched(on_demand: Settings, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        process = ForkedPopen([sys.executable, "-m", "gpuwatch", *on_demand.flags(), "daemon"], stderr=log)
    try:
        ids = []
        while not answers(on_demand, process.pid):
            assert process.poll() is None, (tmp_path / "log").read_text()
            with gpuwatch.window("meanwhile", settings=on_demand) as w:
                pass
            assert w.run_id is not None, w.verdict.why
            assert w.verdicts
            ids.append(w.run_id)
            let_pass(0.12, "the second daemon repeats its request every 100 ms")
        assert ids
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
    with Reader(on_demand.state) as reader:
        assert {run.id for run in reader.runs()} >= set(ids)


def test_window_of_a_leaving_daemon_goes_to_the_next(copying: Settings, tmp_path: Path) -> None:
    """A window goes to the next daemon if the first one leaves between the greeting and the request."""
    place = tmp_path / "leaving"
    found = load({"source": copying.source, "state": str(copying.state), "socket": str(place)}, environment={"HOME": "/"})
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(place))
        listener.listen()
        leaving = threading.Thread(target=greet_and_leave, args=(listener, place, copying))
        leaving.start()
        with gpuwatch.window("meanwhile", settings=found) as w:
            pass
        leaving.join()
    assert w.run_id is not None, w.verdict.why
    assert w.verdicts


def greet_and_leave(listener: socket.socket, place: Path, successor: Settings) -> None:
    connection, _ = listener.accept()
    connection.recv(1 << 16)
    place.unlink()
    place.symlink_to(successor.socket)
    welcome = messages.Welcome(
        protocol=messages.PROTOCOL,
        version="0",
        source=successor.source,
        simulated=True,
        state=str(successor.state),
        pid=1,
        boot_id="b",
    )
    connection.sendall(messages.encode(welcome))
    connection.close()


def test_start_keeps_or_starts_a_daemon(on_demand: Settings) -> None:
    pid = pid_at(on_demand)
    gpuwatch.start(on_demand)
    assert pid_at(on_demand) == pid
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: ended(pid))
    with forked.daemons_of_windows():
        gpuwatch.start(on_demand)
    again = pid_at(on_demand)
    os.kill(again, signal.SIGTERM)
    wait_until(lambda: ended(again))


def test_start_raises_nothing_without_a_daemon(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = load({"state": str(tmp_path / "file" / "state"), "socket": str(tmp_path / "s")}, environment={"HOME": "/"})
    with forked.daemons_of_windows():
        gpuwatch.start(found)


def test_leaving_daemon_accepts_no_windows(on_demand: Settings) -> None:
    """A leaving daemon closes the connection of a greeted client that opens a window."""
    pid = pid_at(on_demand)
    with connect(on_demand) as client, connect(on_demand) as stopping:
        opened = client.open(label="keeps the daemon busy with its end")
        with connect(on_demand) as late:
            late.status()
            stopping.leave(now=True)
            with pytest.raises(DaemonError, match="went away"):
                late.open(label="late")
    wait_until(lambda: ended(pid), what="the daemon has stored its windows")
    with Reader(on_demand.state) as reader:
        assert [run.id for run in reader.runs()] == [opened.run]


def test_refused_takeover_names_pid_socket_and_command(copying: Settings) -> None:
    second = second_daemon(copying)
    assert second.code == 2
    assert second.err.count("\n") == 1
    for words in (f"pid {pid_at(copying)}", str(copying.socket), handover.stop_command(copying.socket)):
        assert words in second.err


def test_leave_request_fails_while_a_window_stays_open(on_demand: Settings) -> None:
    with connect(on_demand) as client:
        client.open(label="long")
        asking = connect_at(on_demand.socket, on_demand)
        assert asking is not None
        notes: list[str] = []
        with asking, pytest.raises(DaemonError, match="1 window is open or being judged") as caught:
            handover.ask_to_leave(asking, wait_s=0.3, tell=notes.append)
        assert caught.value.code == "windows-open"
        assert len(notes) == 1


def test_refusal_names_a_silent_lock_holder(tmp_path: Path) -> None:
    """The refusal has the PID and socket of a stopped lock holder, and the command that ends the holder."""
    with running(tmp_path) as live:
        os.kill(live.process.pid, signal.SIGSTOP)
        try:
            refused = second_daemon(live.settings)
        finally:
            os.kill(live.process.pid, signal.SIGCONT)
        assert refused.code == 2
        assert f"kill {live.process.pid}" in refused.err
        assert str(live.settings.socket) in refused.err


class TestStop:
    def test_stop_ends_and_reports_the_daemon(self, on_demand: Settings) -> None:
        pid = pid_at(on_demand)
        done = command(on_demand, "stop", "--json")
        assert (done.code, done.data) == (0, {"schema": 1, "stopped": True, "pid": pid, "socket": str(on_demand.socket)}), (
            done.err
        )
        wait_until(lambda: ended(pid))
        assert not on_demand.socket.exists()
        again = command(on_demand, "stop")
        assert (again.code, again.out) == (0, f"no daemon runs at {on_demand.socket}: nothing to stop\n")

    def test_stop_finds_the_daemon_by_its_socket_alone(self, on_demand: Settings) -> None:
        """`stop` finds the daemon by `--socket` alone, as in the command that a refusal suggests."""
        pid = pid_at(on_demand)
        words = handover.stop_command(on_demand.socket).split()[1:]
        done = forked.run([sys.executable, "-m", "gpuwatch", *words], timeout_s=PATIENCE_S)
        assert (done.returncode, f"pid {pid}" in done.stdout) == (0, True), done.stderr

    def test_stop_without_now_fails_with_an_open_window(self, on_demand: Settings) -> None:
        with gpuwatch.window("open", settings=on_demand) as w:
            refused = command(on_demand, "stop", "--wait", "300ms")
            assert refused.code == 1
            assert (
                "1 window is open or being judged; wait longer with --wait, or end the windows as unproven with --now"
                in refused.err
            )
            assert command(on_demand, "stop", "--now").code == 0
        assert w.verdict.status.value == "unproven"
        with Reader(on_demand.state) as reader:
            assert [run.status for run in reader.runs()] not in (["open"], ["closing"])

    def test_stop_leaves_a_service_to_its_manager(self, tmp_path: Path) -> None:
        found = settings(tmp_path)
        with (
            manager(tmp_path / "notify") as notified,
            service(notified, [*found.flags(), "daemon"], log=tmp_path / "log") as process,
        ):
            notified.until(ready)
            refused = command(found, "stop", "--json")
            assert (refused.code, refused.data["error"]["code"]) == (1, "service")
            assert "systemctl stop gpuwatch.socket gpuwatch.service" in refused.err
            assert command(found, "status", "--json").data["started_by"] == "service"
            assert process.poll() is None

    def test_stop_refuses_an_invalid_duration(self, tmp_path: Path) -> None:
        refused = command(settings(tmp_path), "stop", "--wait", "soon")
        assert (refused.code, "--wait: expected a duration" in refused.err) == (2, True)


class TestStatus:
    def test_status_without_a_daemon_exits_with_1(self, tmp_path: Path) -> None:
        found = settings(tmp_path)
        done = command(found, "status", "--json")
        assert (done.code, done.data["running"], done.data["socket"]) == (1, False, str(found.socket))
        assert command(found, "status").out.startswith(f"no daemon runs at {found.socket}")

    def test_status_reports_pid_paths_and_windows(self, tmp_path: Path) -> None:
        with running(tmp_path, environment={"GPUWATCH_LISTEN": "127.0.0.1:0"}) as live, connect(live.settings) as client:
            client.open(label="one")
            done = command(live.settings, "status", "--json")
            assert done.code == 0
            assert {name: done.data[name] for name in ("running", "pid", "socket", "state", "started_by", "clients_count")} == {
                "running": True, "pid": live.process.pid, "socket": str(live.settings.socket),
                "state": str(live.settings.state), "started_by": "person", "clients_count": 1,
            }  # fmt: skip
            assert done.data["windows_count"] == 1
            assert done.data["metrics"].startswith("http://127.0.0.1:")
            text = command(live.settings, "status").out
            for words in (f"pid {live.process.pid}", str(live.settings.socket), "by a person", "1 open or being judged"):
                assert words in text

    def test_status_reports_a_daemon_started_by_a_window(self, on_demand: Settings) -> None:
        assert command(on_demand, "status", "--json").data["started_by"] == "window"
        assert "by a window, on demand" in command(on_demand, "status").out


def test_make_room_rejects_a_persons_daemon(tmp_path: Path) -> None:
    with (
        running(tmp_path) as live,
        pytest.raises(UsageError, match=f"found the daemon of pid {live.process.pid}, started by a person"),
    ):
        handover.make_room(live.settings, lambda _: None, is_handed=False)
