"""Memory, copies and kernel launches of a GPU, through the driver API, with or without torch."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuwatch.cuda.driver import checked, raw_stream
from gpuwatch.diff.cubin import Threads

Bytes = npt.NDArray[np.uint8]
Launch = Callable[[], None]  # one launch with bound arguments, ready for timing
_HINTS = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": ": it reads or writes memory outside the buffers of its arguments",
    "CUDA_ERROR_MISALIGNED_ADDRESS": ": it reads or writes at an address that is not a multiple of the access size",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": ": it is compiled for another architecture",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": ": a block needs more threads, registers or shared memory than an SM has",
    "CUDA_ERROR_INVALID_VALUE": ": the GPU cannot launch this grid, block and shared memory",
}
_USUAL_SHARED_BYTES = 48 << 10  # more dynamic shared memory must be requested


class KernelFault(Exception):  # noqa: N818 - the user's kernel failed, not gpuwatch
    """Error for a kernel that fails or cannot run; the context may be lost."""


class KernelDevice:
    """Memory and launches of the GPU of the current context, with torch's current stream or that of ``DriverCuda``.

    Addresses are integers.  Each method but ``free`` and ``bind``, and each bound launch, raises KernelFault: when the driver
    rejects the call or a launch failed.
    """

    def __init__(self, driver: Any, cuda: Any) -> None:  # neither cuda-bindings nor torch.cuda has types
        self._driver, self._cuda = driver, cuda
        found = cuda.get_device_properties(0)
        self.l2_bytes, self.sms_count = int(found.L2_cache_size), int(found.multi_processor_count)
        self._stream = raw_stream()

    def allocate(self, bytes_count: int) -> int:
        return int(_run(self._driver.cuMemAlloc(max(1, bytes_count))))

    def free(self, at: int) -> None:
        self._driver.cuMemFree(at)

    def write(self, at: int, data: Bytes) -> None:
        if data.nbytes:
            _run(self._driver.cuMemcpyHtoD(at, data.ctypes.data, data.nbytes))

    def fill(self, at: int, value: int, bytes_count: int) -> None:
        _run(self._driver.cuMemsetD8Async(at, value, bytes_count, self._stream(0)))

    def copy(self, to: int, source: int, bytes_count: int) -> None:
        _run(self._driver.cuMemcpyDtoDAsync(to, source, bytes_count, self._stream(0)))

    def read(self, at: int, bytes_count: int) -> Bytes:
        self.synchronize()
        out = np.empty(bytes_count, np.uint8)
        if bytes_count:
            _run(self._driver.cuMemcpyDtoH(out.ctypes.data, at, bytes_count))
        return out

    def load(self, code: bytes, symbol: str, shared_bytes: int) -> object:
        driver = self._driver
        kernel = _run(driver.cuModuleGetFunction(_run(driver.cuModuleLoadData(code)), symbol.encode()))
        if shared_bytes > _USUAL_SHARED_BYTES:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _run(driver.cuFuncSetAttribute(kernel, attribute, shared_bytes))
        return kernel  # the module stays loaded as long as the process

    def bind(self, kernel: object, grid: Threads, block: Threads, shared_bytes: int, arguments: Sequence[bytes]) -> Launch:
        values = [ctypes.create_string_buffer(each, len(each)) for each in arguments]
        places = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        at, launch, stream = ctypes.addressof(places), self._driver.cuLaunchKernel, self._stream

        def call(_held: object = (values, places)) -> None:
            _run(launch(kernel, *grid, *block, shared_bytes, stream(0), at, 0))

        return call

    def synchronize(self) -> None:
        _run(self._driver.cuCtxSynchronize())


def _run(answer: tuple[Any, ...]) -> Any:
    try:
        return checked(answer)
    except RuntimeError as error:
        name = str(error).removeprefix("CUDA: ")
        raise KernelFault(f"fails with {name}{_HINTS.get(name, '')}") from error
