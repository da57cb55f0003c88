"""How a reading becomes a row: columns, their integers, and which rows are worth keeping.

Numbers are kept in the driver's own integers (mW, mJ, permille), because SQLite keeps a small integer in one to four
bytes and any other number in eight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from annotate.evidence import HEARTBEAT_NS, Lane, Reading, signals

# By unit: the suffix of the stored integer, and how many make one.
_SCALED: Mapping[str, tuple[str, int]] = {"w": ("mw", 1000), "j": ("mj", 1000), "ratio": ("permille", 1000)}

# Watts below which a change is the sensor's noise: an idle H200 wanders by 0.3 W; the dense record has the exact course.
POWER_NOISE_W = 1.0

# One key holds time and GPU: rows of a stretch of time lie together and need no index.
_GPU_BITS = 6
GPU_COUNT = 1 << _GPU_BITS

TABLES: Mapping[Lane, tuple[str, ...]] = {
    Lane.FAST: signals(Lane.FAST),
    # A fast signal too dear for its lane on some board is asked with the slow ones.
    Lane.SLOW: (*signals(Lane.SLOW), *signals(Lane.FAST)),
    Lane.EDGE: (*signals(Lane.EDGE), *signals(Lane.FAST)),
}


def key(at_ns: int, gpu: int) -> int:
    return at_ns << _GPU_BITS | gpu


def key_at_ns(row_key: int) -> int:
    return row_key >> _GPU_BITS


def key_sql(gpu: bool = False) -> str:
    """The SQL of one half of a key."""
    return f"key & {GPU_COUNT - 1}" if gpu else f"key >> {_GPU_BITS}"


def stored_name(signal: str) -> str:
    """The column of a signal: its name, with the unit of the stored integer."""
    stem, _, unit = signal.rpartition("_")
    return f"{stem}_{_SCALED[unit][0]}" if unit in _SCALED else signal


def scale(signal: str) -> int:
    """How many stored units make one of the signal's."""
    return _SCALED.get(signal.rpartition("_")[2], ("", 1))[1]


def to_row(reading: Reading) -> tuple[int | None, ...]:
    """The stored integers of a reading, in the order of its lane's table."""
    return tuple(
        None if value is None else round(value * factor)
        for value, factor in zip(_ASK[reading.lane](reading), _FACTORS[reading.lane], strict=True)
    )


_ASK: Mapping[Lane, Callable[[Reading], tuple[Any, ...]]] = {lane: attrgetter(*names) for lane, names in TABLES.items()}
_FACTORS: Mapping[Lane, tuple[int, ...]] = {lane: tuple(map(scale, names)) for lane, names in TABLES.items()}
_NOISE: Mapping[Lane, tuple[int, ...]] = {
    lane: tuple(round(POWER_NOISE_W * scale(name)) if name.endswith("_w") and "limit" not in name else 0 for name in names)
    for lane, names in TABLES.items()
}


class Changes:
    """Which rows of one lane of one GPU to keep: those that changed, and one each heartbeat so that a gap is a gap."""

    def __init__(self, lane: Lane) -> None:
        self._noise = _NOISE[lane]
        self._last: tuple[int | None, ...] | None = None
        self._kept_ns = 0

    def keep(self, at_ns: int, row: tuple[int | None, ...]) -> bool:
        if self._last is not None and at_ns - self._kept_ns < HEARTBEAT_NS and self._same(row):
            return False
        self._last, self._kept_ns = row, at_ns
        return True

    def _same(self, row: tuple[int | None, ...]) -> bool:
        last = self._last
        assert last is not None
        return row == last or all(
            new == old or (noise and new is not None and old is not None and abs(new - old) < noise)
            for new, old, noise in zip(row, last, self._noise, strict=True)
        )


