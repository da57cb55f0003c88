"""Tests of the control of the timing process: messages, faults, time limit, and removed files."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import msgspec
import pytest

from gpuwatch.diff import timing_process
from gpuwatch.diff.timed_pair import TimedPair
from gpuwatch.diff.timing_job import TimingJob, TimingTerms, with_launches
from gpuwatch.diff.timing_process import TimingProcess
from gpuwatch.errors import UsageError
from tests.gpuwatch.diff.host_device import kernel_job
from tests.gpuwatch.diff.test_kernel_arguments import SAXPY

JOB = TimingJob(a=kernel_job("f"), b=kernel_job("g"), slots=SAXPY, is_plane=False, terms=TimingTerms())
TIMED = TimedPair(
    "FASTER", "", 1.1, 1.09, 1.11, None, "valid", None, None, launches=("grid=4 block=64 smem=0", "grid=2 block=8 smem=0")
)
BEGIN = """
import json, os, sys, time
out = os.fdopen(int(sys.argv[1]), "w")
size = int.from_bytes(sys.stdin.buffer.read(8), "little")
job = sys.stdin.buffer.read(size)
def say(**message):
    out.write(json.dumps(message) + chr(10)); out.flush()
"""


def process(body: str, said: list[str] | None = None) -> TimingProcess:
    """Return a timing process that runs ``body``, in which ``say`` and ``job`` are defined."""
    return TimingProcess(JOB, (said if said is not None else []).append, [sys.executable, "-c", BEGIN + body])


def answer(timed: TimedPair) -> str:
    return f"say(timed=json.loads({msgspec.json.encode(timed).decode()!r}))\n"


def test_times_are_handed_over_without_a_line() -> None:
    said: list[str] = []
    with process("say(doing='A: first run', limit_s=60)\n" + answer(TIMED), said) as running:
        assert running.time() == TIMED
    assert said == []


def test_lasting_step_reports_its_time_left() -> None:
    """A step that lasts gives a line per interval; here the second line ends the step."""
    lefts_s: list[int] = []

    def read_left(line: str) -> None:
        found = re.fullmatch(r"timing: no end yet; the limit is in (\d+) s", line)
        lefts_s.extend([int(found[1])] if found else [])  # a slow start gives lines too
        if len(lefts_s) == 2:
            running._send(b"end\n")

    body = "say(doing='timing', limit_s=5000)\nsys.stdin.readline()\n" + answer(TIMED)
    with TimingProcess(JOB, read_left, [sys.executable, "-c", BEGIN + body], progress_s=0.1) as running:
        assert running.time() == TIMED
    assert 4000 < lefts_s[1] <= lefts_s[0] <= 5000


def test_endless_step_makes_the_pair_incomparable() -> None:
    """The process is killed, and the reason names the step."""
    with process("say(doing='B: first run', limit_s=0.1)\ntime.sleep(600)") as running:
        timed = running.time()
        pid = running._child.pid
    assert timed.decision == "INCOMPARABLE"
    assert timed.reason.startswith("B: first run: expected an end within 0 s, found none: an endless loop, or too much work")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_fault_names_the_step() -> None:
    with process("say(doing='timing', limit_s=60)\nsay(fault='fails with CUDA_ERROR_ILLEGAL_ADDRESS')") as running:
        assert running.time().reason == "timing: it fails with CUDA_ERROR_ILLEGAL_ADDRESS"


def test_usage_error_is_raised_again() -> None:
    with (
        process("say(usage='--out: expected a buffer')") as running,
        pytest.raises(UsageError, match="--out: expected a buffer"),
    ):
        running.time()


@pytest.mark.parametrize(
    ("body", "kill_s", "says"),
    [
        ("print('out of luck', file=sys.stderr); sys.exit(3)", 60.0, r"ended with 3 \(start\): out of luck"),
        ("out.close(); time.sleep(600)", 0.1, r"stopped answering and did not end within 0\.1 s \(start\): it printed nothing"),
    ],
)
def test_process_without_times_reports_its_end(monkeypatch: pytest.MonkeyPatch, body: str, kill_s: float, says: str) -> None:
    """The error has the exit code and the last output; a process that does not end is killed."""
    monkeypatch.setattr(timing_process, "_KILL_S", kill_s)
    with process(body) as running, pytest.raises(UsageError, match=f"the timing process {says}"):
        running.time()


def test_each_side_can_run_alone_after_timing() -> None:
    body = answer(TIMED) + (
        "for line in sys.stdin:\n    is_asked = line == 'b 0.5\\n'\n"
        "    say(has_run_alone=is_asked, fault='' if is_asked else line)\n"
    )
    with process(body) as running:
        running.time()
        running.run_alone("b", 0.5)


def test_profiled_job_has_known_launches() -> None:
    """A profiled job uses the launches of the timed run, and the job's file is removed with the process."""
    with process(answer(TIMED) + "sys.stdin.read()") as running:
        running.time()
        *_, once, side, file = running.once_command("a")
        assert (once, side) == ("--once", "a")
        job = msgspec.msgpack.decode(Path(file).read_bytes(), type=TimingJob)
    assert job == with_launches(JOB, TIMED.launches)
    assert (job.a, job.terms.checks) == (kernel_job("f", (64, 1, 1), grid=(4, 1, 1)), False)
    assert not Path(file).exists()


def test_timing_job_survives_a_round_trip() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(JOB), type=TimingJob) == JOB
