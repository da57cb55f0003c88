"""What this GPU's canary said before: a fixed amount of work, its true clock and its copy rate, by UUID."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from gpuwatch import clock, json_file

FILE = "canaries.json"
# Enough for a median that one bad day does not move; older ones may be of another driver.
_MOST_COUNT = 50


def keep(state: Path, uuid: str, *, clock_mhz: float | None, copy_bytes_count: float | None) -> None:
    """Put the canary of a healthy run on record.  Raises OSError."""
    everything = json_file.read(state / FILE).get("canaries")
    everything = everything if isinstance(everything, dict) else {}
    record = {"at_wall_s": clock.wall_s(), "clock_mhz": clock_mhz, "copy_bytes_count": copy_bytes_count}
    before = everything.get(uuid)
    everything[uuid] = [*(before if isinstance(before, list) else []), record][-_MOST_COUNT:]
    json_file.write(state / FILE, {"canaries": everything})


def told(
    state: Path, uuid: str, *, clock_mhz: float | None = None, copy_bytes_count: float | None = None
) -> dict[str, float | int]:
    """The facts a window tells of its canary: what it read now, and the medians on record."""
    everything = json_file.read(state / FILE).get("canaries")
    records = everything.get(uuid) if isinstance(everything, dict) else None
    records = [record for record in records if isinstance(record, dict)] if isinstance(records, list) else []
    facts: dict[str, float | int] = {}
    for name, now in (("clock_mhz", clock_mhz), ("copy_bytes_count", copy_bytes_count)):
        if now is not None:
            facts[f"canary_{name}"] = now
        values = [value for record in records if _is_amount(value := record.get(name))]
        if values:
            facts[f"canary_record_{name}"] = statistics.median(values)
    if records:
        facts["canary_record_count"] = len(records)
    return facts


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
