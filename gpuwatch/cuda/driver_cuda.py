"""The part of torch.cuda that gpuwatch uses, over the driver API alone: for a process that has no torch."""

import ctypes
import uuid
from dataclasses import dataclass
from typing import Any

from gpuwatch.cuda.driver import checked, load_kernel

_NON_BLOCKING = 1
_NOT_READY = 600  # CUDA_ERROR_NOT_READY


@dataclass(frozen=True, slots=True)
class DriverProperties:
    """A GPU as the driver describes it, by torch's names."""

    name: str
    uuid: str
    major: int
    minor: int
    multi_processor_count: int
    L2_cache_size: int
    total_memory: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int


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
    """The first visible GPU's primary context with one stream; it stands for torch.cuda and for its current stream."""

    def __init__(self, driver: Any) -> None:
        """Raises RuntimeError: when the driver finds no GPU, or refuses a context."""
        checked(driver.cuInit(0))
        self._driver = driver
        self._device = checked(driver.cuDeviceGet(0))
        checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(self._device))))
        self._stream = checked(driver.cuStreamCreate(_NON_BLOCKING))
        self.cuda_stream = int(self._stream)

    def is_initialized(self) -> bool:
        return True

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

    def get_device_properties(self, _index: int | None = None) -> DriverProperties:
        def read(name: str) -> int:
            attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
            return int(checked(driver.cuDeviceGetAttribute(attribute, self._device)))

        driver = self._driver
        return DriverProperties(
            name=checked(driver.cuDeviceGetName(256, self._device)).split(b"\0")[0].decode(errors="replace"),
            uuid=str(uuid.UUID(bytes=bytes(checked(driver.cuDeviceGetUuid(self._device)).bytes))),
            major=read("COMPUTE_CAPABILITY_MAJOR"),
            minor=read("COMPUTE_CAPABILITY_MINOR"),
            multi_processor_count=read("MULTIPROCESSOR_COUNT"),
            L2_cache_size=read("L2_CACHE_SIZE"),
            total_memory=int(checked(driver.cuDeviceTotalMem(self._device))),
            clock_rate=read("CLOCK_RATE"),
            memory_clock_rate=read("MEMORY_CLOCK_RATE"),
            memory_bus_width=read("GLOBAL_MEMORY_BUS_WIDTH"),
        )
