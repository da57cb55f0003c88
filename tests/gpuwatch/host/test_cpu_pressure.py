"""Tests of threads and processes that started between two snapshots of a tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

import gpuwatch
from gpuwatch import clock
from gpuwatch.config.settings import Settings
from gpuwatch.host import cpu_pressure
from gpuwatch.host.cpu_pressure import Pressure, difference
from tests.gpuwatch import forked
from tests.waiting import PATIENCE_S, let_pass, sample_for

MS = 1_000_000


def look(at_ns: int, **threads: tuple[int, int]) -> Pressure:
    """Return a snapshot of threads named ``tTHREAD_PROCESS``, each with its running and waiting time."""
    named = [(name[1:].split("_"), ran) for name, ran in threads.items()]
    return Pressure(
        at_ns=at_ns,
        threads={int(thread): ran for (thread, _), ran in named},
        owners={int(thread): int(owner) for (thread, owner), _ in named},
    )


def test_new_threads_and_processes_count_separately() -> None:
    """A new thread of a known process and a new process are counted separately, with all their CPU time."""
    before = look(0, t1_1=(5 * MS, 0))
    after = look(10**9, t1_1=(905 * MS, 0), t2_1=(50 * MS, 0), t7_7=(20 * MS, 0), t8_7=(30 * MS, 0))
    host = difference(before, after)
    assert (host.threads_born_count, host.processes_born_count, host.born_cpu_s) == (1, 1, 0.1)


def test_tree_without_new_threads_counts_zero() -> None:
    host = difference(look(0, t1_1=(0, 0), t2_1=(0, 0)), look(10**9, t1_1=(9 * MS, 0)))
    assert (host.threads_born_count, host.processes_born_count, host.born_cpu_s) == (0, 0, 0.0)


def test_waiting_root_has_no_companions() -> None:
    """Counts are unknown for a root that only starts the work and waits, whenever the work started."""
    after = look(10**9, t1_1=(20 * MS, 0), t7_7=(800 * MS, 0), t8_7=(100 * MS, 0))
    for before in (look(0, t1_1=(0, 0)), look(0, t1_1=(0, 0), t7_7=(0, 0))):
        host = difference(before, after, root=1)
        assert (host.threads_born_count, host.processes_born_count, host.born_cpu_s) == (None, None, None)


def test_sleeping_tree_with_new_processes_is_unknown() -> None:
    """In a sleeping tree with a new process, the counts are unknown; without new processes, the counts are zero."""
    host = difference(look(0, t1_1=(0, 0)), look(3 * 10**9, t1_1=(5 * MS, 0), t7_7=(1 * MS, 0)), root=1)
    assert (host.threads_born_count, host.processes_born_count, host.born_cpu_s) == (None, None, None)
    alone = difference(look(0, t1_1=(0, 0)), look(3 * 10**9, t1_1=(5 * MS, 0)), root=1)
    assert (alone.threads_born_count, alone.processes_born_count) == (0, 0)


def test_busy_thread_of_a_waiting_root_is_a_companion() -> None:
    host = difference(look(0, t1_1=(0, 0)), look(10**9, t1_1=(1 * MS, 0), t2_1=(900 * MS, 0)), root=1)
    assert (host.threads_born_count, host.born_cpu_s) == (1, 0.9)


def test_first_snapshot_without_threads_gives_no_counts() -> None:
    assert difference(Pressure(at_ns=0), look(10**9, t1_1=(1, 0))).threads_born_count is None


def test_real_thread_and_real_process_are_counted() -> None:
    before = cpu_pressure.pressure([os.getpid()])
    done, spun = threading.Event(), 0
    thread = threading.Thread(target=done.wait)
    thread.start()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        while sum(ran for ran, _ in cpu_pressure.pressure([os.getpid()]).threads.values()) < (
            sum(ran for ran, _ in before.threads.values()) + 200 * MS
        ):
            spun += 1
        host = difference(before, cpu_pressure.pressure([os.getpid(), child.pid]))
    finally:
        done.set()
        thread.join()
        child.communicate(b"\n")
    assert host.threads_born_count == 1
    assert host.processes_born_count == 1
    assert host.born_cpu_s is not None


def spin(seconds: float) -> None:
    end_ns = clock.now_ns() + int(seconds * 1e9)
    while clock.now_ns() < end_ns:
        pass


@pytest.mark.parametrize("after_s", [0.0, 0.4], ids=["at once", "later"])
def test_thread_that_computes_during_a_window_is_found(copying: Settings, after_s: float) -> None:
    let_pass(0.05, "the kernel records a thread's start in steps of 10 ms")
    with gpuwatch.window("companion", settings=copying) as w:
        let_pass(after_s, "the daemon reads the process tree after the window has opened")
        thread = threading.Thread(target=spin, args=(0.8,))
        thread.start()
        sample_for(0.5)
    finding = w.verdict.finding("background-thread")
    thread.join()
    assert finding.severity == "flag", finding
    assert finding.says.startswith("1 thread started")


def test_command_of_gpuwatch_run_is_not_a_companion(copying: Settings) -> None:
    """In a window of `gpuwatch run`, the command is the work, and ``background-thread`` is unobserved."""
    work = "from tests.gpuwatch.host.test_cpu_pressure import spin; spin(1.2)"
    given = [sys.executable, "-m", "gpuwatch", *copying.flags(), "run", "--json", "-", "--", sys.executable, "-c", work]
    done = forked.run(given, timeout_s=PATIENCE_S)
    verdict = json.loads(done.stdout)["verdicts"][0]
    (finding,) = [each for each in verdict["findings"] if each["rule"] == "background-thread"]
    assert finding["answered"] == "unobserved", finding
