"""Tests of gpuwatch mark: windows that one command begins and another command ends."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings
from gpuwatch.store import Reader
from tests.gpuwatch.cli.conftest import Ended, Gpuwatch
from tests.gpuwatch.live import running, settings
from tests.waiting import PATIENCE_S, let_pass, wait_until

BEGIN, END = ("mark", "begin"), ("mark", "end")


def mark(gpuwatch: Gpuwatch, found: Settings, *arguments: str) -> Ended:
    return gpuwatch(*found.flags(), "mark", *arguments)


def windows_count(found: Settings) -> int:
    with connect(found, start=False) as client:
        count: int = client.status()["windows_count"]
    return count


def test_mark_end_prints_and_stores_the_verdict(gpuwatch: Gpuwatch, daemon: Settings) -> None:
    """`mark end` prints the verdict and `show` prints the measured processes; a used name and a second end fail."""
    begun = mark(gpuwatch, daemon, "begin", "job", "--expires", "1min", "--claim", "sustained")
    assert (begun.code, begun.out) == (0, "")
    owner = "this session" if os.getsid(0) else "all your commands that entered this container"
    assert f"mark job is open for 1min, measuring {owner} (run " in begun.err
    assert "expected an unused name" in mark(gpuwatch, daemon, "begin", "job").err
    let_pass(0.3, "the window has a length")
    ended = mark(gpuwatch, daemon, "end", "job", "--json", "--fail-on", "rejected")
    assert ended.code == 0, ended.out + ended.err
    assert ended.data["label"] == "job"
    (verdict,) = ended.data["verdicts"]
    assert verdict["label"] == "job"
    assert verdict["device"]["name"] == "SIMULATED NVIDIA H200"
    shown = gpuwatch(*daemon.flags(), "show", ended.data["run"])
    assert f"stated: own work: session{'' if os.getsid(0) else 's of user'} " in shown.err
    again = mark(gpuwatch, daemon, "end", "job")
    assert (again.code, again.out) == (1, "")
    assert "mark 'job': expected the name of your open mark, found none" in again.err


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a PID namespace")
def test_mark_in_entered_container_measures_the_user(tmp_path: Path) -> None:
    """In a PID namespace that was entered, as by `docker exec`, a mark measures the user's sessions started outside."""
    flags = settings(tmp_path).flags()
    line = shlex.join([sys.executable, "-m", "gpuwatch", *flags, "mark"])
    script = f"{line} begin job && {line} end job --json --fail-on rejected"
    ran = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    with Reader(tmp_path / "state") as reader:
        (run,) = reader.runs()
    assert run.declared["own_processes"] == f"sessions of user {os.getuid()} started outside this PID namespace"


def test_mark_end_reports_an_expired_mark(gpuwatch: Gpuwatch, daemon: Settings) -> None:
    assert mark(gpuwatch, daemon, "begin", "left", "--expires", "1s").code == 0
    wait_until(lambda: windows_count(daemon) == 0, what="the mark expires and is judged")
    ended = mark(gpuwatch, daemon, "end", "left", "--fail-on", "unproven")
    assert ended.code == 12
    assert "UNPROVEN" in ended.out
    assert mark(gpuwatch, daemon, "end", "left", "--calls", "9", "--call-time", "1ms").out == ended.out
    assert "the mark expired after 1 s without `gpuwatch mark end`" in ended.out
    again = mark(gpuwatch, daemon, "end", "left")
    assert (again.code, again.out, again.err) == (0, ended.out, "")


def test_mark_of_trusted_code_refuses_a_claimed_number(gpuwatch: Gpuwatch, daemon: Settings) -> None:
    assert mark(gpuwatch, daemon, "begin", "trusted").code == 0
    refused = mark(gpuwatch, daemon, "end", "trusted", "--calls", "10")
    assert (refused.code, refused.out) == (2, "")
    assert "--calls, --call-time: expected a mark begun with --untrusted, found 'trusted'" in refused.err
    assert mark(gpuwatch, daemon, "end", "trusted").code == 0


def test_mark_of_untrusted_code_checks_the_claimed_number(gpuwatch: Gpuwatch, daemon: Settings) -> None:
    """The judge compares the number claimed at the end with the work stated at the start."""
    stated = ("--untrusted", "--work", "flops=1.4e11,dtype=bf16")
    assert mark(gpuwatch, daemon, "begin", "submission", *stated).code == 0
    let_pass(1.2, "the judge checks a claimed number in windows of at least 1 s")
    ended = mark(gpuwatch, daemon, "end", "submission", "--calls", "1000", "--call-time", "2us", "--fail-on", "rejected")
    assert ended.code == 11, ended.out
    assert "claimed-work" in ended.out
    assert "a call of the stated work takes" in ended.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("begin", ""), "mark begin: expected NAME, found an empty text"),
        (("begin", "n" * 65), "NAME: expected 1 to 64 characters, found 65"),
        (("begin", "a", "--expires", "soon"), "--expires: expected a duration with its unit"),
        (("begin", "a", "--expires", "0.5s"), "--expires: expected 1 s to 31 d, found 0.5s"),
        (("begin", "a", "--own", "user", "--pid", "1"), "--pid: expected no --own with it, found --own user"),
        (("begin", "a", "--work", "flops=1"), "--work: expected --untrusted with it"),
        (("begin", "a", "--untrusted", "--work", "flops=many"), "--work: expected flops=COUNT"),
        (("end", "a", "--call-time", "2us"), "--call-time: expected --calls with it"),
        (("end", "a", "--calls", "1", "--call-time", "0s"), "--call-time: expected more than 0 s"),
        (("end", "a", "--calls", "1", "--call-time", "fast"), "--call-time: expected a duration"),
    ],
)
def test_mark_reports_wrong_input_in_one_line(
    gpuwatch: Gpuwatch, daemon: Settings, arguments: tuple[str, ...], message: str
) -> None:
    ended = mark(gpuwatch, daemon, *arguments)
    assert ended.code in (1, 2)
    assert message in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.skipif(shutil.which("hyperfine") is None, reason="hyperfine is not installed")
def test_mark_surrounds_the_runs_of_hyperfine(daemon: Settings) -> None:
    """The command of hyperfine's --cleanup ends the mark that --setup began, in another process of the same session."""
    command = " ".join([sys.executable, "-m", "gpuwatch", *daemon.flags(), "mark"])
    done = subprocess.run(
        ["hyperfine", "-N", "--runs", "2", "--setup", f"{command} begin hyper", "--cleanup", f"{command} end hyper", "--show-output",
         "sleep 0.1"],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "SIMULATED  hyper  SIMULATED NVIDIA H200" in done.stdout


def test_mark_end_reports_a_mark_of_an_earlier_daemon(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """After a restart of the daemon, `mark end` finds a lost mark and an expired mark in the store."""
    found = settings(tmp_path)
    with running(tmp_path) as live:
        assert mark(gpuwatch, found, "begin", "kept").code == 0
        wait_until(lambda: "kept" in gpuwatch(*found.flags(), "audit").out, what="the open window is stored")
        live.process.send_signal(signal.SIGKILL)
        live.process.wait(PATIENCE_S)
    with running(tmp_path):
        ended = mark(gpuwatch, found, "end", "kept", "--fail-on", "unproven")
        assert ended.code == 12, ended.err
        assert "mark kept was lost when its daemon ended; its window is unproven" in ended.err
        assert "the daemon ended while the window was open" in ended.out
        assert "a mark does not outlive its daemon" in mark(gpuwatch, found, "end", "other").err
        assert mark(gpuwatch, found, "begin", "left", "--expires", "1s").code == 0
        wait_until(lambda: windows_count(found) == 0, what="the mark expires and is judged")
    with running(tmp_path):
        ended = mark(gpuwatch, found, "end", "left")
        assert "mark left is not open: the mark expired after 1 s without `gpuwatch mark end`" in ended.err
