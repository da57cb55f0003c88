"""Tests of a pair's preparation on a mock GPU: sizes from the L2 cache, the check, launches and traffic."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest

from gpuwatch.diff.pair_run import ReadyPair, set_up
from gpuwatch.diff.timing_job import CallJob, TimingJob, TimingTerms
from gpuwatch.errors import UsageError
from tests.gpuwatch.diff.host_device import HostDevice, HostKernel, kernel_job, saxpy
from tests.gpuwatch.diff.test_kernel_arguments import SAXPY

INPUTS = """
import numpy as np


def inputs(seed=0):
    return [np.full(100, seed + 1, "f4"), np.ones(100, "f4"), 2.0, 100]

def named():
    return {"x": np.zeros(8), "y": np.zeros(8), "n": 8}
"""


def ready(terms: TimingTerms, b: HostKernel = saxpy) -> tuple[ReadyPair, list[str]]:
    device, steps = HostDevice(memory_bytes=32 << 20, a=saxpy, b=b), []
    job = TimingJob(a=kernel_job("a"), b=kernel_job("b"), slots=SAXPY, is_plane=False, terms=terms)
    with set_up(job, device, lambda words, _limit_s: steps.append(words)) as found:
        for call in found.calls.values():
            call()
    assert not device.held
    return found, steps


def test_buffers_hold_four_times_the_cache() -> None:
    found, steps = ready(TimingTerms())
    assert found.reason == ""
    assert found.sizes == {"n": 16384}
    assert found.launches == ("grid=64x1x1 block=256x1x1 smem=0",) * 2
    assert found.traffic == [(131072, 65536)] * 2
    assert steps[0] == "loading both sides"
    assert "A: check at n=16384, seed 0" in steps
    assert steps[-1] == "B: first run at n=16384"


def test_check_takes_three_sizes_and_seeds_and_three_fills() -> None:
    _, steps = ready(TimingTerms())
    assert [step for step in steps if step.startswith("A: check")] == [
        "A: check at n=16384, seed 0",
        "A: check at n=1048592, seed 1",
        "A: check at n=16432, seed 2",
        "A: check at n=16384, inputs of zeros",
        "A: check at n=16384, inputs with NaN",
        "A: check at n=16384, inputs of large numbers",
    ]


def test_given_size_is_the_only_checked_size() -> None:
    found, steps = ready(TimingTerms(sizes={"n": 1000}))
    assert found.sizes == {"n": 1000}
    assert {step.split("=")[1].split(",")[0] for step in steps if "check" in step} == {"1000"}


def test_different_results_prevent_timing() -> None:
    found, steps = ready(TimingTerms(), partial(saxpy, extra=1))
    assert "B writes outside of y" in found.reason
    assert not found.calls
    assert not any("first run" in step for step in steps)


def test_no_check_times_different_results() -> None:
    found, steps = ready(TimingTerms(sizes={"n": 512}, checks=False))
    assert not any("check" in step for step in steps)
    assert set(found.calls) == {"A", "B"}


def test_inputs_are_taken_by_order_or_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "data.py").write_text(INPUTS)
    found, steps = ready(TimingTerms(inputs=f"{tmp_path}/data.py:inputs"))
    assert found.sizes == {"n": 100}
    assert "A: check at n=100, seed 2" in steps
    with pytest.raises(UsageError, match=r"expected a value of a, found none"):
        ready(TimingTerms(inputs=f"{tmp_path}/data.py:named"))


def test_timing_terms_survive_a_round_trip() -> None:
    terms = TimingTerms(sizes={"n": 1}, scalars={"a": 2.0}, outs=("y",), rtol=0.1)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(terms), type=TimingTerms) == terms


def test_functions_without_inputs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "f.py").write_text("def two(x, n=1):\n    return x\n")
    call = CallJob(name="two", file=str(tmp_path / "f.py"), function="two")
    job = TimingJob(a=call, b=call, slots=(), is_plane=False, terms=TimingTerms(is_pipeline=True))
    words = r"f\.py:two: expected its arguments \(x, n=1\) from a function inputs\(\) of the same file, or from --inputs"
    with pytest.raises(UsageError, match=words), set_up(job, HostDevice(), lambda _words, _limit_s: None):
        pass
