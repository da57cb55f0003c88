"""Device memory for stamps: allocated, released, and reused by the next window."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuwatch.cuda.driver import Context, checked, context, load_kernel, sms_count
from gpuwatch.process import torch_state

STAMP_BYTES = 16  # the two registers of one SM
MOST_BYTES = 64 << 20  # device memory for one window's stamps, without the calibration
_SPARE_COUNT = 16  # stamps: more than the edges of a window and a canary need
_ROOM_COUNT = 32_768  # stamps of a window's iterations that are kept for the next window
_ROOMY_BYTES = 4 << 30  # below this free memory no room is kept


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


_spare: dict[tuple[Context, int], list[StampBuffer]] = {}  # by context and size, because an allocation is slow
_unfreed: list[StampBuffer] = []  # released, and not freed yet


def keep_room(driver: Any) -> None:
    """Keep a buffer for a window's iterations if none is kept, 4 GiB of memory are free, and the context has a number.

    Allocated inside a window, the buffer would wait for the daemon's calls (docs/decisions/0122).
    Raises RuntimeError: when the driver refuses.
    """
    count = _room_count(driver)
    key = context(driver), count
    # Without a number the context may follow one that was reset, and the room's address may have another owner.
    if key[0][1] and not _spare.get(key) and checked(driver.cuMemGetInfo()) >= _ROOMY_BYTES:
        _spare.setdefault(key, []).append(allocate(driver, count))


def _room_count(driver: Any) -> int:
    return min(_ROOM_COUNT, _most_count(driver))


def _most_count(driver: Any) -> int:
    return MOST_BYTES // (sms_count(driver) * STAMP_BYTES)


def reuse(driver: Any, count: int) -> Iterator[StampBuffer]:
    """Yield released buffers with room for this many stamps, or for ``MOST_BYTES``, each of them once."""
    if count > _SPARE_COUNT:
        room_count = _room_count(driver)
        count = room_count if min(count, _most_count(driver)) <= room_count else count
    released = _spare.get((context(driver), count), [])
    with contextlib.suppress(IndexError):  # another thread may take the last one
        while released:
            yield released.pop()


def allocate(driver: Any, count: int) -> StampBuffer:
    """Allocate a buffer for ``count`` stamps, limited by ``MOST_BYTES``.

    Raises RuntimeError: when the driver refuses.
    """
    free_pending()
    sms = sms_count(driver)
    count = min(count, _most_count(driver))
    index = int(checked(driver.cuCtxGetDevice()))  # a device is its ordinal
    stamp = load_kernel(driver, "gpuwatch_stamp")
    base = int(checked(driver.cuMemAlloc((count + 1) * sms * STAMP_BYTES)))
    return StampBuffer(driver, context(driver), index, stamp, sms, count, base)


def release(buffer: StampBuffer, *, is_beside: bool = False) -> None:
    """Keep a small buffer or the room for a window; free other buffers now, or later in a capture or another context.

    ``is_beside`` is True in a separate thread: ``free_pending`` frees later, because freeing waits for all GPU work.
    """
    kept = _spare.get((buffer.context, buffer.count))
    if buffer.count <= _SPARE_COUNT or kept == []:
        _spare.setdefault((buffer.context, buffer.count), []).append(buffer)
        return
    _unfreed.append(buffer)
    if not is_beside:
        free_pending()


def discard(buffer: StampBuffer) -> None:
    """Free an unusable buffer later.  Drop one of a context without a number, because its address may have another owner."""
    if buffer.context[1]:
        _unfreed.append(buffer)


def free_pending() -> None:
    """Free released buffers of the current context, unless a graph is being captured: freeing memory would end the capture."""
    if not _unfreed or torch_state.cuda_at_hand() is None:
        return
    # In another context the address has another owner, so memory of a context that was reset is never freed.
    for buffer in list(_unfreed):
        with contextlib.suppress(ValueError, RuntimeError):  # another thread freed it, or the GPU is lost
            if buffer.context == context(buffer.driver):
                _unfreed.remove(buffer)
                buffer.driver.cuMemFree(buffer.base)
