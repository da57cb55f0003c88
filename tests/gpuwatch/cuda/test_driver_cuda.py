"""Tests of ``DriverCuda``: stamps, events and facts in a process without torch."""

# ruff: noqa: N802 - the driver's names
from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from gpuwatch.comparing.blocks import Block, EventBlocks
from gpuwatch.cuda.driver import raw_stream
from gpuwatch.cuda.driver_cuda import DriverCuda
from gpuwatch.cuda.stamp import Stamps
from gpuwatch.diff.kernel_device import KernelDevice, KernelFault
from gpuwatch.measuring.environment import current_device
from gpuwatch.process import torch_state
from tests.gpuwatch.cuda.pretended import NO, OK, Driver

STREAM = 7
_NAMES = ("MULTIPROCESSOR_COUNT", "COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "L2_CACHE_SIZE", "CLOCK_RATE")


class WholeDriver(Driver):
    """A mock driver with the functions for a context, a stream, events and the device's facts."""

    CUdevice_attribute = SimpleNamespace(
        **{f"CU_DEVICE_ATTRIBUTE_{name}": 1 for name in (*_NAMES, "MEMORY_CLOCK_RATE", "GLOBAL_MEMORY_BUS_WIDTH")}
    )
    events = 0
    now_ms = 0.0

    def cuInit(self, _flags: int) -> tuple[int]:
        return (OK,) if self.refuses != "cuInit" else (NO,)

    def cuDeviceGet(self, ordinal: int) -> tuple[int, int]:
        return OK, ordinal

    def cuDevicePrimaryCtxRetain(self, _device: int) -> tuple[int, int]:
        return OK, self.context

    def cuCtxSetCurrent(self, _context: int) -> tuple[int]:
        return (OK,)

    def cuCtxSynchronize(self) -> tuple[int]:
        return (OK,)

    def cuStreamCreate(self, _flags: int) -> tuple[int, int]:
        return OK, STREAM

    def cuStreamIsCapturing(self, _stream: int) -> tuple[int, int]:
        return OK, 0

    def cuEventCreate(self, _flags: int) -> tuple[int, int]:
        self.events += 1
        return OK, self.events

    def cuEventRecord(self, _event: int, stream: int) -> tuple[int]:
        return (OK,) if stream == STREAM else (NO,)

    def cuEventQuery(self, _event: int) -> tuple[int]:
        return (OK,)

    def cuEventSynchronize(self, _event: int) -> tuple[int]:
        return (OK,)

    def cuEventElapsedTime(self, _first: int, _last: int) -> tuple[int, float]:
        return OK, 2.0

    def cuEventDestroy(self, _event: int) -> tuple[int]:
        self.events -= 1
        return (OK,)

    def cuDeviceGetName(self, _length: int, _device: int) -> tuple[int, bytes]:
        return OK, b"Pretended\0\0"

    def cuDeviceGetUuid(self, _device: int) -> tuple[int, SimpleNamespace]:
        return OK, SimpleNamespace(bytes=bytes(range(16)))

    def cuDeviceTotalMem(self, _device: int) -> tuple[int, int]:
        return OK, 1 << 30


@pytest.fixture
def driver() -> Iterator[WholeDriver]:
    if "torch" in sys.modules:
        pytest.skip("the imported torch would be used in place of the mock")
    found = WholeDriver()
    torch_state.stand_in(DriverCuda(found))
    yield found
    torch_state.stand_in(None)


def test_stamps_need_no_torch(driver: WholeDriver) -> None:
    assert raw_stream()(0) == STREAM
    stamps = Stamps.allocate(2, driver)
    assert stamps is not None
    assert [stamps.put(), stamps.put()] == [0, 1]
    assert stamps.read().mean_mhz(0, 1) == pytest.approx(1500, rel=0.05)


def test_gpu_is_described_without_torch(driver: WholeDriver) -> None:
    found = current_device()
    assert found is not None
    assert (found.device.name, found.device.uuid) == ("Pretended", "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")
    assert torch_state.snapshot().facts["cuda_uuids"] == found.device.uuid
    assert torch_state.synchronize() is not None


def test_blocks_are_timed_without_torch(driver: WholeDriver) -> None:
    cuda = torch_state.cuda_with_context()
    (timed,) = EventBlocks(cuda).times([Block("a", lambda: None, 4)])
    assert timed.took_s == pytest.approx(0.0005)
    del timed
    assert driver.events == 0  # released again


def test_driver_without_a_gpu_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_VALUE"):
        DriverCuda(WholeDriver(refuses="cuInit"))


def test_kernel_fault_explains_the_drivers_error(driver: WholeDriver) -> None:
    device = KernelDevice(driver, torch_state.cuda_with_context())
    assert (device.l2_bytes, device.sms_count) == (4, 4)
    at = device.allocate(16)
    device.fill(at, 3, 16)
    assert device.read(at, 16).tolist() == [3] * 16
    launch = device.bind((99, b"gone"), (1, 1, 1), (32, 1, 1), 0, [b"\1\0\0\0", b"\2\0\0\0\0\0\0\0"])
    with pytest.raises(KernelFault, match="fails with CUDA_ERROR_INVALID_VALUE: the GPU cannot launch this grid"):
        launch()
