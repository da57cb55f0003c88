"""bench()'s canary: known work before the warm-up, told beside its record, put on record where the run proved healthy."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.client.testimony import spared
from gpuwatch.config import settings as config
from gpuwatch.config.settings import Settings
from gpuwatch.errors import GpuwatchError
from gpuwatch.measuring import canary_record
from gpuwatch.wire.messages import FactValue


@dataclass(frozen=True, slots=True)
class Sung:
    """What one canary said, and where such things are kept."""

    state: Path
    uuid: str
    clock_mhz: float | None
    copy_bytes_count: float | None

    @property
    def told(self) -> Mapping[str, FactValue]:
        return canary_record.told(self.state, self.uuid, clock_mhz=self.clock_mhz, copy_bytes_count=self.copy_bytes_count)

    def keep(self) -> None:
        """Put it on record; a state folder that cannot be written is no reason to lose a measurement."""
        with contextlib.suppress(OSError, ValueError):
            canary_record.keep(self.state, self.uuid, clock_mhz=self.clock_mhz, copy_bytes_count=self.copy_bytes_count)


def sing(uuid: str, settings: Settings | None) -> Sung | None:
    """About 5 ms of the GPU; None where it cannot be: no stamps, no memory for its copy, a configuration that is wrong."""
    # Whatever is wrong with it, the benchmark goes on; where memory is short, that needs no word.
    with spared("the canary"), contextlib.suppress(RuntimeError, GpuwatchError):
        from gpuwatch.cuda.canary import look

        found = look()
        if found is not None:
            return Sung((settings or config.load()).state, uuid, found.clock_mhz, found.copy_bytes_count)
    return None
