"""Tests of the daemon: access rights, signals, refused and malformed requests, and the judge's worker."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest

import gpuwatch
from annotate.verdict import Status, Verdict
from gpuwatch.client.connection import Client, connect
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DaemonError
from gpuwatch.sources.simulated import SCENES
from gpuwatch.store import Reader
from gpuwatch.wire import messages
from tests.busy_machine import BUSY_MACHINE
from tests.faults.stores import committed_ns, last_ns
from tests.gpuwatch import forked
from tests.gpuwatch.forked import REAL_CHILDREN, ForkedPopen
from tests.gpuwatch.live import running
from tests.waiting import PATIENCE_S, let_pass, sample_for, wait_until


def raw(settings: Settings) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(PATIENCE_S)
    connection.connect(str(settings.socket))
    return connection


def answer(connection: socket.socket, line: bytes) -> dict[str, Any]:
    connection.sendall(line + b"\n")
    got = b""
    while not got.endswith(b"\n"):
        piece = connection.recv(65536)
        if not piece:
            return {}
        got += piece
    found: dict[str, Any] = json.loads(got)
    return found


GREETING = messages.encode(messages.Hello(protocol=1, version="test"))
HELLO = GREETING.rstrip()


@pytest.mark.parametrize("most_lost_ns", [None, pytest.param(1_000_000_000, marks=pytest.mark.slow)], ids=["whole", "a second"])
def test_killed_daemon_loses_at_most_a_second(tmp_path: Path, most_lost_ns: int | None) -> None:
    """A daemon killed under open windows loses at most 1 s of readings and leaves the windows unproven.

    Both variants check that everything committed before the kill is stored; only the slow variant checks the limit of 1 s.
    """
    with running(tmp_path) as live:
        windows = [gpuwatch.window(f"w{i}", settings=live.settings) for i in range(5)]
        for w in windows:
            w.__enter__()
        sample_for(2.0)
        committed = wait_until(lambda: committed_ns(live.settings.state), what="readings are committed")
        killed_ns = _now_ns()
        os.kill(live.process.pid, signal.SIGKILL)
        live.process.wait()
        for w in windows:
            w.__exit__(None, None, None)
            assert w.verdict.status is Status.UNPROVEN
            assert "went away" in w.verdict.why
    for path in live.settings.state.glob("*.db"):
        assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    stored = last_ns(live.settings.state)
    assert all(stored[uuid] >= at_ns for uuid, at_ns in committed.items())
    with running(tmp_path) as again, Reader(again.settings.state) as reader:
        runs = reader.runs()
        assert {run.label for run in runs} == {f"w{i}" for i in range(5)}
        assert {run.status for run in runs} == {"unproven"}
        assert all("daemon" in run.why for run in runs)
        (device,) = reader.devices()
        trace = reader.trace(device.uuid, runs[0].boot_id, runs[0].begin_ns, killed_ns)
        assert most_lost_ns is None or killed_ns - trace.column("sm_clock_mhz").at_ns[-1] < most_lost_ns
        with gpuwatch.window("goes on", settings=again.settings) as w:
            sample_for(0.5)
        assert w.verdict.findings


def _now_ns() -> int:
    from gpuwatch import clock

    return clock.now_ns()


def test_second_daemon_on_one_socket_is_refused(tmp_path: Path) -> None:
    """A second daemon on one socket is refused in one line, which names the first daemon."""
    with running(tmp_path) as live:
        second = forked.run([sys.executable, "-m", "gpuwatch", *live.settings.flags(), "daemon"], timeout_s=PATIENCE_S)
        assert second.returncode == 2
        assert f"found the daemon of pid {live.process.pid}, started by a person" in second.stderr
        assert second.stderr.count("\n") == 1


def test_sigterm_ends_the_daemon_and_leaves_plain_files(tmp_path: Path) -> None:
    """SIGTERM ends the daemon with exit code 0; an open window is unproven, and no socket or write-ahead log remains."""
    with running(tmp_path) as live:
        with gpuwatch.window("open at the end", settings=live.settings, policy=BUSY_MACHINE) as w:
            sample_for(1.3)
            live.process.terminate()
            assert live.process.wait(PATIENCE_S) == 0
        assert w.verdict.status is Status.UNPROVEN
        assert not live.settings.socket.exists()
        assert not list(live.settings.state.glob("*-wal"))
        with Reader(live.settings.state) as reader:
            (run,) = reader.runs()
            assert run.status == "unproven"


def test_sighup_rereads_the_configuration(tmp_path: Path) -> None:
    """SIGHUP makes the daemon read the configuration again; an invalid configuration is only reported."""
    config = tmp_path / "config.toml"
    config.write_text('[sampling]\nidle_period = "50ms"\n')
    with running(tmp_path, environment={"GPUWATCH_CONFIG": str(config)}) as live:
        config.write_text('[sampling]\nidle_perio = "20ms"\n')
        live.process.send_signal(signal.SIGHUP)
        wait_until(
            lambda: "did you mean 'sampling.idle_period'" in live.log.read_text(), what="the invalid setting is reported"
        )
        config.write_text('[sampling]\nidle_period = "200ms"\n')
        live.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "configuration read again" in live.log.read_text(), what="the second configuration is read")
        with connect(live.settings) as client:
            begin_ns, before = _now_ns(), client.status()["gpus"][0]["questions"]["fast"]["asked_count"]
            sample_for(3.0)
            asked_count = client.status()["gpus"][0]["questions"]["fast"]["asked_count"] - before
        # 5 Hz instead of 20 Hz.  A busy machine reads more rarely, never more often.
        assert asked_count < 8 * (_now_ns() - begin_ns) / 1e9


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_daemon_of_a_user_refuses_another_user() -> None:
    folder = Path(tempfile.mkdtemp(prefix="gw"))  # pytest's own folders are closed to others
    with running(folder) as live, gpuwatch.window("mine", settings=live.settings) as w:
        # The file modes admit another user, and the kernel's credentials identify that user.
        folder.chmod(0o711)
        live.settings.socket.chmod(0o666)
        reply = _as_nobody(live.settings, GREETING)
        assert json.loads(reply)["code"] == "not-yours"
        sample_for(0.1)
    assert w.run_id


def _as_nobody(settings: Settings, line: bytes) -> bytes:
    """Return the daemon's answer to a process of another user."""
    here, there = os.pipe()
    # The socket is made before the switch, because another user may be unable to read Python's library.
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path = str(settings.socket)
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            connection.connect(path)
            connection.sendall(line)
            os.write(there, connection.recv(4096))
        finally:
            os._exit(0)
    connection.close()
    os.close(there)
    os.waitpid(child, 0)
    with os.fdopen(here, "rb") as answers:
        return answers.read()


def test_close_refuses_unknown_ids_times_and_repeats(copying: Settings) -> None:
    """A close is refused for an unknown window, for impossible times, and for a closed window."""
    with connect(copying) as client:
        opened = client.open(label="once")
        with pytest.raises(DaemonError, match="no window 00000000"):
            client.close_window("00000000", 0, 1)
        with pytest.raises(DaemonError, match="expected begin and end between"):
            client.close_window(opened.run, opened.opened_ns - 10**9, _now_ns())
        with pytest.raises(DaemonError, match="expected begin and end between"):
            client.close_window(opened.run, opened.opened_ns, _now_ns() + 10**12)
        client.close_window(opened.run, opened.opened_ns, _now_ns())
        with pytest.raises(DaemonError, match=r"expected it open, found status [a-z]+; close it once"):
            client.close_window(opened.run, opened.opened_ns, _now_ns())


def test_client_cannot_cut_the_bad_part_off_its_window(tmp_path: Path) -> None:
    """A power limit lowered half-way stays in the window, although the client claims a later start."""
    scene = SCENES["setting-change"]  # the scene repeats, in case the daemon started late
    with running(tmp_path, f"simulated:{scene.name}") as live, connect(live.settings) as client:
        length_s, begin_s = scene.bench[1] - scene.bench[0], client.status()["epoch_ns"] / 1e9 + scene.bench[0]
        while begin_s < _now_ns() / 1e9:
            begin_s += scene.length_s
        let_pass(begin_s - _now_ns() / 1e9, "the scene repeats at this time")
        opened = client.open(policy=BUSY_MACHINE.to_dict())
        sample_for(length_s)
        now_ns = _now_ns()
        client.close_window(opened.run, now_ns - 1_000_000, now_ns)
        judged = client.verdicts(opened.run)
    (verdict,) = judged.verdicts
    assert verdict["end_ns"] - verdict["begin_ns"] > (length_s - 0.3) * 1e9
    (changed,) = (finding for finding in verdict["findings"] if finding["rule"] == "setting-changed")
    # A busy daemon that read the limit late cannot place the change before or after the start, and flags.
    assert changed["severity"] in ("flag", "reject")
    assert judged.status in ("flagged", "rejected")


def test_verdict_is_read_through_a_later_daemon(tmp_path: Path) -> None:
    with running(tmp_path) as live:
        with gpuwatch.window("before", settings=live.settings) as w:
            sample_for(1.1)
        assert w.run_id is not None
        with connect(live.settings) as client:
            (judged,) = client.verdicts(w.run_id).verdicts
    with running(tmp_path):
        assert w.verdict == Verdict.from_dict(judged)
        assert w.verdict.findings


def test_cpu_time_of_an_ended_command_is_stored(copying: Settings) -> None:
    """The CPU time of a command is stored, although the command ends before its window."""
    work = "import time\nend = time.time() + 1.4\nwhile time.time() < end: pass"
    command = [sys.executable, "-m", "gpuwatch", *copying.flags(), "run", "--name", "burner", "--", sys.executable, "-c", work]
    assert forked.run(command, timeout_s=PATIENCE_S).returncode == 0
    with Reader(copying.state) as reader:
        (run,) = reader.runs(label="burner")
    assert run.host is not None
    assert (run.host.cpu_s or 0.0) + (run.host.run_wait_s or 0.0) > 1.0


def test_declared_facts_are_bounded(copying: Settings) -> None:
    with connect(copying) as client:
        with pytest.raises(DaemonError, match="at most 16384 characters"):
            client.open(declared={"much": "x" * 16_000, "more": "x" * 1000})
        with pytest.raises(DaemonError, match=r"told.*: expected at most"):
            client.open(declared={"much": "x" * 20_000})
        with pytest.raises(DaemonError, match="label: expected at most 256"):
            client.open(label="x" * 257)


def test_disconnected_client_leaves_its_window_unproven(copying: Settings) -> None:
    with connect(copying) as client:
        run = client.open(label="abandoned", policy=BUSY_MACHINE.to_dict()).run
        sample_for(1.3)
    with connect(copying) as client:
        judged = client.verdicts(run)
    assert judged.status == "unproven"
    assert "without closing" in judged.why


def test_newer_client_gets_the_daemons_protocol(copying: Settings) -> None:
    client = Client(raw(copying), copying, protocol=messages.PROTOCOL + 7)
    assert client.welcome.protocol == messages.PROTOCOL
    assert client.status()["pid"]
    client.close()


def test_too_old_client_is_refused_with_the_remedy(copying: Settings) -> None:
    with pytest.raises(DaemonError, match="upgrade the client"):
        Client(raw(copying), copying, protocol=0)


NONSENSE: list[tuple[bytes, str]] = [
    (b"", "bad-message"), (b"GET / HTTP/1.1", "bad-message"), (b"\x00\xff\xfe", "bad-message"), (b"{", "bad-message"),
    (b'{"type":"open"', "bad-message"), (b'{"type":"reboot"}', "unknown-message"), (b'{"type":"open","claim":"sustaned"}', "usage"),
    (b'{"type":"open","policy":{"accept":["power-limted"]}}', "usage"), (b'{"type":"open","policy":{"limit":{}}}', "usage"),
    (b'{"type":"open","policy":{"limits":{"power-limited":{"free_ratio":"a"}}}}', "usage"),
    (b'{"type":"close","run":"x","begin_ns":5,"end_ns":1}', "usage"), (b'{"type":"verdicts","run":"../../etc"}', "usage"),
    (b'{"type":"open","told":{"a":{"b":1}}}', "bad-message"), (b'{"type":"hello","protocol":1,"version":"again"}', "bad-message"),
]  # fmt: skip


def test_malformed_requests_keep_the_connection(copying: Settings) -> None:
    with raw(copying) as connection:
        assert answer(connection, HELLO)["type"] == "welcome"
        for line, code in NONSENSE:
            refused = answer(connection, line)
            assert (refused["type"], refused["code"]) == ("refused", code), line
            assert "\n" not in refused["message"]
        assert answer(connection, b'{"type":"status"}')["type"] == "state"


def test_connection_without_a_greeting_is_closed(copying: Settings) -> None:
    """The daemon refuses a first message that is not a greeting, and closes the connection."""
    with raw(copying) as connection:
        assert answer(connection, b'{"type":"status"}')["code"] == "bad-message"
        assert connection.recv(10) == b""


def test_daemon_refuses_a_too_long_line(copying: Settings) -> None:
    with raw(copying) as connection:
        answer(connection, HELLO)
        assert answer(connection, b"x" * (messages.LINE_BYTES + 10))["code"] == "too-long"


def test_too_many_declared_facts_are_refused(copying: Settings) -> None:
    with connect(copying) as client, pytest.raises(DaemonError, match="told: expected at most 256 entries"):
        client.open(declared={f"fact{i}": i for i in range(300)})


def test_parallel_windows_of_many_processes_are_judged(copying: Settings) -> None:
    program = (
        "import sys,time\nimport gpuwatch\nfrom gpuwatch.config import settings as config\n"
        f"s=config.load(dict(source={copying.source!r},state={str(copying.state)!r},socket={str(copying.socket)!r}))\n"
        "ws=[gpuwatch.window(f'{sys.argv[1]}-{i}',settings=s) for i in range(10)]\n"
        "[w.__enter__() for w in ws]\ntime.sleep(1)\n[w.__exit__(None,None,None) for w in ws]\n"
        "print(len([w.verdict for w in ws if w.verdict.findings]))"
    )
    others = [ForkedPopen([sys.executable, "-c", program, str(i)], stdout=subprocess.PIPE, text=True) for i in range(4)]
    assert [other.communicate(timeout=PATIENCE_S)[0].strip() for other in others] == ["10"] * 4


def test_limit_outside_its_range_is_refused_at_open(tmp_path: Path) -> None:
    """The refusal of a policy names the limit and its range, and the next window is judged."""
    with running(tmp_path, environment={REAL_CHILDREN: "1"}) as live, connect(live.settings) as client:
        with pytest.raises(DaemonError, match=r"dark-time\.clock_s: expected a number from 0 to 3600, found -1"):
            client.open(policy={"limits": {"dark-time": {"clock_s": -1}}})
        opened = client.open(policy={"limits": {"dark-time": {"clock_s": 1}}, "tolerance_ratio": 0.005})
        client.close_window(opened.run, opened.opened_ns, _now_ns())
        (verdict,) = client.verdicts(opened.run).verdicts
        assert verdict["policy"]["tolerance_ratio"] == 0.005
        (finding,) = (finding for finding in verdict["findings"] if finding["rule"] == "dark-time")
        assert finding["limits_overridden"] == {"clock_s": {"value": 1.0, "default": 0.25}}
        (worker,) = _judges(live.process.pid)
        opened = client.open()
        client.close_window(opened.run, opened.opened_ns, _now_ns())
        assert client.verdicts(opened.run).verdicts
        assert _judges(live.process.pid) == [worker]  # the worker that judged


def test_judge_worker_starts_with_the_first_window(tmp_path: Path) -> None:
    """An idle daemon has no judge's worker; an open window starts one, which runs at low priority."""
    with running(tmp_path, environment={REAL_CHILDREN: "1"}) as live, connect(live.settings) as client:
        assert _judges(live.process.pid) == []
        opened = client.open()
        (worker,) = wait_until(lambda: _judges(live.process.pid), what="the judge's worker")
        wait_until(lambda: os.getpriority(os.PRIO_PROCESS, worker) > os.getpriority(os.PRIO_PROCESS, live.process.pid))
        client.close_window(opened.run, opened.opened_ns, _now_ns())
        assert client.verdicts(opened.run).verdicts


def _judges(pid: int) -> list[int]:
    """Return the PIDs of this daemon's judge workers."""
    return [each.pid for each in psutil.Process(pid).children() if "gpuwatch.daemon.judge_worker" in each.cmdline()]
