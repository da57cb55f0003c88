"""Columns of the tables, derived from Reading and Device, so that a new field is a new column.

Watts, joules, ratios and bytes are stored in units of mostly whole values: mW, mJ, percent and KiB.  SQLite writes
a whole REAL as an integer of at most six bytes instead of eight, and stores other values exactly.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, get_type_hints

from annotate.evidence import Device, Lane, Reading, signals

# Unit of the record -> unit of the column, the factor, and the decimals beyond which only rounding noise is left.
_SCALES = {"w": ("mw", 1000.0, 6), "j": ("mj", 1000.0, 6), "ratio": ("percent", 100.0, 9), "bytes": ("kib", 1 / 1024, None)}

# Signals that each table can hold.  The plan may move an expensive fast signal to the slow lane, and puts no fast signal into
# the edge lane's table.  The sampler may also read some signals more often than the rest of their row.
LANE_SIGNALS: dict[Lane, tuple[str, ...]] = {
    Lane.FAST: signals(Lane.FAST),
    Lane.PULSE: signals(Lane.FAST),
    Lane.SLOW: signals(Lane.SLOW) + signals(Lane.FAST),
    Lane.EDGE: signals(Lane.EDGE) + signals(Lane.FAST),
}


def sql_type(hint: Any) -> str:  # a type or a union with None
    names = {part.__name__ for part in getattr(hint, "__args__", (hint,))}
    return "TEXT" if "str" in names else "REAL" if "float" in names else "INTEGER"


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """One signal as a column: the column's value is the signal's value times ``scale``."""

    signal: str
    name: str
    kind: str
    scale: float = 1.0
    decimals: int | None = None

    def encode(self, value: Any) -> Any:  # a signal's value: int, float, bool or None
        if value is None or self.scale == 1.0:
            return value
        scaled = value * self.scale
        return scaled if self.decimals is None else round(scaled, self.decimals)

    @property
    def sql(self) -> str:
        """Return the SQL expression for the signal in the signal's unit."""
        if self.scale == 1.0:
            return f'"{self.name}"'
        return f'"{self.name}" / {self.scale}' if self.scale > 1 else f'"{self.name}" * {1 / self.scale:.0f}'


_READING_HINTS = get_type_hints(Reading)


def stored(signal: str) -> StoredColumn:
    stem, _, unit = signal.rpartition("_")
    kind = sql_type(_READING_HINTS[signal])
    if unit in _SCALES and (kind == "REAL" or unit == "bytes"):
        name, scale, decimals = _SCALES[unit]
        return StoredColumn(signal, f"{stem}_{name}", "REAL", scale, decimals)
    return StoredColumn(signal, signal, kind)


LANE_COLUMNS: dict[Lane, tuple[StoredColumn, ...]] = {lane: tuple(map(stored, names)) for lane, names in LANE_SIGNALS.items()}

# For each lane, a function that returns a reading's values as a tuple.
LANE_VALUES: dict[Lane, Callable[[Reading], tuple[Any, ...]]] = {
    lane: attrgetter(*names) for lane, names in LANE_SIGNALS.items()
}

_DEVICE_HINTS = get_type_hints(Device)
DEVICE_COLUMNS: dict[str, str] = {field.name: sql_type(_DEVICE_HINTS[field.name]) for field in fields(Device)}
_DEVICE_FLAGS = {name for name, hint in _DEVICE_HINTS.items() if bool in getattr(hint, "__args__", (hint,))}


def device_from_row(row: dict[str, Any]) -> Device:
    """Build a device; facts missing in an older version's row keep their defaults."""
    known: dict[str, Any] = {
        name: bool(row[name]) if name in _DEVICE_FLAGS else row[name] for name in DEVICE_COLUMNS if row.get(name) is not None
    }
    return Device(**known)


GPUS_COUNT = 64  # GPUs of a segment, 6 bits of a row's key; the other 57 bits hold four years of nanoseconds


def key(at_ns: int, gpu: int) -> int:
    return at_ns * GPUS_COUNT + gpu


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
