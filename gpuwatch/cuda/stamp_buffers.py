"""Device memory for stamps: allocated, released, and a little of it reused by the next window."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuwatch.cuda.driver import Context, checked, context, load_kernel, sms_count
from gpuwatch.process import torch_state

STAMP_BYTES = 16  # the two registers of one SM
MOST_BYTES = 64 << 20  # of device memory for one window's stamps
_SPARE_COUNT = 16  # stamps: more than a window's edges and a canary need


@dataclass(frozen=True, slots=True, eq=False)
class StampBuffer:
    """Rows for ``count`` stamps and one more for calibration, and the kernel that fills them."""

    driver: Any  # cuda has no types
    context: Context
    index: int
    kernel: Any  # cuda has no types
    sms_count: int
    count: int
    base: int

    @property
    def row_bytes(self) -> int:
        return self.sms_count * STAMP_BYTES

    @property
    def size_bytes(self) -> int:
        return (self.count + 1) * self.row_bytes


_spare: dict[tuple[Context, int], list[StampBuffer]] = {}  # by context and size, because allocating takes 0.2 ms
_unfreed: list[StampBuffer] = []  # released when it could not be freed


def reuse(driver: Any, count: int) -> Iterator[StampBuffer]:
    """Yield released buffers of this size, each of them once."""
    released = _spare.get((context(driver), count), []) if count <= _SPARE_COUNT else []
    with contextlib.suppress(IndexError):  # another thread may take the last
        while released:
            yield released.pop()


def allocate(driver: Any, count: int) -> StampBuffer:
    """Allocate a buffer for ``count`` stamps or as many as ``MOST_BYTES`` hold.  Raises RuntimeError: when the driver refuses."""
    _free_pending(driver)
    sms = sms_count(driver)
    count = min(count, MOST_BYTES // (sms * STAMP_BYTES))
    index = int(checked(driver.cuCtxGetDevice()))  # a device is its ordinal
    stamp = load_kernel(driver, "gpuwatch_stamp")
    base = int(checked(driver.cuMemAlloc((count + 1) * sms * STAMP_BYTES)))
    return StampBuffer(driver, context(driver), index, stamp, sms, count, base)


def release(buffer: StampBuffer) -> None:
    """Hold a small buffer for reuse and free a large one: now, or later during a capture or in another context."""
    if buffer.count <= _SPARE_COUNT:
        _spare.setdefault((buffer.context, buffer.count), []).append(buffer)
        return
    _unfreed.append(buffer)
    if not torch_state.capturing():  # to free memory would destroy the graph that is being captured
        _free_pending(buffer.driver)


def _free_pending(driver: Any) -> None:
    # In another context the address has another owner: memory of a context that was reset is never freed.
    current = context(driver)
    for buffer in [each for each in _unfreed if each.context == current]:
        with contextlib.suppress(ValueError):  # another thread freed it
            _unfreed.remove(buffer)
            driver.cuMemFree(buffer.base)
