"""Tests of queries to torch, and of flushes of the cache and copies of inputs, with a mock torch."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from gpuwatch import timers
from gpuwatch.errors import UsageError
from gpuwatch.measuring import canary_record, environment
from gpuwatch.measuring.cache import copy_inputs, make_flush
from gpuwatch.timers.event_timer import EventsTimer


class Tensor:
    """The part of a tensor that copies and flushes use."""

    requires_grad = False

    def __init__(self, count: int) -> None:
        self.count = count
        self.zeroed = 0

    def data_ptr(self) -> int:
        return id(self)

    def element_size(self) -> int:
        return 1

    def numel(self) -> int:
        return self.count

    def detach(self) -> Tensor:
        return self

    def clone(self) -> Tensor:
        return Tensor(self.count)

    def requires_grad_(self, wanted: bool) -> Tensor:
        return self

    def zero_(self) -> Tensor:
        self.zeroed += 1
        return self


@pytest.fixture
def properties(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Install a mock torch with a context on an H200, and return the GPU's properties."""
    found = SimpleNamespace(
        name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, total_memory=150_000_000_000, uuid="12ab",
        clock_rate=1_980_000, memory_clock_rate=3_201_000, memory_bus_width=6144, L2_cache_size=60 << 20,
    )  # fmt: skip
    torch = ModuleType("torch")
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        current_device=lambda: 0,
        get_device_properties=lambda index: found,
        synchronize=lambda: None,
    )
    made = {"cuda": cuda, "int8": "int8", "empty": lambda count, dtype, device: Tensor(count)}
    for name, value in made.items():
        setattr(torch, name, value)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return found


def test_device_has_the_properties_of_torch(properties: SimpleNamespace) -> None:
    found = environment.current_device()
    assert found is not None
    assert found.l2_bytes == 60 << 20
    device = found.device
    assert (device.uuid, device.name, device.compute_capability) == ("GPU-12ab", "NVIDIA H200", "9.0")
    assert (device.cuda_cores_count, device.sm_clock_max_mhz, device.mem_clock_max_mhz) == (132 * 128, 1980, 3201)


def test_properties_missing_in_older_torch_are_none(properties: SimpleNamespace) -> None:
    for name in ("uuid", "clock_rate", "memory_clock_rate", "memory_bus_width", "L2_cache_size"):
        delattr(properties, name)
    found = environment.current_device()
    assert found is not None
    assert found.l2_bytes is None
    assert found.device.sm_clock_max_mhz is None
    with pytest.raises(UsageError, match="expected the size of the L2 cache from torch"):
        make_flush(found.l2_bytes)


def test_flush_buffer_is_twice_the_cache(properties: SimpleNamespace) -> None:
    flush, size_bytes = make_flush(60 << 20)
    assert size_bytes == 120 << 20
    flush()


def test_copies_of_inputs_overflow_the_cache_three_times() -> None:
    inputs = (Tensor(20 << 20), [Tensor(10 << 20)], 3)
    found = copy_inputs(inputs, 60 << 20)
    assert found is not None
    assert len(found) == 7
    assert found[0] is inputs
    assert len({id(one[0]) for one in found}) == 7
    assert {one[2] for one in found} == {3}


@pytest.mark.parametrize("args", [(), (1, "a"), (Tensor(1000),)])
def test_missing_or_tiny_inputs_get_no_copies(args: tuple[object, ...]) -> None:
    assert copy_inputs(args, 60 << 20) is None


def test_settle_is_torchs_synchronize_with_a_context(properties: SimpleNamespace) -> None:
    assert timers.settle() is sys.modules["torch"].cuda.synchronize


def test_driver_error_does_not_stop_the_benchmark(properties: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    """Errors of the driver in stamps and canary do not stop the benchmark."""

    def refused() -> bool:
        raise RuntimeError("CUDA: CUDA_ERROR_OUT_OF_MEMORY")

    cuda = sys.modules["torch"].cuda
    cuda.is_current_stream_capturing = refused
    timer = EventsTimer(cuda)
    timer.close()
    assert canary_record.run_canary("GPU-12ab", None) is None
    assert "CUDA_ERROR_OUT_OF_MEMORY" in caplog.text
    cuda.is_current_stream_capturing = None  # every later call raises TypeError
    assert canary_record.run_canary("GPU-12ab", None) is None
