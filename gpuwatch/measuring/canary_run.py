"""The canary of a benchmark: known work before the warm-up, declared beside its record, stored after a valid run."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.client.testimony import spared
from gpuwatch.config.settings import Settings, load
from gpuwatch.errors import GpuwatchError
from gpuwatch.measuring import canary_record
from gpuwatch.wire.messages import FactValue


@dataclass(frozen=True, slots=True)
class CanaryRun:
    """The figures of one canary, and the state folder that holds its record."""

    state: Path
    uuid: str
    clock_mhz: float | None
    copy_bytes_count: float | None

    @property
    def facts(self) -> Mapping[str, FactValue]:
        return canary_record.facts(self.state, self.uuid, clock_mhz=self.clock_mhz, copy_bytes_count=self.copy_bytes_count)

    def store(self) -> None:
        """Append the canary to the record; a state folder that cannot be written is no reason to lose a measurement."""
        with contextlib.suppress(OSError, ValueError):
            canary_record.store(self.state, self.uuid, clock_mhz=self.clock_mhz, copy_bytes_count=self.copy_bytes_count)


def run_canary(uuid: str, settings: Settings | None) -> CanaryRun | None:
    """Run the canary for about 5 ms; return None without stamps, memory for its copy, or a valid configuration."""
    # Whatever is wrong with it, the benchmark goes on; where memory is short, that needs no word.
    with spared("the canary"), contextlib.suppress(RuntimeError, GpuwatchError):
        from gpuwatch.cuda.canary import measure_canary

        found = measure_canary()
        if found is not None:
            return CanaryRun((settings or load()).state, uuid, found.clock_mhz, found.copy_bytes_count)
    return None
