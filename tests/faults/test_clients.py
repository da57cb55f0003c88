"""Tests of clients that are killed, stopped, forked, threaded, in another PID namespace, or of another user."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch import clock
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DaemonError
from gpuwatch.store import Reader, Run
from tests.gpuwatch import forked
from tests.gpuwatch.live import Live, running
from tests.waiting import PATIENCE_S, sample_for, wait_until

ROOT = Path(__file__).resolve().parents[2]
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Live]:
    """Run a daemon in a folder that another user could reach, because pytest's own folders are closed to others."""
    with tempfile.TemporaryDirectory(prefix="gw-clients-") as name, running(Path(name)) as live:
        yield live


def program(settings: Settings, body: str) -> list[str]:
    """Return the command of a client program for this daemon; ``opened(label)`` makes a window."""
    head = f"""
        import json, os, sys, threading, time
        import gpuwatch
        from gpuwatch.config import settings as config
        settings = config.load(dict(source={settings.source!r}, state={str(settings.state)!r}, socket={str(settings.socket)!r}))
        def opened(label):
            return gpuwatch.window(label, settings=settings)
    """
    return [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(body)]


def said(command: list[str]) -> str:
    """Run a command without an error, and return its output."""
    done = forked.run(command, timeout_s=PATIENCE_S, folder=ROOT)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def judged(live: Live, label: str) -> Run:
    """Return the window of this label once it has a verdict."""

    def found() -> Run | None:
        with Reader(live.settings.state) as reader:
            runs = reader.runs(label=label)
        return runs[0] if runs and runs[0].verdicts else None

    run = wait_until(found, what=f"a verdict of {label!r}", every_s=0.05)
    assert run is not None
    return run


def test_window_of_a_killed_client_is_not_valid(daemon: Live) -> None:
    """The window of a client that is killed inside it is unproven or flagged, with the reason."""
    body = """
        with opened("killed"):
            print("in", flush=True)
            time.sleep(60)
    """
    client = forked.ForkedPopen(program(daemon.settings, body), stdout=subprocess.PIPE, cwd=ROOT)
    assert client.stdout is not None
    assert client.stdout.readline() == b"in\n"
    sample_for(1.2)
    client.kill()
    client.wait()
    client.stdout.close()
    run = judged(daemon, "killed")
    assert run.status in ("unproven", "flagged")  # flagged for a hazard of a busy machine, with the missing evidence
    assert "without closing" in run.why


def test_window_of_a_client_killed_in_a_wait_is_ended(daemon: Live) -> None:
    """The daemon ends the open window of a client that dies while it waits for another verdict."""
    body = """
        from gpuwatch.client.connection import connect
        client = connect(settings)
        print(client.open(label="waiting").run, flush=True)
        client.verdicts(sys.argv[1], wait_s=600.0)
    """
    with connect(daemon.settings) as other:
        awaited = other.open(label="awaited")
        command = [*program(daemon.settings, body), awaited.run]
        client = forked.ForkedPopen(command, stdout=subprocess.PIPE, cwd=ROOT)
        assert client.stdout is not None
        waiting = client.stdout.readline().decode().strip()
        client.kill()
        client.wait()
        client.stdout.close()
        with connect(daemon.settings) as third:
            found = third.verdicts(waiting, wait_s=PATIENCE_S)
        assert found.status not in ("open", "closing", "judging")
        assert "without closing" in judged(daemon, "waiting").why
        other.close_window(awaited.run, awaited.opened_ns, clock.now_ns())
        assert other.verdicts(awaited.run).verdicts


def test_verdict_of_an_open_window_of_the_client_is_refused(daemon: Live) -> None:
    """The daemon refuses to wait for a window that is open on the same connection; another connection may ask and close it."""
    with connect(daemon.settings) as client:
        opened = client.open(label="own")
        with pytest.raises(DaemonError, match="found it open on this connection; close it first"):
            client.verdicts(opened.run, wait_s=1.0)
        with connect(daemon.settings) as other:
            assert other.verdicts(opened.run, wait_s=0.0).status == "open"
            other.close_window(opened.run, opened.opened_ns, clock.now_ns())
        assert client.verdicts(opened.run).verdicts  # another connection of this user closed the window


def test_stopped_client_keeps_its_window_and_blocks_no_other(daemon: Live) -> None:
    body = """
        with opened("stopped"):
            print("in", flush=True)
            time.sleep(0.5)
        print(bool(opened.__name__))
    """
    client = forked.ForkedPopen(program(daemon.settings, body), stdout=subprocess.PIPE, cwd=ROOT)
    assert client.stdout is not None
    client.stdout.readline()
    os.kill(client.pid, signal.SIGSTOP)
    with gpuwatch.window("meanwhile", settings=daemon.settings) as w:
        pass
    assert w.run_id is not None
    os.kill(client.pid, signal.SIGCONT)
    assert client.wait(PATIENCE_S) == 0
    client.stdout.close()
    assert "without closing" not in judged(daemon, "stopped").why


FORKED = """
    with opened("parent") as w:
        child = os.fork()
        if child == 0:
            {child}
            os._exit(7)
        _, status = os.waitpid(child, 0)
        time.sleep(0.3)
    print(os.waitstatus_to_exitcode(status), w.verdict.why, bool(w.verdict.findings))
"""


@pytest.mark.parametrize(
    ("child", "exit_code"),
    [
        ("pass", 7),  # ends inside the window
        ("w.__exit__(None, None, None); assert 'forked child' in w.verdict.why; os._exit(3)", 3),
        ("w.record([0.1, 0.2]); w.__exit__(None, None, None); os._exit(4)", 4),
        ("v = opened('of the child').__enter__(); v.__exit__(None, None, None); assert v.verdict.findings; os._exit(5)", 5),
    ],
    ids=["ends", "leaves the block", "records", "opens its own"],
)
def test_forked_child_does_not_disturb_the_parents_window(daemon: Live, child: str, exit_code: int) -> None:
    code, _, findings = said(program(daemon.settings, FORKED.format(child=child))).partition(" ")
    assert int(code) == exit_code
    assert findings.strip().endswith("True"), findings


def test_child_forked_at_a_daemon_start_opens_windows(tmp_path: Path) -> None:
    """A child forked while another thread starts a daemon can open windows: no held lock is inherited."""
    body = """
        begun = threading.Event()
        def first():
            begun.set()
            opened("first").__enter__()
        other = threading.Thread(target=first, daemon=True)
        other.start()
        begun.wait()
        time.sleep(0.05)
        child = os.fork()
        if child == 0:
            w = opened("of the child").__enter__()
            w.__exit__(None, None, None)
            os._exit(0 if w.run_id else 1)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
        import signal
        os.kill(gpuwatch.client.connection.connect(settings).welcome.pid, signal.SIGTERM)
    """
    from tests.gpuwatch.live import settings

    assert said(program(settings(tmp_path), body)).strip() == "0"


def test_windows_of_threads_stay_separate(daemon: Live) -> None:
    """Windows of eight threads have correct parents, labels and verdicts."""
    body = """
        found = {}
        def work(number):
            windows = []
            for i in range(2):
                with opened(f"thread {number}.{i}") as w:
                    with opened(f"inner {number}.{i}") as inner:
                        time.sleep(0.01)
                assert inner.parent is w and w.parent is None
                windows.append(w)
            found[number] = [bool(w.verdict.findings) and w.verdict.label for w in windows]
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        print(json.dumps(found))
    """
    found = json.loads(said(program(daemon.settings, body)))
    assert found == {str(n): [f"thread {n}.{i}" for i in range(2)] for n in range(8)}


@as_root
def test_client_in_a_pid_namespace_has_its_outer_pid(daemon: Live) -> None:
    """The daemon stores the outer PID of a client in a separate PID namespace."""
    body = """
        with opened("in a namespace") as w:
            time.sleep(0.3)
        print(os.getpid(), bool(w.verdict.findings))
    """
    done = subprocess.run(
        ["unshare", "-pf", "--mount-proc", *program(daemon.settings, body)], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        cwd=ROOT,
    )  # fmt: skip
    if "Operation not permitted" in done.stderr:
        pytest.skip("this machine permits no PID namespace")
    assert done.stdout.split() == ["1", "True"], done.stderr
    run = judged(daemon, "in a namespace")
    assert run.pid > 1
    assert run.pid in run.pids
    assert run.process is not None


@as_root
def test_daemon_in_a_pid_namespace_reports_hidden_processes(tmp_path: Path) -> None:
    """A window from outside the daemon's PID namespace is unproven with a remedy; a window that names its GPU is judged."""
    from tests.gpuwatch.live import settings, wait_for

    found, log = settings(tmp_path), tmp_path / "log"
    with log.open("ab") as file:
        command = ["unshare", "-pf", "--mount-proc", "--kill-child", sys.executable, "-m", "gpuwatch", *found.flags(), "daemon"]
        process = subprocess.Popen(command, stderr=file, cwd=ROOT)
    try:
        wait_for(found, process, log)
        with gpuwatch.window("from outside", settings=found) as w:
            sample_for(0.3)
        assert w.run_id is not None
        assert w.verdict.status == "unproven"
        assert "--pid=host in Docker" in w.verdict.why
        with connect(found) as client:
            uuid = client.status()["gpus"][0]["uuid"]
        with gpuwatch.window("named", settings=found, gpus=[uuid]) as w:
            sample_for(0.3)
        assert w.verdict.findings
    finally:
        process.kill()
        process.wait()


@as_root
def test_other_users_client_is_refused_and_its_code_runs(daemon: Live) -> None:
    """Another user's client is refused with the remedy to start a daemon, and its code runs."""
    folder = daemon.settings.socket.parent
    folder.chmod(0o755)
    daemon.settings.socket.chmod(0o666)
    body = """
        with opened("not mine") as w:
            print("ran", flush=True)
        print(w.verdict.status.value, w.verdict.why)
    """
    command = program(daemon.settings, body)
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command], capture_output=True, text=True, timeout=PATIENCE_S,
        check=False, cwd="/", env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
    )  # fmt: skip
    if "Permission denied" in done.stderr and not done.stdout:
        pytest.skip("another user cannot read this interpreter")
    assert done.stdout.startswith("ran\nunproven "), done.stderr
    assert "this daemon serves uid 0, not 65534; start your own" in done.stdout
    assert "Traceback" not in done.stderr
