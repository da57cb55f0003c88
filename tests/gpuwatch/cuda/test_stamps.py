"""Tests of stamps and marks on a mock GPU: clocks, times, and the ownership and release of buffers."""

from __future__ import annotations

import logging
import sys
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpuwatch
from gpuwatch.client import testimony as testimonies
from gpuwatch.config.settings import load
from gpuwatch.cuda import canary, event_marks
from gpuwatch.cuda.event_marks import CudaMarks
from gpuwatch.cuda.stamp import Stamps
from gpuwatch.cuda.stamp_buffers import free_pending, keep_room
from tests.gpuwatch.cuda.pretended import CLOCK_MHZ, SMS_COUNT, Cuda, Driver
from tests.waiting import let_pass


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    made = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=made))
    return made


@pytest.fixture
def gpu(cuda: Cuda) -> Driver:
    return Driver()


def stamps(gpu: Driver, count: int = 2) -> Stamps:
    made = Stamps.allocate(count, gpu)
    assert made is not None
    return made


class TestStamps:
    def test_stamps_give_clock_between_them(self, gpu: Driver) -> None:
        """Two stamps give the clock between them, and a full buffer accepts no third."""
        made = stamps(gpu)
        numbers = []
        for _ in range(3):
            numbers.append(made.put())
            let_pass(0.01, "time lies between two stamps")
        assert (numbers, made.used) == ([0, 1, -1], 2)
        stamped = made.read()
        assert stamped.at_ns.shape == (2, SMS_COUNT)
        assert stamped.mean_mhz(0, 1) == pytest.approx(CLOCK_MHZ, rel=1e-3)
        made.clear()
        assert (made.used, made.put(), made.used) == (0, 0, 1)

    def test_capture_prevents_stamps(self, gpu: Driver, cuda: Cuda) -> None:
        made = stamps(gpu)
        cuda.capturing = True
        assert Stamps.allocate(2, gpu) is None
        assert made.put() == -1
        assert made.put(during_capture=True) == 0

    def test_threads_stamp_separate_rows(self, gpu: Driver) -> None:
        made = stamps(gpu, 400)
        numbers: list[int] = []
        threads = [threading.Thread(target=lambda: numbers.extend(made.put() for _ in range(100))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(numbers) == list(range(400))
        assert (made.read().at_ns > 0).all()

    def test_small_buffer_is_reused_and_large_buffer_is_freed(self, gpu: Driver) -> None:
        small, large = stamps(gpu), stamps(gpu, 100)
        for each in (small, large):
            each.close()
        assert (len(gpu.memory), len(gpu.freed)) == (1, 1)
        again = stamps(gpu)
        assert (len(gpu.memory), again.used, again.put()) == (1, 0, 0)

    def test_room_for_iterations_is_allocated_once(self, gpu: Driver) -> None:
        """With enough memory, one buffer serves the iterations of successive windows, and a second buffer is freed."""
        gpu.free_bytes = 8 << 30
        keep_room(gpu)
        kept = set(gpu.memory)
        for count in (100, 20_000, 32_768):
            keep_room(gpu)
            made = stamps(gpu, count)
            assert set(gpu.memory) == kept
            assert made.count >= count
            made.close()
        first, second = stamps(gpu, 100), stamps(gpu, 100)
        first.close()
        second.close()
        assert set(gpu.memory) == kept

    def test_room_that_cannot_be_reused_is_freed(self, gpu: Driver) -> None:
        gpu.free_bytes = 8 << 30
        for _ in range(3):
            keep_room(gpu)
            gpu.refuses = "cuLaunchKernel"
            with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_VALUE"):
                Stamps.allocate(100, gpu)
            gpu.refuses = ""
        free_pending()
        assert not gpu.memory

    def test_room_is_not_kept_without_a_numbered_context(self, cuda: Cuda) -> None:
        """After a reset, the room's address may have another owner, and zeroing would destroy that owner's data."""
        gpu = Driver(numbered=False, free_bytes=8 << 30)
        keep_room(gpu)
        assert not gpu.memory

    def test_room_is_not_kept_on_a_full_gpu(self, gpu: Driver) -> None:
        keep_room(gpu)
        stamps(gpu, 100).close()
        assert not gpu.memory

    def test_buffer_released_twice_is_reused_once(self, gpu: Driver) -> None:
        made = stamps(gpu)
        made.close()
        made.close()
        first, second = stamps(gpu), stamps(gpu)
        first.put()
        assert (len(gpu.memory), second.used, made.put()) == (2, 0, -1)
        with pytest.raises(RuntimeError, match="closed"):
            made.read()

    @pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "by address alone"])
    def test_buffer_of_reset_context_is_never_freed(self, cuda: Cuda, numbered: bool) -> None:
        gpu = Driver(numbered=numbered)
        for count in (2, 100):
            stamps(gpu, count).close()
        freed_count = len(gpu.freed)
        gpu.reset()
        made = stamps(gpu)
        assert (made.put(), made.put()) == (0, 1)
        assert made.read().mean_mhz(0, 1) is not None
        assert gpu.loaded_count == 2
        assert len(gpu.freed) == freed_count

    def test_buffer_is_freed_in_its_own_context(self, gpu: Driver) -> None:
        """A buffer that is released in another context is freed later, in its own context."""
        made = stamps(gpu, 100)
        own = gpu.context
        gpu.context = 0x2000
        made.close()
        assert not gpu.freed
        gpu.context = own
        stamps(gpu, 50)
        assert len(gpu.freed) == 1

    def test_buffer_released_in_capture_is_freed_later(self, gpu: Driver, cuda: Cuda) -> None:
        made = stamps(gpu, 100)
        cuda.capturing = True
        made.close()
        assert not gpu.freed
        cuda.capturing = False
        stamps(gpu, 50).close()
        assert not gpu.memory

    @pytest.mark.parametrize("function", ["cuMemsetD8Async", "cuLaunchKernel"])
    def test_failed_allocation_leaves_no_memory(self, gpu: Driver, function: str) -> None:
        gpu.refuses = function
        with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_VALUE"):
            Stamps.allocate(2, gpu)
        assert not gpu.memory


class TestMarks:
    def test_marks_time_nested_iterations_separately(self, gpu: Driver, cuda: Cuda) -> None:
        """Iterations have their clock, and nested iterations have separate times."""
        marks = CudaMarks(cuda, 10, gpu)
        outer = marks.begin()
        assert outer is not None
        inner = marks.begin()
        assert inner is not None
        let_pass(0.01, "time lies between two stamps")
        following = marks.next(inner)
        assert following is not None
        marks.end(following)
        let_pass(0.01, "time lies between two stamps")
        marks.end(outer)
        timings = marks.timings()
        assert timings is not None
        assert (np.diff(timings.at_ns) >= 0).all()
        assert timings.took_s[0] >= 0.019
        assert 0.009 < timings.took_s[1] < timings.took_s[0] - 0.009, "over before the second pause began"
        assert timings.sm_clock_mhz is not None
        assert timings.sm_clock_mhz[:2] == pytest.approx(CLOCK_MHZ, rel=1e-2)

    @pytest.mark.parametrize("is_behind", [True, False])
    def test_marks_declare_launches_of_some_iterations(self, gpu: Driver, cuda: Cuda, is_behind: bool) -> None:
        """Marks declare the host's launch time and the ratio of starved launches, from every seventh iteration."""
        cuda.is_behind = is_behind
        marks = CudaMarks(cuda, 100, gpu)
        begun = marks.begin()
        for number in range(50):
            if number % 7 == 6:
                let_pass(0.001, "the host takes time to launch")
            assert begun is not None
            begun = marks.next(begun)
        assert marks.timings() is not None
        declared = marks.declared()
        assert declared["starved_ratio"] == (0.0 if is_behind else 1.0)
        issue_s = declared["issue_s"]
        assert isinstance(issue_s, float)
        assert issue_s >= 0.0009

    def test_few_iterations_declare_no_launches(self, gpu: Driver, cuda: Cuda) -> None:
        marks = CudaMarks(cuda, 10, gpu)
        begun = marks.begin()
        for _ in range(20):
            assert begun is not None
            begun = marks.next(begun)
        assert marks.timings() is not None
        assert not {"issue_s", "starved_ratio"} & marks.declared().keys()

    def test_marks_leave_out_iterations_of_a_capture(self, gpu: Driver, cuda: Cuda) -> None:
        """An iteration that begins or ends during a capture is left out."""
        marks = CudaMarks(cuda, 10, gpu)
        begun = marks.begin()
        assert begun is not None
        cuda.capturing = True
        assert marks.next(begun) is None
        assert marks.begin() is None
        assert marks.timings() is None
        cuda.capturing = False
        assert marks.timings() is None

    def test_marks_create_no_event_beyond_the_limit(self, gpu: Driver, cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
        """After the last iteration that the daemon accepts, and after many starts without an end, no start is marked."""
        monkeypatch.setattr(event_marks, "TIMES_COUNT", 3)
        marks = CudaMarks(cuda, 10, gpu)
        begun = marks.begin()
        for _ in range(3):
            assert begun is not None
            begun = marks.next(begun)
        assert begun is not None
        assert (marks.next(begun), marks.begin()) == (None, None)
        monkeypatch.setattr(event_marks, "_EVENTS_COUNT", 8)
        marks = CudaMarks(cuda, 10, gpu)
        assert [marks.begin() is None for _ in range(8)] == [False] * 4 + [True] * 4

    def test_closed_marks_hold_no_memory(self, gpu: Driver, cuda: Cuda) -> None:
        marks = CudaMarks(cuda, 100, gpu)
        assert len(gpu.memory) == 1
        marks.close()
        marks.close()
        assert (gpu.memory, marks.begin()) == ({}, None)


class TestTestimony:
    def declared(self, gpu: Driver) -> testimonies.Testimony:
        testimony = testimonies.Testimony(gpu)
        testimony.begin(is_stamped=True)
        testimony.stamp()
        with testimony.iteration(100):
            let_pass(0.01, "time lies between two stamps")
        return testimony

    def test_testimony_releases_memory_read_or_not(self, gpu: Driver) -> None:
        for is_read in (True, False):
            testimony = self.declared(gpu)
            assert len(gpu.memory) == 2
            if is_read:
                testimony.stamp()
                assert testimony.all()["true_clock_mhz"] == pytest.approx(CLOCK_MHZ, rel=1e-3)
            for _ in range(2):
                testimony.close()
            assert len(gpu.memory) == 1, "the two stamps at the edges are kept for the next window"

    def test_iteration_allocates_no_memory(self, gpu: Driver) -> None:
        """The room for an iteration's stamps is allocated when the window opens, and serves the next window, too."""
        gpu.free_bytes = 8 << 30
        for _ in range(2):
            testimony = testimonies.Testimony(gpu)
            testimony.begin(is_stamped=True)
            before = set(gpu.memory)
            with testimony.iteration(100):
                pass
            assert set(gpu.memory) == before
            testimony.close()
        assert set(gpu.memory) == before

    def test_failing_release_raises_no_error(self, gpu: Driver) -> None:
        testimony = self.declared(gpu)
        gpu.cuCtxGetCurrent = lambda: (1, 0)  # type: ignore[method-assign]  # a lost GPU
        testimony.close()

    def test_failing_marks_are_logged_once(self, gpu: Driver, cuda: Cuda, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, "gpuwatch")
        testimony = self.declared(gpu)
        cuda.breaks = True
        for _ in range(10):
            with testimony.iteration(100):
                pass
        assert [record.message.split(":")[1].strip() for record in caplog.records] == ["marking iterations failed"]

    def test_unreadable_profiler_state_breaks_no_iteration(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken() -> bool:
            raise AttributeError("half a torch")

        torch = SimpleNamespace(autograd=SimpleNamespace(_profiler_enabled=broken))
        monkeypatch.setitem(sys.modules, "torch", torch)
        with testimonies.Testimony().iteration(10):
            pass
        assert "half a torch" in caplog.text


def test_raising_body_releases_memory_without_daemon(
    gpu: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=gpu))
    settings = load({"socket": "/proc/nowhere/s", "state": "/proc/nowhere"})
    with pytest.raises(ZeroDivisionError), gpuwatch.window(settings=settings) as w, w.iteration():
        assert gpu.memory
        raise ZeroDivisionError
    assert not gpu.memory


def test_failing_canary_releases_its_stamps(gpu: Driver, cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(index: int = 0) -> Any:
        raise RuntimeError("the GPU is lost")

    monkeypatch.setattr(cuda, "current_stream", broken)
    monkeypatch.setitem(sys.modules, "torch._C", SimpleNamespace(_cuda_getCurrentRawStream=lambda index: 7))
    with pytest.raises(RuntimeError, match="lost"):
        canary.measure_canary(gpu)
    assert len(gpu.memory) == 1
    stamps(gpu)
    assert len(gpu.memory) == 1, "the released buffer is reused"
