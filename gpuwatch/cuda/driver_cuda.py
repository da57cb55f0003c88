"""The part of torch.cuda that gpuwatch uses, over the driver API alone, for a process whose context is not torch's."""

import ctypes
import uuid
from types import SimpleNamespace
from typing import Any

from gpuwatch.cuda.driver import checked, load_kernel

_NON_BLOCKING = 1
_NOT_READY = 600  # CUDA_ERROR_NOT_READY
_ATTRIBUTES = {
    "major": "COMPUTE_CAPABILITY_MAJOR",
    "minor": "COMPUTE_CAPABILITY_MINOR",
    "multi_processor_count": "MULTIPROCESSOR_COUNT",
    "L2_cache_size": "L2_CACHE_SIZE",
    "clock_rate": "CLOCK_RATE",
    "memory_clock_rate": "MEMORY_CLOCK_RATE",
    "memory_bus_width": "GLOBAL_MEMORY_BUS_WIDTH",
}


class DriverEvent:
    """An event on the stream of a ``DriverCuda``."""

    def __init__(self, driver: Any, stream: Any) -> None:  # cuda has no types
        self._driver, self._stream = driver, stream
        self._event = checked(driver.cuEventCreate(0))

    def record(self) -> None:
        checked(self._driver.cuEventRecord(self._event, self._stream))

    def query(self) -> bool:
        status = self._driver.cuEventQuery(self._event)
        return int(status[0]) != _NOT_READY and checked(status) is None

    def synchronize(self) -> None:
        checked(self._driver.cuEventSynchronize(self._event))

    def elapsed_time(self, last: "DriverEvent") -> float:
        """Return the milliseconds from this event to another."""
        return float(checked(self._driver.cuEventElapsedTime(self._event, last._event)))  # noqa: SLF001 - of the same class

    def __del__(self) -> None:
        self._driver.cuEventDestroy(self._event)


class DriverCuda:
    """The first visible GPU's primary context with one stream, in place of torch.cuda and its current stream."""

    def __init__(self, driver: Any) -> None:
        """Create the context.

        Raises RuntimeError: when the driver finds no GPU, or refuses a context.
        """
        checked(driver.cuInit(0))
        self._driver = driver
        self._device = checked(driver.cuDeviceGet(0))
        checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(self._device))))
        self._stream = checked(driver.cuStreamCreate(_NON_BLOCKING))
        self.cuda_stream = int(self._stream)

    def is_current_stream_capturing(self) -> bool:
        return bool(int(checked(self._driver.cuStreamIsCapturing(self._stream))))

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def current_stream(self, _index: int | None = None) -> "DriverCuda":
        return self

    def synchronize(self, _index: int | None = None) -> None:
        checked(self._driver.cuStreamSynchronize(self._stream))

    def Event(self, *, enable_timing: bool = True) -> DriverEvent:  # noqa: N802, ARG002 - as torch names them
        return DriverEvent(self._driver, self._stream)

    def _sleep(self, cycles_count: int) -> None:
        cycles = ctypes.c_uint64(cycles_count)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(cycles))
        spin = load_kernel(self._driver, "gpuwatch_spin")
        checked(self._driver.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, self._stream, ctypes.addressof(arguments), 0))

    def get_device_properties(self, _index: int | None = None) -> SimpleNamespace:
        """Return the driver's description of the GPU, by torch's names."""
        driver = self._driver
        names = driver.CUdevice_attribute
        numbers = {
            torch_name: int(checked(driver.cuDeviceGetAttribute(getattr(names, f"CU_DEVICE_ATTRIBUTE_{name}"), self._device)))
            for torch_name, name in _ATTRIBUTES.items()
        }
        return SimpleNamespace(
            name=checked(driver.cuDeviceGetName(256, self._device)).split(b"\0")[0].decode(errors="replace"),
            uuid=str(uuid.UUID(bytes=bytes(checked(driver.cuDeviceGetUuid(self._device)).bytes))),
            total_memory=int(checked(driver.cuDeviceTotalMem(self._device))),
            **numbers,
        )
