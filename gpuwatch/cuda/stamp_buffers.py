"""Device memory for stamps: taken, given back, and a little of it kept for the next window."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuwatch.cuda.driver import Context, checked, context, kernel, sms_count
from gpuwatch.process import torch_state

STAMP_BYTES = 16  # an SM's: its two registers
MOST_BYTES = 64 << 20  # of device memory for one window's stamps
_SPARE_COUNT = 16  # stamps: the two at a window's edges, and a canary's


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """Rows for so many stamps and one more for calibration, and the kernel that fills them."""

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


_spare: dict[tuple[Context, int], list[Room]] = {}  # by context and size; kept, because to have it takes 0.2 ms
_left: list[Room] = []  # given back when it could not be freed


def spare(driver: Any, count: int) -> Iterator[Room]:
    """Rooms of this size that were given back, each of them handed out once."""
    kept = _spare.get((context(driver), count), []) if count <= _SPARE_COUNT else []
    with contextlib.suppress(IndexError):  # another thread may take the last
        while kept:
            yield kept.pop()


def new(driver: Any, count: int) -> Room:
    """Room for so many stamps or as many as ``MOST_BYTES`` hold.  Raises RuntimeError for what the driver refuses."""
    _free_left(driver)
    sms = sms_count(driver)
    kept = min(count, MOST_BYTES // (sms * STAMP_BYTES))
    index, stamp = sys.modules["torch"].cuda.current_device(), kernel(driver, "gpuwatch_stamp")
    base = int(checked(driver.cuMemAlloc((kept + 1) * sms * STAMP_BYTES)))
    return Room(driver, context(driver), index, stamp, sms, kept, base)


def give_back(room: Room) -> None:
    """A little is kept, the rest freed: now, or later where a capture or another context is under way."""
    if room.count <= _SPARE_COUNT:
        _spare.setdefault((room.context, room.count), []).append(room)
        return
    _left.append(room)
    if not torch_state.capturing():  # to free memory would destroy the graph that is being captured
        _free_left(room.driver)


def _free_left(driver: Any) -> None:
    # In another context the address is somebody else's: that of a context that was reset is never freed.
    current = context(driver)
    for room in [each for each in _left if each.context == current]:
        with contextlib.suppress(ValueError):  # another thread was here
            _left.remove(room)
            driver.cuMemFree(room.base)


__all__ = ["MOST_BYTES", "STAMP_BYTES", "Room", "give_back", "new", "spare"]
