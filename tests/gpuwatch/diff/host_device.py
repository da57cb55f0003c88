"""A mock GPU: memory is one array of bytes, and a kernel is a Python function that runs a whole launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuwatch.diff.cubin import Threads
from gpuwatch.diff.kernel_device import Bytes, KernelDevice, KernelFault, Launch
from gpuwatch.diff.timing_job import KernelJob

ALIGNMENT = 256


@dataclass(frozen=True)
class HostLaunch:
    """One launch: ``at`` returns memory at a pointer argument, even beyond the buffer."""

    memory: Bytes
    grid: Threads
    block: Threads
    arguments: Sequence[bytes]

    @property
    def threads(self) -> npt.NDArray[np.int64]:
        return np.arange(self.grid[0] * self.block[0])

    def at(self, number: int, count: int, dtype: str = "f4", *, begin: int = 0) -> npt.NDArray[Any]:
        size = np.dtype(dtype).itemsize
        place = int.from_bytes(self.arguments[number], "little") + begin * size
        return self.memory[place : place + count * size].view(dtype)

    def number(self, number: int, dtype: str = "i4") -> Any:
        return np.frombuffer(self.arguments[number], dtype)[0]


HostKernel = Callable[[HostLaunch], object]


class HostDevice(KernelDevice):
    """A GPU of 4 SMs with an L2 cache of 16 KiB."""

    l2_bytes = 16 << 10
    sms_count = 4

    def __init__(self, memory_bytes: int = 16 << 20, **kernels: HostKernel) -> None:
        self._kernels = kernels
        self._memory = np.zeros(memory_bytes, np.uint8)
        self._next = ALIGNMENT
        self.held: set[int] = set()
        self.grids: list[Threads] = []

    def allocate(self, bytes_count: int) -> int:
        at = self._next
        if at + bytes_count > len(self._memory):
            raise KernelFault("fails with CUDA_ERROR_OUT_OF_MEMORY")
        self._next += -(-bytes_count // ALIGNMENT) * ALIGNMENT
        self.held.add(at)
        return at

    def free(self, at: int) -> None:
        self.held.discard(at)
        if not self.held:
            self._next = ALIGNMENT

    def write(self, at: int, data: Bytes) -> None:
        self._memory[at : at + data.nbytes] = data

    def fill(self, at: int, value: int, bytes_count: int) -> None:
        self._memory[at : at + bytes_count] = value

    def copy(self, to: int, source: int, bytes_count: int) -> None:
        self._memory[to : to + bytes_count] = self._memory[source : source + bytes_count]

    def read(self, at: int, bytes_count: int) -> Bytes:
        return self._memory[at : at + bytes_count].copy()

    def load(self, code: bytes, symbol: str, shared_bytes: int) -> object:
        return self._kernels[symbol]

    def bind(self, kernel: object, grid: Threads, block: Threads, shared_bytes: int, arguments: Sequence[bytes]) -> Launch:
        assert callable(kernel)

        def call() -> None:
            self.grids.append(grid)
            kernel(HostLaunch(self._memory, grid, block, arguments))

        return call

    def synchronize(self) -> None:
        return None


def kernel_job(
    symbol: str,
    block: Threads = (256, 1, 1),
    *,
    strides: bool = False,
    grid: Threads | None = None,
    fixed_blocks: tuple[Threads, ...] = (),
) -> KernelJob:
    return KernelJob(
        name=symbol,
        symbol=symbol,
        cubin=b"",
        blocks=(block,),
        grid=grid,
        shared_bytes=0,
        strides=strides,
        resident_blocks_count=2,
        fixed_blocks=fixed_blocks,
    )


def saxpy(launch: HostLaunch, extra: int = 0) -> None:
    """Compute y = a x + y, and write ``extra`` more elements."""
    n = min(launch.number(3) + extra, len(launch.threads))
    launch.at(1, n)[:] += launch.number(2, "f4") * launch.at(0, n)


def scan(launch: HostLaunch, *, exclusive: bool) -> None:
    """Compute the prefix sums of each block of 256."""
    n = launch.number(2)
    for begin in range(0, min(n, len(launch.threads)), 256):
        count = min(256, n - begin)
        sums = np.cumsum(launch.at(0, count, begin=begin), dtype="f4")
        launch.at(1, count, begin=begin)[:] = np.concatenate(([np.float32(0)], sums[:-1])) if exclusive else sums


def transpose(launch: HostLaunch, tile: tuple[int, int]) -> None:
    """Transpose tiles of this width and height; a block writes nothing outside the matrix."""
    rows, cols = int(launch.number(2)), int(launch.number(3))
    source, target = launch.at(0, rows * cols).reshape(rows, cols), launch.at(1, rows * cols).reshape(cols, rows)
    width, height = min(cols, tile[0] * launch.grid[0]), min(rows, tile[1] * launch.grid[1])
    target[:width, :height] = source[:height, :width].T
