"""Tests of the probes on a mock GPU: with and without torch, cuda-bindings, CUDA and free memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from annotate.judge import judge
from annotate.verdict import Verdict
from gpuwatch.comparing.instance_probes import Instruments, Probed, host_facts, open_cuda, run_probes
from gpuwatch.comparing.qualify_decision import PROBES
from gpuwatch.config.settings import load
from gpuwatch.cuda.driver_cuda import DriverCuda
from gpuwatch.errors import GpuwatchError
from gpuwatch.process import torch_state
from gpuwatch.sources.simulated import SCENES, simulate
from tests.gpuwatch.cuda.pretended import OK
from tests.gpuwatch.cuda.test_driver_cuda import WholeDriver
from tests.gpuwatch.measuring.scripted import FakeWindow, ScriptedTimer, World, constant

NAMES = {probe.name for probe in PROBES}


class CopyingDriver(WholeDriver):
    """A mock driver that counts copies without copying, allocates at most 1 MiB at once, and never waits."""

    copies = 0

    def cuMemcpyDtoDAsync(self, _target: int, _source: int, _bytes: int, _stream: int) -> tuple[int]:  # noqa: N802
        self.copies += 1
        return (OK,)

    def cuMemAlloc(self, size_bytes: int) -> tuple[int, int]:  # noqa: N802 - the driver's name
        return super().cuMemAlloc(min(size_bytes, 1 << 20))

    def cuStreamSynchronize(self, _stream: int) -> tuple[int]:  # noqa: N802
        return (OK,)


@pytest.fixture
def driver() -> Iterator[CopyingDriver]:
    found = CopyingDriver()
    yield found
    torch_state.stand_in(None)


def verdict_of(label: str) -> Verdict:
    return judge(simulate(SCENES["steady-copy" if "copy" in label else "steady-gemm"])[0])


def probed(open_cuda: Any, driver: Any = None) -> Probed:
    """Run the probes with calls of 1 ms, and a simulated verdict for each window."""
    world = World(ScriptedTimer(constant(1e-3)))

    @contextmanager
    def window(label: str, **_: object) -> Iterator[FakeWindow]:
        yield FakeWindow((verdict_of(label),), "run")

    instruments = Instruments(
        open_cuda=open_cuda,
        open_driver=lambda: driver,
        open_timer=lambda _cuda: nullcontext(world.timer),
        environment=replace(world.environment(), window=window),
        launches_count=100,
    )
    return run_probes(load({}), lambda _: None, instruments)


def torch(*, memory: bool = True) -> Any:
    def made(*_: object, **__: object) -> Any:
        if not memory:
            raise RuntimeError("CUDA out of memory. Tried to allocate 1024.00 MiB.\nMore")
        return SimpleNamespace(copy_=lambda _source: None)

    return SimpleNamespace(
        __version__="2.11", version=SimpleNamespace(cuda="13.0"), cuda=SimpleNamespace(empty_cache=lambda: None), bfloat16=None,
        uint8=None, randn=made, empty=made, empty_like=made, mm=made,
    )  # fmt: skip


def test_all_probes_run_with_torch_and_bindings(driver: CopyingDriver) -> None:
    cuda = DriverCuda(driver)
    torch_state.stand_in(cuda)
    found = probed(lambda: (cuda, torch()), driver)
    assert (set(found.amounts), found.missing, found.uuid) == (NAMES, {}, "GPU-1")
    assert found.amounts["light_clock_mhz"].value == pytest.approx(1500, rel=0.05)
    assert found.amounts["gemm_clock_mhz"].value == 1980.0
    assert found.stamps is not None
    assert (found.stamps.seen_count, found.stamps.sms_count) == (4, 4)
    assert [verdict.label for verdict in found.verdicts] == ["steady-copy", "steady-gemm"]
    assert found.software["torch"] == "2.11"


def test_gemm_probes_are_missing_without_torch(driver: CopyingDriver) -> None:
    cuda = DriverCuda(driver)
    torch_state.stand_in(cuda)
    found = probed(lambda: (cuda, None), driver)
    assert set(found.amounts) == {"light_clock_mhz", "launch_s", "copy_s"}
    assert set(found.missing.values()) == {"no torch with a usable GPU is installed"}
    assert set(found.missing) | set(found.amounts) == NAMES
    assert driver.copies > 0
    assert driver.freed  # the buffers of the copy


def test_stamp_probes_are_missing_without_cuda_bindings() -> None:
    found = probed(lambda: (SimpleNamespace(), torch()))
    assert set(found.missing) == {"light_clock_mhz", "launch_s"}
    assert set(found.missing.values()) == {"cuda-bindings is not installed"}


def test_all_probes_are_missing_without_cuda() -> None:
    found = probed(lambda: (None, None))
    assert (set(found.missing), found.amounts, found.uuid) == (NAMES, {}, None)


def test_probes_survive_full_memory_with_a_reason(driver: CopyingDriver) -> None:
    """If a neighbour holds the memory, copy and GEMM are missing with torch's reason, and the other probes run."""
    cuda = DriverCuda(driver)
    torch_state.stand_in(cuda)
    found = probed(lambda: (cuda, torch(memory=False)), driver)
    assert found.missing["copy_s"] == found.missing["gemm_s"] == "CUDA out of memory. Tried to allocate 1024.00 MiB."
    assert set(found.amounts) == {"light_clock_mhz", "launch_s"}


def test_unusable_gpu_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch sees a GPU and cannot create a context on it, the error has the first line of torch's."""
    busy = torch(memory=False)
    busy.cuda = SimpleNamespace(is_available=lambda: True, init=lambda: None)
    monkeypatch.setitem(sys.modules, "torch", busy)
    with pytest.raises(
        GpuwatchError, match=r"expected a usable GPU, found: CUDA out of memory\..* MiB\.; run `gpuwatch doctor`"
    ):
        open_cuda()


def test_host_facts_hold_cores_and_python() -> None:
    found = host_facts()
    assert int(found["cores"]) >= 1
    assert found["python"].startswith("3.")
