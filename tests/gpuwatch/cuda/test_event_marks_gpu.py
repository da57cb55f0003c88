"""Tests that stamps and marks on a real GPU measure the clock, cost little, and stay out of a capture."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuwatch
from annotate.evidence import Evidence
from gpuwatch.config.settings import Settings, load
from gpuwatch.store import Reader

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")  # torch is not installed for type checks


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("marks")
    return load({"state": str(folder / "state"), "socket": str(folder / "s")}, environment={"HOME": "/"})


@pytest.fixture(scope="module")
def gemm() -> Any:
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)

    def call() -> None:
        torch.mm(a, b, out=out)

    for _ in range(10_000):
        call()
    torch.cuda.synchronize()
    return call


def evidence(window: gpuwatch.Window, settings: Settings) -> Evidence:
    assert window.verdict.findings, window.verdict.why
    with Reader(settings.state) as reader:
        run = reader.run(window.run_id or "")
        return reader.evidence(run, run.uuids[0])


def test_gemm_iterations_have_time_and_true_clock(settings: Settings, gemm: Any) -> None:
    for name in ("iterations", "iteration"):
        with gpuwatch.window(name, settings=settings) as w:
            if name == "iterations":
                for _ in w.iterations(10_000):
                    gemm()
            else:
                for _ in range(10_000):
                    with w.iteration():
                        gemm()
        of = evidence(w, settings)
        timings, told = of.timings, of.declared
        assert timings is not None
        assert timings.sm_clock_mhz is not None
        assert len(timings.took_s) == 10_000
        assert 0.00015 < np.median(timings.took_s) < 0.0003
        assert np.isfinite(timings.sm_clock_mhz).all()
        assert 1200 < np.median(timings.sm_clock_mhz) < 1700
        r = np.corrcoef(np.log(timings.took_s[2000:]), np.log(timings.sm_clock_mhz[2000:]))[0, 1]
        assert r < -0.3  # a loose limit, because single iterations correlate weakly in a narrow range of clocks
        assert of.window.begin_ns <= timings.at_ns[0]
        assert timings.at_ns[-1] <= of.window.end_ns
        print(
            f"\n{name}: {np.median(timings.took_s) * 1e3:.4f} ms, {np.median(timings.sm_clock_mhz):.0f} MHz, r {r:.3f}, "
            f"true {told['true_clock_mhz']:.0f} MHz over {told['stamped_s']:.3f} of {of.window.length_s:.3f} s\n{w.verdict}"
        )
        assert abs(float(told["stamped_s"] or 0) - of.window.length_s) < 0.01
        assert told["timer"] == "events"


def test_window_inside_capture_leaves_graph_alone(settings: Settings, gemm: Any) -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), gpuwatch.window("captured", settings=settings) as w:
        for _ in w.iterations(3):
            gemm()
        with w.iteration():
            gemm()
    graph.replay()
    torch.cuda.synchronize()
    assert w.verdict.findings
    with gpuwatch.window("captured inside", settings=settings) as w:
        other = torch.cuda.CUDAGraph()
        with torch.cuda.graph(other):
            for _ in w.iterations(3):
                gemm()
        other.replay()
    assert w.verdict.findings


def test_window_enters_in_less_than_10_ms(settings: Settings, gemm: Any) -> None:
    enter, leave = [], []
    for _ in range(100):
        begin = time.perf_counter()
        w = gpuwatch.window(settings=settings)
        w.__enter__()
        inside = time.perf_counter()
        w.__exit__(None, None, None)
        enter.append(inside - begin)
        leave.append(time.perf_counter() - inside)
    with gpuwatch.window(settings=settings) as w:
        small = torch.zeros(16, device="cuda")
        costs = {}
        for name in ("bare", "iteration"):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(2000):
                if name == "bare":
                    small.add_(1)
                else:
                    with w.iteration():
                        small.add_(1)
            costs[name] = (time.perf_counter() - begin) / 2000 * 1e6
        begin = time.perf_counter()
        for _ in w.iterations(2000):
            small.add_(1)
        costs["iterations"] = (time.perf_counter() - begin) / 2000 * 1e6
    begin = time.perf_counter()
    closed = w.verdict
    costs["verdict_ms"] = (time.perf_counter() - begin) * 1e3
    print(
        f"\nenter {statistics.median(enter) * 1e3:.2f} ms, exit {statistics.median(leave) * 1e3:.2f} ms; us a call: {costs}; {closed}"
    )
    assert statistics.median(enter) < 0.01


def test_windows_release_the_memory_of_their_stamps(settings: Settings, gemm: Any) -> None:
    def once(*, is_raising: bool) -> None:
        with contextlib.suppress(ZeroDivisionError), (w := gpuwatch.window(settings=settings)):
            for _ in w.iterations(1000):
                gemm()
            with w.iteration():
                gemm()
            if is_raising:
                raise ZeroDivisionError
        assert w.verdict, "waiting for the verdict frees the stamps' memory"

    once(is_raising=False)  # the kernels are loaded, the edges' memory is allocated
    free_bytes = torch.cuda.mem_get_info()[0]
    for number in range(10):
        once(is_raising=number % 2 == 1)
    assert torch.cuda.mem_get_info()[0] >= free_bytes


def test_iterations_of_threads_have_times_and_clocks(settings: Settings, gemm: Any) -> None:
    def work(w: gpuwatch.Window) -> None:
        for _ in range(200):
            with w.iteration():
                gemm()

    with gpuwatch.window("threads", settings=settings) as w:
        threads = [threading.Thread(target=work, args=(w,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    timings = evidence(w, settings).timings
    assert timings is not None
    assert len(timings.took_s) == 800
    assert (timings.took_s > 0.0001).all()
    assert timings.sm_clock_mhz is not None
    assert np.isfinite(timings.sm_clock_mhz).all()


def test_other_streams_and_nested_windows_are_stamped(settings: Settings, gemm: Any, tmp_path: Path) -> None:
    with torch.cuda.stream(torch.cuda.Stream()), gpuwatch.window("outer", settings=settings) as outer:
        with gpuwatch.window("inner", settings=settings) as inner:
            for _ in inner.iterations(500):
                gemm()
        for _ in outer.iterations(500):
            gemm()
    for window in (outer, inner):
        timings = evidence(window, settings).timings
        assert timings is not None
        assert timings.sm_clock_mhz is not None
        assert np.isfinite(timings.sm_clock_mhz).all()
