"""CUDA's driver API on the current context, and gpuwatch's kernels as PTX, which the driver compiles."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gpuwatch.process import torch_state

# On a partition, %smid may exceed the number of SMs: a thread on such an SM has no slot in the row and writes nothing.
PTX = b"""
.version 6.0
.target sm_60
.address_size 64
.visible .entry gpuwatch_stamp(.param .u64 row, .param .u32 sms)
{
    .reg .b64 %a<6>;
    .reg .b32 %s<3>;
    .reg .pred %p;
    ld.param.u64 %a1, [row];
    ld.param.u32 %s1, [sms];
    mov.u32 %s2, %smid;
    setp.ge.u32 %p, %s2, %s1;
    @%p bra done;
    mul.wide.u32 %a2, %s2, 16;
    add.u64 %a3, %a1, %a2;
    mov.u64 %a4, %globaltimer;
    mov.u64 %a5, %clock64;
    st.global.v2.u64 [%a3], {%a4, %a5};
done:
    ret;
}
.visible .entry gpuwatch_spin(.param .u64 cycles)
{
    .reg .b64 %a<5>;
    .reg .pred %p;
    ld.param.u64 %a1, [cycles];
    mov.u64 %a2, %clock64;
again:
    mov.u64 %a3, %clock64;
    sub.u64 %a4, %a3, %a2;
    setp.lt.u64 %p, %a4, %a1;
    @%p bra again;
    ret;
}
\0"""
Context = tuple[int, int]
_modules: dict[Context, Any] = {}  # CUmodule has no type here


def current_driver(driver: Any = None) -> Any | None:
    """Return the driver's functions (by default those of cuda-bindings), or None if they cannot be called safely.

    The result is None without cuda-bindings, without a CUDA context, or during a capture.  The function creates no context.
    Raises RuntimeError: when the driver refuses.
    """
    if torch_state.cuda_at_hand() is None:
        return None
    driver = driver or bindings()
    return driver if driver is not None and context(driver) != (0, 0) else None


def bindings() -> Any | None:
    """Import the driver's functions from cuda-bindings; None if they are not installed."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return None
    return driver


def context(driver: Any) -> Context:
    """Return the address and the number of the current context, or zeros without a context.

    After a reset another context may have the same address; numbers are unique.  Drivers before CUDA 12.0 give the number 0.
    Raises RuntimeError: when the driver refuses.
    """
    current = checked(driver.cuCtxGetCurrent())
    address = int(current)
    number = 0
    if address:
        with contextlib.suppress(AttributeError, RuntimeError):
            number = int(checked(driver.cuCtxGetId(current)))
    return address, number


@contextlib.contextmanager
def reading_thread(driver: Any, current: Context) -> Iterator[int]:
    """Let the calling thread read from a context while the program continues; yield the handle of a separate stream.

    Reads on this stream leave graph captures of the program intact; a plain copy in another thread would end a capture.
    Raises RuntimeError: when the driver refuses.
    """
    checked(driver.cuCtxSetCurrent(current[0]))
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = checked(driver.cuThreadExchangeStreamCaptureMode(relaxed))
    stream = checked(driver.cuStreamCreate(int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)))
    try:
        yield int(stream)
    finally:
        driver.cuStreamDestroy(stream)
        driver.cuThreadExchangeStreamCaptureMode(before)


def load_kernel(driver: Any, name: str) -> Any:
    """Return a kernel of gpuwatch.  The first call in each context loads the module, for which the driver compiles the PTX.

    Raises RuntimeError: when the driver refuses.
    """
    current = context(driver)
    if current in _modules:
        with contextlib.suppress(RuntimeError):  # the context was reset, and the driver does not number contexts
            return checked(driver.cuModuleGetFunction(_modules[current], name.encode()))
    _modules[current] = checked(driver.cuModuleLoadData(PTX))
    return checked(driver.cuModuleGetFunction(_modules[current], name.encode()))


def sms_count(driver: Any) -> int:
    """Return the number of SMs of the current context's GPU.

    Raises RuntimeError: when the driver refuses.
    """
    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    return int(checked(driver.cuDeviceGetAttribute(attribute, checked(driver.cuCtxGetDevice()))))


def raw_stream() -> Callable[[int], int]:
    """Return a function from a device's index to the driver's handle of torch's current stream."""
    quick: Callable[[int], int] | None = getattr(sys.modules.get("torch._C"), "_cuda_getCurrentRawStream", None)
    cuda = torch_state.cuda_with_context()
    if quick is not None and (cuda is None or cuda is getattr(sys.modules.get("torch"), "cuda", None)):
        return quick
    return lambda index: int((cuda or sys.modules["torch"].cuda).current_stream(index).cuda_stream)


def checked(answer: tuple[Any, ...]) -> Any:
    """Return the first value of a driver call, or None for a call without values.

    Raises RuntimeError: when the call failed, with CUDA's name of the error.
    """
    status, *values = answer
    if int(status):
        raise RuntimeError(f"CUDA: {getattr(status, 'name', status)}")
    return values[0] if values else None
