"""Tests of a window's warm-up: the window begins once its step is steady."""

from __future__ import annotations

from typing import Any

import pytest

import gpuwatch
from gpuwatch import clock
from gpuwatch.config.settings import Settings
from gpuwatch.store import Reader
from tests.waiting import let_pass, sample_for


def test_window_begins_once_the_step_is_steady(copying: Settings) -> None:
    ran_ns = []

    def step() -> None:
        let_pass(0.005, "a step takes time")
        ran_ns.append(clock.now_ns())

    with gpuwatch.window("warmed", warm_up=step, settings=copying) as w:
        count = len(ran_ns)
        sample_for(0.1)
    assert count == len(ran_ns)
    assert w.begin_ns is not None
    assert ran_ns[-1] <= w.begin_ns
    assert w.verdict.findings
    with Reader(copying.state) as reader:
        declared = reader.run(w.run_id or "").declared
    assert 0 < int(declared["warmup_count"] or 0) <= count
    assert float(declared["warmup_s"] or 0) >= 1.0


def test_exception_of_the_step_propagates(copying: Settings) -> None:
    def step() -> None:
        raise ZeroDivisionError

    w = gpuwatch.window(warm_up=step, settings=copying)
    with pytest.raises(ZeroDivisionError):
        w.__enter__()
    assert w.begin_ns is None


async def _coroutine() -> None: ...


@pytest.mark.parametrize("step", [3, "step", _coroutine])
def test_warm_up_refuses_anything_but_a_plain_function(step: Any) -> None:
    with pytest.raises(gpuwatch.UsageError, match="warm_up: expected a function that runs one step"):
        gpuwatch.window(warm_up=step)
