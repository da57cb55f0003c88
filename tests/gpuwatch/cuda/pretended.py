"""A mock GPU for stamps: a driver with memory in this process, and a mock torch.cuda."""

# ruff: noqa: N802 - the driver's names, and torch's
from __future__ import annotations

import ctypes
import itertools
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpuwatch import clock
from tests.waiting import PATIENCE_S

SMS_COUNT = 4
CLOCK_MHZ = 1500.0
OK = 0
GLOBAL, RELAXED = 0, 2  # modes of capture


class Refusal(int):
    """A status other than success."""

    name = "CUDA_ERROR_INVALID_VALUE"


NO = Refusal(1)
_addresses = itertools.count(0x10000)  # unique over drivers, so that stored contexts of one driver never match another's


@dataclass
class Driver:
    """The used functions of ``cuda.bindings.driver``, each returning a status and its results.

    ``numbered=False`` is a driver before CUDA 12, whose contexts have an address and no number.
    """

    numbered: bool = True
    refuses: str = ""  # the name of a function that fails
    free_bytes: int = 1 << 30
    context: int = field(default_factory=lambda: next(_addresses))
    number: int = 1
    memory: dict[int, np.ndarray[Any, np.dtype[np.uint8]]] = field(default_factory=dict)
    modules: set[int] = field(default_factory=set)
    freed: list[int] = field(default_factory=list)
    loaded_count: int = 0
    synchronized_count: int = 0
    streams: set[int] = field(default_factory=set)
    reading_threads: set[int] = field(default_factory=set)
    may_copy: threading.Event = field(default_factory=threading.Event)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=RELAXED)
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUdevice_attribute = SimpleNamespace(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT=16)

    def __post_init__(self) -> None:
        if self.numbered:
            self.cuCtxGetId = lambda context: (OK, self.number)

    def reset(self) -> None:
        """Reset like cudaDeviceReset: the context is destroyed, and the next context has the same address."""
        self.number += 1
        self.memory.clear()
        self.modules.clear()

    def cuCtxGetCurrent(self) -> tuple[int, int]:
        return OK, self.context

    def cuCtxGetDevice(self) -> tuple[int, int]:
        return OK, 0

    def cuDeviceGetAttribute(self, attribute: int, device: int) -> tuple[int, int]:
        return OK, SMS_COUNT

    def cuModuleLoadData(self, image: bytes) -> tuple[int, int]:
        self.loaded_count += 1
        self.modules.add(self.loaded_count)
        return OK, self.loaded_count

    def cuModuleGetFunction(self, module: int, name: bytes) -> tuple[Any, ...]:
        return (OK, (module, name)) if module in self.modules else (NO,)

    def cuMemAlloc(self, size_bytes: int) -> tuple[int, int]:
        made = np.full(size_bytes, 0xFF, np.uint8)  # fresh memory has arbitrary content
        self.memory[made.ctypes.data] = made
        return OK, made.ctypes.data

    def cuMemGetInfo(self) -> tuple[int, int, int]:
        return OK, self.free_bytes, 80 << 30

    def cuMemFree(self, base: int) -> tuple[int]:
        self.freed.append(base)
        return (OK,) if self.memory.pop(base, None) is not None else (NO,)

    def _is_ours(self, address: int, size_bytes: int) -> bool:
        return any(base <= address and address + size_bytes <= base + len(held) for base, held in self.memory.items())

    def cuMemsetD8Async(self, address: int, value: int, size_bytes: int, stream: int) -> tuple[int]:
        if self.refuses == "cuMemsetD8Async" or not self._is_ours(address, size_bytes):
            return (NO,)
        ctypes.memset(address, value, size_bytes)
        return (OK,)

    def cuMemcpyDtoH(self, target: int, source: int, size_bytes: int) -> tuple[int]:
        if not self._is_ours(source, size_bytes):
            return (NO,)
        ctypes.memmove(target, source, size_bytes)
        return (OK,)

    def cuMemcpyDtoHAsync(self, target: int, source: int, size_bytes: int, stream: int) -> tuple[int]:
        """Copy in a reading thread once ``may_copy`` is set; refuse other threads and unknown streams."""
        if stream not in self.streams or threading.get_ident() not in self.reading_threads:
            return (NO,)
        assert self.may_copy.wait(PATIENCE_S)
        return self.cuMemcpyDtoH(target, source, size_bytes)

    def cuCtxSetCurrent(self, context: int) -> tuple[int]:
        return (OK,) if context == self.context else (NO,)

    def cuThreadExchangeStreamCaptureMode(self, mode: int) -> tuple[int, int]:
        (self.reading_threads.add if mode == RELAXED else self.reading_threads.discard)(threading.get_ident())
        return OK, GLOBAL

    def cuStreamCreate(self, flags: int) -> tuple[int, int]:
        self.streams.add(made := 0x70 + len(self.streams))
        return OK, made

    def cuStreamDestroy(self, stream: int) -> tuple[int]:
        self.streams.discard(stream)
        return (OK,)

    def cuMemcpyDtoDAsync(self, target: int, source: int, size_bytes: int, stream: int) -> tuple[int]:
        return (OK,)

    def cuStreamSynchronize(self, stream: int) -> tuple[int]:
        self.synchronized_count += 1
        return (OK,)

    def cuLaunchKernel(self, kernel: tuple[int, bytes], *rest: int) -> tuple[int]:
        """Run a stamp: every SM writes time and cycles into the row that the arguments give.  Other kernels do nothing."""
        if self.refuses == "cuLaunchKernel" or kernel[0] not in self.modules:
            return (NO,)
        if kernel[1] != b"gpuwatch_stamp":
            return (OK,)
        row_at, sms_at = (ctypes.c_void_p * 2).from_address(rest[-2])
        row = ctypes.c_uint64.from_address(row_at or 0).value
        sms = ctypes.c_uint32.from_address(sms_at or 0).value
        if not self._is_ours(row, 16 * sms):
            return (NO,)
        now_ns = clock.now_ns()
        for sm in range(sms):
            (ctypes.c_int64 * 2).from_address(row + 16 * sm)[:] = [now_ns, int(now_ns * CLOCK_MHZ / 1e3)]
        return (OK,)


class Event:
    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self.at_ns = 0

    def query(self) -> bool:
        return not self._cuda.is_behind

    def record(self) -> None:
        self.at_ns = clock.now_ns()

    def synchronize(self) -> None: ...

    def elapsed_time(self, other: Event) -> float:
        return (other.at_ns - self.at_ns) / 1e6


@dataclass
class Cuda:
    """A mock torch.cuda with a context on the mock GPU."""

    capturing: bool = False
    is_behind: bool = False  # the GPU has not reached the queried event
    breaks: bool = False  # events fail, as on a lost GPU

    def is_initialized(self) -> bool:
        return True

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def current_stream(self, index: int = 0) -> SimpleNamespace:
        return SimpleNamespace(cuda_stream=7, synchronize=lambda: None)

    def synchronize(self, index: int = 0) -> None: ...

    def Event(self, *, enable_timing: bool) -> Event:
        if self.breaks:
            raise RuntimeError("CUDA error: unspecified launch failure")
        return Event(self)
