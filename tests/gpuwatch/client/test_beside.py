"""Tests that declared other work and pauses of the host reach the judge."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuwatch
from annotate.evidence import Evidence
from gpuwatch import clock
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError
from gpuwatch.process.span_log import SpanLog
from gpuwatch.store import Reader
from tests.gpuwatch.live import running
from tests.waiting import let_pass, wait_until


@pytest.fixture(scope="module")
def copying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Run a daemon on a simulated GPU that copies without end."""
    with running(tmp_path_factory.mktemp("beside")) as daemon:
        yield daemon.settings


def stored(window: gpuwatch.Window, settings: Settings) -> Evidence:
    """Return the packed evidence, after a comparison with the evidence from stored rows."""
    assert window.verdict
    with Reader(settings.state) as reader:
        run = reader.run(window.run_id or "")
        (uuid,) = run.uuids
        again = reader.evidence(run, uuid)
        wait_until(lambda: reader.packed(run, uuid) is not None, what="the evidence is packed")
        packed = reader.evidence(run, uuid)
    assert packed.pauses == again.pauses
    assert (packed.other_work is None) == (again.other_work is None)
    return packed


def piece(seconds: float = 0.05) -> None:
    let_pass(seconds, "the piece takes this time")


class Knot:
    """An object that only the garbage collector frees."""

    def __init__(self) -> None:
        self.self = self


def collect_something() -> None:
    knots = [Knot() for _ in range(20_000)]
    del knots
    gc.collect()


class TestOtherWork:
    def test_other_work_is_stored_apart_from_the_times(self, copying: Settings) -> None:
        """Flushes and checks are stored with start times and durations, and are not timed entries."""
        with gpuwatch.window(settings=copying) as w:
            for _ in w.iterations(3):
                piece()
                with w.other_work("flush"):
                    piece(0.02)
            with w.other_work("check"):
                piece()
        evidence = stored(w, copying)
        assert evidence.timings is not None
        assert len(evidence.timings.took_s) == 3
        other = evidence.other_work
        assert other is not None
        assert other.kinds == ("flush", "flush", "flush", "check")
        assert (other.took_s >= 0.019).all()
        assert all(evidence.window.begin_ns < begin < end < evidence.window.end_ns for begin, end in other.spans_ns)

    def test_other_work_alone_gives_no_timings(self, copying: Settings) -> None:
        with gpuwatch.window(settings=copying) as w, w.other_work("warm-up"):
            piece()
        evidence = stored(w, copying)
        assert evidence.timings is None
        assert evidence.other_work is not None
        assert evidence.other_work.kinds == ("warm-up",)

    def test_recorded_times_and_other_work_are_both_stored(self, copying: Settings) -> None:
        with gpuwatch.window(settings=copying) as w:
            piece()
            w.record([0.05])
            with w.other_work("flush"):
                piece()
        evidence = stored(w, copying)
        assert evidence.timings is not None
        assert evidence.timings.took_s.tolist() == [0.05]
        assert evidence.other_work is not None

    @pytest.mark.parametrize("kind", ["", "x" * 65, 3])
    def test_other_work_refuses_a_wrong_word(self, copying: Settings, kind: str) -> None:
        with gpuwatch.window(settings=copying) as w, pytest.raises(UsageError, match="expected a word"):
            w.other_work(kind)

    def test_other_work_outside_the_block_is_refused(self, copying: Settings) -> None:
        with pytest.raises(UsageError, match="inside the window"):
            gpuwatch.window(settings=copying).other_work("flush")


class TestPauses:
    def test_garbage_collections_are_stored_as_pauses(self, copying: Settings) -> None:
        with gpuwatch.window(settings=copying) as w:
            collect_something()
        pauses = [pause for pause in stored(w, copying).pauses if pause.cause == "collector"]
        assert pauses
        assert w.begin_ns is not None
        assert w.end_ns is not None
        assert all(w.begin_ns <= pause.begin_ns < pause.end_ns <= w.end_ns for pause in pauses)

    def test_window_removes_its_collector_callback(self, copying: Settings) -> None:
        before = list(gc.callbacks)
        with gpuwatch.window(settings=copying):
            assert len(gc.callbacks) == len(before) + 1
        assert gc.callbacks == before

    def test_inner_window_pauses_the_outer_one(self, copying: Settings) -> None:
        """The opening and the close of a nested window are stored in the outer window as hand-over pauses."""
        with gpuwatch.window("outer", settings=copying) as outer:
            with gpuwatch.window("inner", settings=copying) as inner:
                piece()
                inner.record([0.05])
            piece()
        ours = [pause for pause in stored(outer, copying).pauses if pause.cause == "hand-over"]
        assert inner.begin_ns is not None
        assert inner.end_ns is not None
        assert any(pause.end_ns <= inner.end_ns for pause in ours)
        assert any(pause.begin_ns >= inner.end_ns for pause in ours)
        assert [pause.cause for pause in stored(inner, copying).pauses if pause.cause == "hand-over"] == ["hand-over"]


class TestSpanLog:
    def test_span_log_keeps_the_longest_pauses(self) -> None:
        log = SpanLog("pauses", 10)
        number = log.number_of("collector")
        for length_ns in range(1, 101):
            log.add(1000, 1000 + length_ns, number)
        (message,) = log.messages("run")
        ends_ns = memoryview(message.end_ns).cast("q").tolist()
        assert len(ends_ns) <= 10
        assert min(ends_ns) > 1080
        assert max(ends_ns) == 1100

    def test_span_log_merges_words_beyond_the_limit(self) -> None:
        log = SpanLog("other")
        for number in range(100):
            log.add(number, number + 1, log.number_of(f"word {number}"))
        (message,) = log.messages("run")
        assert len(message.names) == 32
        assert message.names[message.named[99]] == "other"

    def test_span_log_splits_many_pieces_into_messages(self) -> None:
        log = SpanLog("other")
        number = log.number_of("flush")
        for at_ns in range(50_000):
            log.add(at_ns, at_ns + 1, number)
        assert [len(message.named) for message in log.messages("run")] == [20_000, 20_000, 10_000]


LOOP = """
import gc, sys
import gpuwatch
from gpuwatch.config import settings as config
found = config.load({flags!r})
COUNT = 2000
with gpuwatch.window(settings=found) as w:
    modules = set(sys.modules)
    gc.collect()
    gc.disable()
    w.record([1e-4])
    for number in w.iterations(COUNT):
        if number == 100:
            before = gc.get_count()[0]
    iterated = gc.get_count()[0] - before
    before = gc.get_count()[0]
    times = [1e-4]
    for _ in range(COUNT):
        w.record(times)
    recorded = gc.get_count()[0] - before
    imported = sorted(set(sys.modules) - modules)
print(iterated, recorded, imported, w.verdict.status.value)
"""


def test_window_calls_create_no_tracked_object_or_import(copying: Settings) -> None:
    """1900 iterations and 2000 recorded times each add fewer than 20 tracked objects, and import no module."""
    flags = dict(flag.lstrip("-").split("=", 1) for flag in copying.flags())
    done = subprocess.run([sys.executable, "-c", LOOP.format(flags=flags)], capture_output=True, text=True, check=True)
    iterated, recorded, rest = done.stdout.split(" ", 2)
    assert abs(int(iterated)) < 20
    assert abs(int(recorded)) < 20
    assert rest.startswith("[] ")


def test_window_without_spans_has_unobserved_other_work(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        with gpuwatch.window(settings=daemon.settings) as w:
            piece()
        assert stored(w, daemon.settings).other_work is None


def test_evidence_names_the_program_by_a_digest(copying: Settings) -> None:
    """Two windows of one process have the same program digest of 16 characters."""
    found = []
    for _ in range(2):
        with gpuwatch.window(settings=copying) as w:
            piece()
        found.append(stored(w, copying).window.program)
    assert found[0] == found[1]
    assert found[0] is not None
    assert len(found[0]) == 16


def test_waits_for_a_cpu_core_are_pauses(copying: Settings) -> None:
    """Busy processes on the launching thread's only CPU core cause run-queue pauses in the evidence."""
    allowed = os.sched_getaffinity(0)
    if not os.path.exists("/proc/self/schedstat"):  # noqa: PTH110
        pytest.skip("this kernel counts no waits")
    processor = {min(allowed)}
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        for hog in hogs:
            os.sched_setaffinity(hog.pid, processor)
        with gpuwatch.window(settings=copying) as w:
            os.sched_setaffinity(0, processor)
            until_ns = clock.now_ns() + 1_500_000_000
            while clock.now_ns() < until_ns:
                pass
            os.sched_setaffinity(0, allowed)
    finally:
        os.sched_setaffinity(0, allowed)
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert "run-queue" in {pause.cause for pause in stored(w, copying).pauses}
