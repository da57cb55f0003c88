"""Tests of the end of a window with timed iterations on a mock GPU: the program continues while many times are read."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import gpuwatch
from annotate.evidence import Evidence
from gpuwatch.config.settings import Settings
from gpuwatch.store import Reader
from tests.gpuwatch.cuda.pretended import CLOCK_MHZ, Cuda, Driver
from tests.waiting import sample_for, wait_until

MANY_COUNT, FEW_COUNT = 2_000, 20


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=Cuda()))
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=made))
    return made


def iterated(settings: Settings, count: int) -> gpuwatch.Window:
    with gpuwatch.window("timed", settings=settings) as w:
        for _ in w.iterations(count):
            pass
        sample_for(0.05)
    return w


def evidence_of(window: gpuwatch.Window, settings: Settings) -> Evidence:
    assert window.verdict.findings, window.verdict.why
    with Reader(settings.state) as reader:
        run = reader.run(window.run_id or "")
        return reader.evidence(run, run.uuids[0])


def test_block_returns_before_many_stamps_are_read(gpu: Driver, copying: Settings) -> None:
    """The block returns while the copy is still blocked; the evidence has every time after the copy."""
    window = iterated(copying, MANY_COUNT)
    wait_until(lambda: gpu.streams, what="the copy begins")
    gpu.may_copy.set()
    found = evidence_of(window, copying)
    assert found.timings is not None
    assert found.timings.sm_clock_mhz is not None
    assert len(found.timings.took_s) == MANY_COUNT
    assert np.nanmedian(found.timings.sm_clock_mhz) == pytest.approx(CLOCK_MHZ, rel=0.05)
    assert found.declared["timer"] == "events"
    assert found.declared["stamp_seen_ratio"] == 1.0
    assert found.window.end_ns == window.end_ns
    assert (gpu.streams, gpu.reading_threads) == (set(), set())


def test_few_times_are_handed_over_by_the_program(gpu: Driver, copying: Settings) -> None:
    window = iterated(copying, FEW_COUNT)  # a copy in a separate thread would fail here, because nothing sets ``may_copy``
    timings = evidence_of(window, copying).timings
    assert timings is not None
    assert len(timings.took_s) == FEW_COUNT


def test_stamp_memory_is_freed_after_reading(gpu: Driver, copying: Settings) -> None:
    gpu.may_copy.set()
    window = iterated(copying, MANY_COUNT)
    assert window.verdict
    assert len(gpu.memory) == 1, "the two stamps at the edges are kept for the next window"


def test_reading_waits_while_a_window_is_open(gpu: Driver, copying: Settings) -> None:
    """Reading would slow the launches of the open window."""
    gpu.may_copy.set()
    with gpuwatch.window("outer", settings=copying):
        inner = iterated(copying, MANY_COUNT)
        sample_for(0.3)
        assert gpu.reading_threads == set()
    assert evidence_of(inner, copying).timings is not None


def test_reading_waits_until_a_window_has_synchronised(gpu: Driver, copying: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launched work is part of the window until the GPU has finished."""
    reading: list[int] = []
    with gpuwatch.window("outer", settings=copying):
        inner = iterated(copying, MANY_COUNT)

        def synchronize(index: int = 0) -> None:
            sample_for(0.2)
            reading.append(len(gpu.reading_threads))

        monkeypatch.setattr(sys.modules["torch"].cuda, "synchronize", synchronize)
    assert reading
    assert not any(reading)
    gpu.may_copy.set()
    assert evidence_of(inner, copying).timings is not None


def test_verdict_is_read_while_another_window_is_open(gpu: Driver, copying: Settings) -> None:
    gpu.may_copy.set()
    with gpuwatch.window("outer", settings=copying):
        assert evidence_of(iterated(copying, MANY_COUNT), copying).timings is not None


def test_failing_copy_costs_only_the_times(gpu: Driver, copying: Settings, caplog: pytest.LogCaptureFixture) -> None:
    gpu.may_copy.set()
    with gpuwatch.window("timed", settings=copying) as w:
        for _ in w.iterations(MANY_COUNT):
            pass
        sample_for(0.05)
        gpu.cuMemcpyDtoHAsync = lambda *_: (1,)  # type: ignore[method-assign]  # a lost GPU
    assert evidence_of(w, copying).timings is None
    assert "reading the times of iterations failed" in caplog.text
