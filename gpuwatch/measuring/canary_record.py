"""The canary of a benchmark: known work before the warm-up, declared with earlier results, stored after a valid run."""

import contextlib
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from gpuwatch import clock, json_file
from gpuwatch.client.testimony import spared
from gpuwatch.config.settings import Settings, load
from gpuwatch.errors import GpuwatchError
from gpuwatch.wire.messages import FactValue

FILE = "canaries.json"
# Enough for a median that one bad day does not change; older records may come from another driver.
_MOST_COUNT = 50


def store(state: Path, uuid: str, *, clock_mhz: float | None, copy_bytes_count: float | None) -> None:
    """Append the canary of a valid run.

    Raises OSError: when the state folder cannot be written.
    Raises ValueError: for a number that is not finite.
    """
    everything = _everything(state)
    record = {"at_wall_s": clock.wall_s(), "clock_mhz": clock_mhz, "copy_bytes_count": copy_bytes_count}
    everything[uuid] = [*_records(everything, uuid), record][-_MOST_COUNT:]
    json_file.write(state / FILE, {"canaries": everything})


def facts(
    state: Path, uuid: str, *, clock_mhz: float | None = None, copy_bytes_count: float | None = None
) -> dict[str, float | int]:
    """Return the facts about the canary that a window declares: this run's figures and the recorded medians."""
    records = _records(_everything(state), uuid)
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


def _everything(state: Path) -> dict[str, Any]:
    found = json_file.read(state / FILE).get("canaries")
    return found if isinstance(found, dict) else {}


def _records(everything: dict[str, Any], uuid: str) -> list[dict[str, Any]]:
    found = everything.get(uuid)
    return [record for record in found if isinstance(record, dict)] if isinstance(found, list) else []


def _is_amount(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


@dataclass(frozen=True, slots=True)
class CanaryRun:
    """The figures of one canary, and the state folder that holds its record."""

    state: Path
    uuid: str
    clock_mhz: float | None
    copy_bytes_count: float | None

    @property
    def facts(self) -> Mapping[str, FactValue]:
        return facts(self.state, self.uuid, clock_mhz=self.clock_mhz, copy_bytes_count=self.copy_bytes_count)

    def store(self) -> None:
        """Append the canary to the record; an unwritable state folder must not fail a measurement."""
        with contextlib.suppress(OSError, ValueError):
            store(self.state, self.uuid, clock_mhz=self.clock_mhz, copy_bytes_count=self.copy_bytes_count)


def run_canary(uuid: str, settings: Settings | None) -> CanaryRun | None:
    """Run the canary; return None without stamps, memory for its copy, or a valid configuration."""
    # A failure never stops a benchmark; a lack of memory is not even logged.
    with spared("the canary"), contextlib.suppress(RuntimeError, GpuwatchError):
        from gpuwatch.cuda.canary import measure_canary

        found = measure_canary()
        if found is not None:
            return CanaryRun((settings or load()).state, uuid, found.clock_mhz, found.copy_bytes_count)
    return None
