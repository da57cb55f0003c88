"""A suite for the plug-in's tests; gpuwatch's own test run does not collect a file of this name."""

import sys
from typing import Any

import pytest


def work() -> None:
    sum(range(3000))


def test_benchmark(benchmark: Any) -> None:
    benchmark(work)


@pytest.mark.gpuwatch(claim="burst", tolerance=0.05)
def test_pedantic(benchmark: Any) -> None:
    benchmark.pedantic(work, rounds=20, warmup_rounds=5, iterations=2)


def test_window(gpu_window: Any) -> None:
    with gpu_window("mine") as w:
        for _ in w.iterations(20):
            work()
        with w.other_work("check"):
            w.record([])


@pytest.mark.gpuwatch(accept=["outliers"])
def test_marked() -> None:
    for _ in range(20):
        work()


def test_unwatched() -> None:
    assert ("gpuwatch" in sys.modules) is ("--gpuwatch" in sys.argv or "--gpuwatch-fail-on" in " ".join(sys.argv))
