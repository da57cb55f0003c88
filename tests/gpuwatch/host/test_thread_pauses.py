"""Tests of pauses of the launching thread: the cause that fills at least half of an interval between two readings."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from annotate.evidence import Pause
from gpuwatch.host.thread_pauses import ThreadLook, look_at, pause_between

MS = 1_000_000
BEFORE = ThreadLook(at_ns=0, waited_ns=7 * MS, minor_faults_count=100, major_faults_count=3)


@pytest.mark.parametrize(
    ("after", "cause"),
    [
        (ThreadLook(100 * MS, 57 * MS, 100, 3), "run-queue"),
        (ThreadLook(100 * MS, 56 * MS, 100, 3), None),
        (ThreadLook(100 * MS, 7 * MS, 100_100, 3), "page-faults"),
        (ThreadLook(100 * MS, 7 * MS, 100, 503), "page-faults"),
        (ThreadLook(100 * MS, 7 * MS, 1100, 103), None),
        (ThreadLook(0, 7 * MS, 100, 3), None),
    ],
)
def test_cause_that_fills_half_of_an_interval_is_a_pause(after: ThreadLook, cause: str | None) -> None:
    assert pause_between(BEFORE, after) == (None if cause is None else Pause(0, after.at_ns, cause))


def test_look_reads_the_counters_of_a_thread(tmp_path: Path) -> None:
    """A thread's counters are read although the program's name has spaces and parentheses."""
    for thread, waited in ((7, 1000), (9, 2000)):
        folder = tmp_path / "7" / "task" / str(thread)
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(f"5 {waited} 3\n")
        (folder / "stat").write_text(f"{thread} (a (b) c) S 1 7 7 0 -1 4194304 110 0 12 0 40 9 0 0 20 0 1\n")
    first, other = look_at(7, proc=tmp_path), look_at(7, 9, proc=tmp_path)
    assert first is not None
    assert other is not None
    assert (first.waited_ns, other.waited_ns) == (1000, 2000)
    assert (first.minor_faults_count, first.major_faults_count) == (110, 12)
    assert look_at(7, 8, proc=tmp_path) is None


def test_counters_of_this_thread_are_readable() -> None:
    found = look_at(os.getpid(), threading.get_native_id())
    assert found is not None
    assert found.minor_faults_count > 0
