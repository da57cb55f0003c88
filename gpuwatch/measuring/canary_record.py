"""The canary's record on disk: the true clock and copy rate of known work in earlier valid runs, by GPU UUID."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from gpuwatch import clock, json_file

FILE = "canaries.json"
# Enough for a median that one bad day does not move; older ones may be of another driver.
_MOST_COUNT = 50


def store(state: Path, uuid: str, *, clock_mhz: float | None, copy_bytes_count: float | None) -> None:
    """Append the canary of a valid run.  Raises OSError: when the state folder cannot be written."""
    everything = json_file.read(state / FILE).get("canaries")
    everything = everything if isinstance(everything, dict) else {}
    record = {"at_wall_s": clock.wall_s(), "clock_mhz": clock_mhz, "copy_bytes_count": copy_bytes_count}
    before = everything.get(uuid)
    everything[uuid] = [*(before if isinstance(before, list) else []), record][-_MOST_COUNT:]
    json_file.write(state / FILE, {"canaries": everything})


def facts(
    state: Path, uuid: str, *, clock_mhz: float | None = None, copy_bytes_count: float | None = None
) -> dict[str, float | int]:
    """Return the facts that a window declares of its canary: the figures of this run, and the medians on record."""
    everything = json_file.read(state / FILE).get("canaries")
    records = everything.get(uuid) if isinstance(everything, dict) else None
    records = [record for record in records if isinstance(record, dict)] if isinstance(records, list) else []
    found: dict[str, float | int] = {}
    for name, now in (("clock_mhz", clock_mhz), ("copy_bytes_count", copy_bytes_count)):
        if now is not None:
            found[f"canary_{name}"] = now
        values = [value for record in records if _is_amount(value := record.get(name))]
        if values:
            found[f"canary_record_{name}"] = statistics.median(values)
    if records:
        found["canary_record_count"] = len(records)
    return found


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
