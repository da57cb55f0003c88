"""The canary: fixed light work whose clock and copy rate show whether the GPU itself is slow."""

import ctypes
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from gpuwatch.cuda.driver import checked, current_driver, load_kernel, raw_stream, sms_count
from gpuwatch.cuda.stamp import Stamped, Stamps
from gpuwatch.process import torch_state

_SPIN_CYCLES = 4_000_000  # 2 ms at 2 GHz, and too light for any power limit
_COPY_BYTES = 128 << 20  # source and target together exceed the L2 cache of every known board
_COPIES_COUNT = 16


@dataclass(frozen=True, slots=True)
class Canary:
    """The true clock under light work, and the bytes per second that a copy reads and writes."""

    clock_mhz: float | None
    copy_bytes_count: float | None


def measure_canary(driver: Any = None) -> Canary | None:  # cuda has no types
    """Run the canary and wait for its end.  The canary needs 256 MiB.

    Return None without a context, without cuda-bindings, or during a capture.
    Raises RuntimeError: when the driver refuses, for example for lack of memory.
    """
    driver = current_driver(driver)
    stamped = spin_stamped(driver)
    cuda = torch_state.cuda_with_context()
    if stamped is None or cuda is None:
        return None
    return Canary(stamped.mean_mhz(0, 1), _copied_bytes_count(driver, cuda, raw_stream()(cuda.current_device())))


def spin_stamped(driver: Any = None) -> Stamped | None:
    """Return the stamps before and after about 2 ms of light work on every SM.

    Return None without a context, without cuda-bindings, or during a capture.

    Raises RuntimeError: when the driver refuses.
    """
    driver = current_driver(driver)
    cuda = torch_state.cuda_with_context()
    stamps = Stamps.allocate(2, driver) if driver is not None and cuda is not None else None
    if stamps is None or cuda is None:
        return None
    with closing(stamps):
        stream = raw_stream()(cuda.current_device())
        cycles = ctypes.c_uint64(_SPIN_CYCLES)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(cycles))
        spin, sms = load_kernel(driver, "gpuwatch_spin"), sms_count(driver)

        def turn() -> None:
            checked(driver.cuLaunchKernel(spin, sms, 1, 1, 1, 1, 1, 0, stream, ctypes.addressof(arguments), 0))

        turn()  # leave an idle state first
        stamps.put()
        turn()
        stamps.put()
        cuda.current_stream().synchronize()
        return stamps.read()


def _copied_bytes_count(driver: Any, cuda: Any, stream: int) -> float | None:
    source = int(checked(driver.cuMemAlloc(2 * _COPY_BYTES)))
    try:
        first, last = (cuda.Event(enable_timing=True) for _ in range(2))
        for number in range(_COPIES_COUNT + 1):
            if number == 1:
                first.record()
            checked(driver.cuMemcpyDtoDAsync(source + _COPY_BYTES, source, _COPY_BYTES, stream))
        last.record()
        last.synchronize()
        took_s = first.elapsed_time(last) / 1e3
    finally:
        checked(driver.cuMemFree(source))
    return 2 * _COPY_BYTES * _COPIES_COUNT / took_s if took_s > 0 else None
