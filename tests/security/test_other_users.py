"""Tests of another user of the machine: access to the system's daemon and to a user's daemon, and foreign folders."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch import clock
from gpuwatch.client.connection import Client, connect
from gpuwatch.config import paths
from gpuwatch.config import settings as config
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DaemonError, UsageError
from gpuwatch.wire import messages as wire
from tests.gpuwatch.live import Live, running, settings, wait_for
from tests.security.people import NOBODY, as_nobody, only_root, open_folder
from tests.waiting import PATIENCE_S

pytestmark = only_root


@pytest.fixture(scope="module")
def shared() -> Iterator[Settings]:
    """Yield the settings of the system's daemon."""
    with open_folder() as folder:
        found = settings(folder)
        log = folder / "log"
        with log.open("ab") as said:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gpuwatch", *found.flags(), "daemon", "--system"], stderr=said, cwd="/"
            )
        try:
            wait_for(found, process, log)
            yield found
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def replies(path: Path, *messages: wire.Message) -> str:
    """Return the replies to the messages after the greeting, one line per message."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(path))
        with connection.makefile("rwb") as line:
            said = []
            for message in (wire.Hello(protocol=1, version="0"), *messages):
                line.write(wire.encode(message))
                line.flush()
                said.append(line.readline().decode())
        return "".join(said[1:])


def test_window_of_another_user_is_inaccessible(shared: Settings) -> None:
    """The user nobody cannot end, close, time, query or see the window of another user."""
    path = shared.socket
    with connect(shared) as client:
        opened = client.open(label="secret-label")
        now_ns = clock.now_ns()
        said = as_nobody(
            lambda: replies(
                path,
                wire.End(run=opened.run, begin_ns=opened.opened_ns, end_ns=now_ns),
                wire.Close(run=opened.run, begin_ns=opened.opened_ns, end_ns=now_ns, declared={"exception": "forged"}),
                wire.Times(run=opened.run, at_ns=bytes(8), took_s=bytes(8)),
                wire.AskVerdicts(run=opened.run, wait_s=0),
                wire.AskReadings(),
                wire.AskStatus(),
            )
        ).splitlines()
        assert len(said) == 6, said
        assert all("no window" in line for line in said[:4]), said
        assert not any("secret-label" in line or opened.run in line for line in said[4:])
        client.close_window(opened.run, opened.opened_ns, clock.now_ns())
        assert client.verdicts(opened.run).status in ("valid", "flagged", "unproven", "rejected")


def test_window_belongs_to_the_kernels_user_of_the_client(shared: Settings) -> None:
    """A window belongs to the kernel's user of the connection, regardless of declared facts."""
    path = shared.socket
    forged = wire.Open(label="forged", parent="0" * 18, declared={"exception": "none", "uid": 0, "user": "root", "pid": 1})
    said = as_nobody(lambda: replies(path, forged))
    assert '"opened"' in said, said
    with connect(shared) as client:
        run = said.partition('"run":"')[2].partition('"')[0]
        client.verdicts(run)  # root has access to all users' windows
    from gpuwatch.store import Reader

    with Reader(shared.state) as reader:
        found = reader.run(run)
        assert (found.uid, found.declared.get("user")) == (NOBODY, "root")  # declared facts are stored unchanged
        assert found.user in (None, "nobody")  # found by PID, or None if the process has ended


def test_declared_facts_beyond_the_limits_are_rejected(shared: Settings) -> None:
    path = shared.socket
    absurd = (
        wire.Open(declared={str(i): i for i in range(300)}), wire.Open(declared={"a": "x" * 20_000}), wire.Open(declared={"x" * 20_000: 1}),
        wire.Open(label="x" * 300), wire.Open(parent="x" * 100),
    )  # fmt: skip
    said = as_nobody(lambda: replies(path, *absurd)).splitlines()
    assert len(said) == len(absurd)
    assert all('"refused"' in line and "expected at most" in line for line in said), said


def test_system_daemon_files_are_closed_outside_its_group(shared: Settings) -> None:
    """Files of the system's daemon are closed to users outside its group."""
    state = shared.state

    def listed() -> str:
        return ",".join(path.name for path in state.iterdir())

    assert "PermissionError" in as_nobody(listed)
    assert "PermissionError" in as_nobody(lambda: (state / "gpuwatch.db").read_bytes().hex()[:8])


@pytest.fixture(scope="module")
def mine() -> Iterator[Live]:
    with open_folder() as folder, running(folder) as live:
        yield live


def test_user_socket_rejects_another_user(mine: Live) -> None:
    assert stat.S_IMODE(mine.settings.socket.stat().st_mode) == 0o600
    assert "PermissionError" in as_nobody(lambda: replies(mine.settings.socket))


def test_client_rejects_a_daemon_of_another_user() -> None:
    with open_folder() as folder:
        os.chown(folder, NOBODY, NOBODY)
        found = settings(folder)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        ready, go = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                listener.bind(str(found.socket))
                listener.listen()
                os.write(go, b"x")
                while True:
                    listener.accept()
            finally:
                os._exit(0)
        os.read(ready, 1)
        try:
            with pytest.raises(DaemonError, match=f"expected a daemon of uid 0 or root, found uid {NOBODY}") as caught:
                connect(found)
            assert caught.value.code == "untrusted"
            with gpuwatch.window("at a squatter's", settings=found) as w:
                pass
            assert w.verdict.status.value == "unproven"
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)


@pytest.mark.parametrize("kind", ["folder", "link", "writable"])
def test_foreign_socket_folder_is_refused(kind: str) -> None:
    """Client and daemon reject a socket folder of another user, a link, and a folder that others may write to."""
    with open_folder() as folder:
        theirs = folder / "gpuwatch-0"
        if kind == "link":
            (folder / "real").mkdir()
            theirs.symlink_to(folder / "real")
            os.chown(theirs, NOBODY, NOBODY, follow_symlinks=False)
        else:
            theirs.mkdir(mode=0o700)
            os.chown(theirs, NOBODY if kind == "folder" else 0, 0)
            theirs.chmod(0o777 if kind == "writable" else 0o700)
        found = config.load(
            {"source": "simulated", "state": str(folder / "state")}, environment={"HOME": "/", "TMPDIR": str(folder)}
        )
        assert found.socket.parent == theirs
        with pytest.raises(UsageError, match="expected a folder"):
            paths.ensure_socket_folder(found.socket)
        daemon = subprocess.run(
            [sys.executable, "-P", "-m", "gpuwatch", *found.flags(), "daemon"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert (daemon.returncode, daemon.stderr.count("\n")) == (2, 1), daemon.stderr
        with gpuwatch.window("at a squatter's", settings=found) as w:
            pass
        assert "expected a folder" in w.verdict.why
        assert not list(theirs.glob("*.sock"))


def test_store_in_a_foreign_temporary_folder_is_refused() -> None:
    """A store in gpuwatch's temporary folder is rejected if that folder belongs to another user."""
    with open_folder() as folder:
        theirs = folder / f"gpuwatch-{os.getuid()}"
        theirs.mkdir()
        os.chown(theirs, NOBODY, NOBODY)
        with pytest.raises(UsageError, match=f"found one of uid {NOBODY}; choose another with --state"):
            paths.ensure_state_folder(theirs / "gpuwatch")
        assert not (theirs / "gpuwatch").exists()


def test_second_connection_may_close_its_users_windows(shared: Settings) -> None:
    with connect(shared) as one, connect(shared) as two:
        opened = one.open(label="shared among mine")
        two.close_window(opened.run, opened.opened_ns, clock.now_ns())
        assert two.verdicts(opened.run).run == opened.run


def test_client_without_a_greeting_gets_no_answer(shared: Settings) -> None:
    """Without a greeting, a request gets an error instead of an answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(shared.socket))
        connection.sendall(wire.encode(wire.AskStatus()))
        assert b"expected hello as the first message" in connection.recv(4096)
    assert isinstance(connect(shared, start=False), Client)
