"""Tests of a Python function as a side, with a mock torch whose tensors are in the mock GPU's memory."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpuwatch.diff.pair_run import ReadyPair, set_up
from gpuwatch.diff.timing_job import CallJob, TimingJob, TimingTerms
from gpuwatch.errors import UsageError
from tests.gpuwatch.diff.host_device import HostDevice, HostLaunch, kernel_job
from tests.gpuwatch.diff.test_kernel_arguments import slots

ROWS = slots("float const* in", "float* out", "int cols")
FUNCTIONS = """
def returned(x, out, cols):
    assert x.shape[1] == cols
    return x * 2

def in_place(x, out):
    out[...] = x * 2

def wrong(x, out):
    return x * 3

def by_name(cols, out):
    out[...] = cols

def many(x, out):
    return x, x
"""


class HostTensor(np.ndarray[Any, Any]):
    """An array with the methods of a tensor that gpuwatch uses."""

    def data_ptr(self) -> int:
        return int(self.ctypes.data)

    def numel(self) -> int:
        return int(self.size)

    def copy_(self, other: Any) -> None:
        self[...] = other


def double(launch: HostLaunch) -> None:
    cols = launch.number(2)
    launch.at(1, cols * launch.grid[0])[:] = 2 * launch.at(0, cols * launch.grid[0])


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HostDevice:
    """Return a mock GPU; a mock ``torch`` makes tensors in the GPU's memory."""
    found = HostDevice(memory_bytes=32 << 20, k=double)

    def as_tensor(view: Any, device: str) -> HostTensor:
        spelled = view.__cuda_array_interface__
        values = HostLaunch(found._memory, (1, 1, 1), (1, 1, 1), [spelled["data"][0].to_bytes(8, "little")])
        return values.at(0, spelled["shape"][0], spelled["typestr"]).view(HostTensor)

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(as_tensor=as_tensor))
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "f.py").write_text(FUNCTIONS)
    return found


def ready(device: HostDevice, folder: Path, function: str, **terms: Any) -> ReadyPair:
    call = CallJob(name=function, file=str(folder / "f.py"), function=function)
    job = TimingJob(
        a=kernel_job("k", (32, 1, 1)), b=call, slots=ROWS, is_plane=False, terms=TimingTerms(sizes={"cols": 64}, **terms)
    )
    with set_up(job, device, lambda _words, _limit_s: None) as found:
        for each in found.calls.values():
            each()
    return found


@pytest.mark.parametrize("function", ["returned", "in_place"])
def test_function_may_return_or_write_the_result(device: HostDevice, tmp_path: Path, function: str) -> None:
    """A returned result and a written result both agree, and tensors have rows of the given length."""
    found = ready(device, tmp_path, function)
    assert found.reason == ""
    assert found.launches == ("grid=256x1x1 block=32x1x1 smem=0", f"{function}() of Python")


def test_function_with_wrong_result_is_incomparable(device: HostDevice, tmp_path: Path) -> None:
    assert "B computes something else: out differs" in ready(device, tmp_path, "wrong").reason


def test_parameters_are_matched_by_name(device: HostDevice, tmp_path: Path) -> None:
    found = ready(device, tmp_path, "by_name", checks=False)
    assert found.reason == ""
    assert found.traffic[1][1] == 4 * 16384


def test_more_results_than_outputs_are_refused(device: HostDevice, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a function that returns at most 1 tensors, found one that returns 2"):
        ready(device, tmp_path, "many")
