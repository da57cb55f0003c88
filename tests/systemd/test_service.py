"""Tests of the daemon as a service: its messages to the manager, the watchdog, and sockets from the manager."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch.client.connection import connect
from gpuwatch.daemon import server
from gpuwatch.errors import StoreError
from gpuwatch.store import Reader
from gpuwatch.wire import messages
from tests.gpuwatch.live import settings
from tests.systemd.manager import manager, service
from tests.waiting import PATIENCE_S

WATCHDOG = {"WATCHDOG_USEC": "1000000"}


def ready(message: dict[str, str]) -> bool:
    return "READY" in message


def fed(message: dict[str, str]) -> bool:
    return "WATCHDOG" in message


def test_service_notifies_its_manager(tmp_path: Path) -> None:
    """The daemon sends READY, feeds the watchdog, reloads, and reports its stop."""
    with manager(tmp_path / "notify") as notified:
        flags = settings(tmp_path).flags()
        with service(notified, [*flags, "daemon"], log=tmp_path / "log", environment=WATCHDOG) as process:
            assert "1 × SIMULATED NVIDIA H200" in notified.until(ready)["STATUS"]
            with connect(settings(tmp_path), start=False) as client:  # READY means that the daemon answers
                assert client.status()["pid"] == process.pid
            sent = notified.during(2.2)
            assert 3 <= sum(map(fed, sent)) <= 5
            rate_hz = float(sent[-1]["STATUS"].partition(" at ")[2].partition(" Hz")[0])
            assert 5 < rate_hz < 25
            assert sent[-1]["STATUS"].endswith("; 0 windows")
            process.send_signal(signal.SIGHUP)
            assert int(notified.until(lambda sent: "RELOADING" in sent)["MONOTONIC_USEC"]) > 0
            notified.until(ready, 5.0)
            process.terminate()
            notified.until(lambda sent: sent.get("STOPPING") == "1", 5.0)
            assert process.wait(PATIENCE_S) == 0


def test_service_starts_without_a_driver(tmp_path: Path) -> None:
    """Without a working driver the daemon sends READY, reports the state, and keeps running."""
    with manager(tmp_path / "notify") as notified:
        flags = settings(tmp_path, "auto").flags()
        environment = {**WATCHDOG, "LD_LIBRARY_PATH": str(_broken_driver(tmp_path))}
        with service(notified, [*flags, "daemon"], log=tmp_path / "log", environment=environment) as process:
            assert notified.until(ready)["STATUS"].startswith("no GPU to watch: ")
            assert any(map(fed, notified.during(1.2)))
            assert process.poll() is None


def _broken_driver(folder: Path) -> Path:
    """Return a folder with an invalid libnvidia-ml.so.1, for LD_LIBRARY_PATH."""
    libraries = folder / "libraries"
    libraries.mkdir()
    (libraries / "libnvidia-ml.so.1").write_bytes(b"not a library")
    return libraries


def test_watchdog_waits_for_a_hung_sampler(tmp_path: Path) -> None:
    """A hung sampler stops the watchdog's messages until its GPU is declared lost after five seconds.

    The status then names the lost GPU, and later the GPU that answers again.
    """
    flag = tmp_path / "hang"
    launcher = [sys.executable, "-m", "tests.systemd.hanging", str(flag)]
    with manager(tmp_path / "notify") as notified:
        flags = settings(tmp_path).flags()
        with service(notified, [*flags, "daemon"], log=tmp_path / "log", environment=WATCHDOG, launcher=launcher):
            notified.until(ready)
            notified.until(fed)
            flag.touch()
            notified.until(lambda sent: "no reading of GPU-" in sent.get("STATUS", ""), 5.0)
            assert not any(map(fed, notified.during(2.0)))
            sent = notified.until(fed, 8.0)
            assert sent["STATUS"].startswith("no GPU answers; GPU-")
            assert "lost: no answer for 5 s" in sent["STATUS"]
            flag.unlink()
            notified.until(lambda sent: fed(sent) and sent["STATUS"].startswith("1 × SIMULATED"), 5.0)


def _listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(8)
    return listener


def test_service_socket_outlives_the_daemon(tmp_path: Path) -> None:
    """The daemon serves a socket from the manager, and clients of the socket wait for the next daemon."""
    found = settings(tmp_path)
    with _listening(found.socket) as listener, manager(tmp_path / "notify") as notified:
        early = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        early.connect(str(found.socket))  # the client waits, because no daemon runs yet
        with service(notified, [*found.flags(), "daemon"], log=tmp_path / "log", sockets=[listener]) as first:
            notified.until(ready)
            early.settimeout(PATIENCE_S)
            early.sendall(b"nonsense\n")
            assert b'"bad-message"' in early.recv(4096)
            early.close()
        assert stat.S_ISSOCK(found.socket.stat().st_mode)
        # A client that asks between two daemons gets its answer from the next one, on the same connection.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waiting:
            waiting.connect(str(found.socket))
            waiting.sendall(HELLO + b"\n")
            waiting.setblocking(False)
            with pytest.raises(BlockingIOError):  # connected, and neither answered nor closed
                waiting.recv(1)
            with service(notified, [*found.flags(), "daemon"], log=tmp_path / "log", sockets=[listener]) as second:
                waiting.settimeout(PATIENCE_S)
                with waiting.makefile("rb") as replies:
                    assert json.loads(replies.readline())["pid"] == second.pid != first.pid


@pytest.mark.parametrize("kind", ["elsewhere", "tcp", "two"])
def test_service_rejects_a_socket_at_another_place(tmp_path: Path, kind: str) -> None:
    found = settings(tmp_path)
    sockets = [_listening(tmp_path / "elsewhere")] if kind == "elsewhere" else [socket.create_server(("127.0.0.1", 0))]
    if kind == "two":
        sockets = [_listening(found.socket)] * 2
    with (
        manager(tmp_path / "notify") as notified,
        service(notified, [*found.flags(), "daemon"], log=tmp_path / "log", sockets=sockets) as process,
    ):
        assert process.wait(PATIENCE_S) == 2
    assert "gpuwatch: LISTEN_FDS: expected " in (tmp_path / "log").read_text()
    sockets[0].close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yield a folder that other users may enter, unlike pytest's folders."""
    with tempfile.TemporaryDirectory(prefix="gw") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_system_daemon_serves_every_user(open_folder: Path) -> None:
    """The system's daemon serves every user, hides other users' windows, and lets the group read the store.

    One connection too many of a user is refused, and others can still connect.
    """
    found = settings(open_folder)

    def labels() -> str:
        try:
            with Reader(found.state) as reader:
                return ",".join(str(run.label) for run in reader.runs())
        except (StoreError, OSError) as error:
            return f"refused: {error}"

    with manager(open_folder / "notify") as notified:
        with service(
            notified, [*found.flags(), "daemon", "--system"], log=open_folder / "log", environment={"PATH": os.environ["PATH"]}
        ):
            notified.until(ready)
            with gpuwatch.window("of root", settings=found) as mine:
                pass
            assert mine.verdict.findings
            assert stat.S_IMODE(found.socket.stat().st_mode) == 0o666
            assert stat.S_IMODE(found.state.stat().st_mode) == 0o750
            assert {stat.S_IMODE(path.stat().st_mode) for path in found.state.glob("*.db*")} == {0o640}
            asked = f'{{"type":"verdicts","run":"{mine.run_id}"}}'.encode()
            welcome, foreign, opened = as_another(lambda: _answers(found.socket, [HELLO, asked, OPEN])).splitlines()
            assert '"welcome"' in welcome
            assert "no window" in foreign  # the answer does not reveal the window's existence
            assert '"opened"' in opened
            assert '"busy"' in as_another(lambda: _last_of_many(found.socket, server.USER_CONNECTIONS_COUNT + 1))
            connect(found, start=False).close()  # other users can still connect
            # While the daemon runs, the write-ahead log is open, and readers may not write to the log.
            assert "of root" in as_another(labels, gids=[os.getgid()])
            assert as_another(labels).startswith("refused: ")
        # After the end of the daemon.
        assert "theirs,of root" in as_another(labels, gids=[os.getgid()])


HELLO = messages.encode(messages.Hello(protocol=1, version="test")).rstrip()
OPEN = messages.encode(messages.Open(label="theirs")).rstrip()


def _answers(path: Path, lines: Sequence[bytes]) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(path))
        received = []
        with connection.makefile("rb") as replies:
            for line in lines:
                connection.sendall(line + b"\n")
                received.append(replies.readline().decode().strip())
        return "\n".join(received)


def _last_of_many(path: Path, count: int) -> str:
    """Open ``count`` connections, and return the answer to the last one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    connections = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(count)]
    for connection in connections:
        connection.connect(str(path))
    connections[-1].settimeout(PATIENCE_S)
    return connections[-1].recv(4096).decode()


def as_another(work: Callable[[], str], gids: Sequence[int] = ()) -> str:
    """Run a function as the user nobody with these groups, and return its result."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(gids)
            os.setgid(65534)
            os.setuid(65534)
            os.write(there, work().encode())
        finally:
            os._exit(0)
    os.close(there)
    os.waitpid(child, 0)
    with os.fdopen(here, "rb") as answers:
        return answers.read().decode()
