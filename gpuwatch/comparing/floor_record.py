"""The noise floors of GPUs on disk: `gpuwatch selftest` measures them and stores them by UUID and kind of kernel."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from gpuwatch import json_file

FILE = "floors.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The floor of one kind of kernel on one GPU: the bound of A/A differences, and the number of trials.

    ``shared``: both variants used the same buffers.  Separate buffers differ more, because of their addresses.
    ``coverage_ratio`` is the share of further differences that the floor covers.  Records of earlier versions lack the
    share: their floor is the largest difference.
    """

    kind: str
    shared: bool = False
    floor_ratio: float
    trials_count: int
    measured_wall_s: float
    coverage_ratio: float | None = None
    cache: str | None = None  # cold; None: an earlier version wrote the record, after warm trials

    @property
    def covered_ratio(self) -> float:
        """Return the share of further differences that the floor covers: n / (n + 1) if the floor is the largest of n."""
        if self.coverage_ratio is not None and 0.0 < self.coverage_ratio < 1.0:
            return self.coverage_ratio
        return self.trials_count / (self.trials_count + 1) if self.trials_count > 0 else 0.0


def read(state: Path) -> dict[str, tuple[Floor, ...]]:
    """Read every stored floor by UUID, without damaged entries."""
    found = json_file.read(state / FILE).get("floors")
    if not isinstance(found, dict):
        return {}
    return {
        str(uuid): tuple(floor for fields in kinds.values() if (floor := _floor(fields)) is not None)
        for uuid, kinds in found.items()
        if isinstance(kinds, dict)
    }


def read_ratio(state: Path, uuid: str, kind: str | None = None, *, shared: bool = False) -> float | None:
    """Return the floor of a kind of kernel, or the largest floor if that kind has none; None without floors."""
    found = [floor for floor in read(state).get(uuid, ()) if floor.shared == shared]
    named = [floor.floor_ratio for floor in found if floor.kind == kind]
    return max(named or [floor.floor_ratio for floor in found], default=None)


def store(state: Path, uuid: str, floor: Floor) -> None:
    """Store a floor in place of this GPU's earlier one of the same kind and sharing.

    Raises OSError: when the state folder cannot be written.
    Raises ValueError: for a number that is not finite.
    """
    everything = {each: {_key(one): asdict(one) for one in those} for each, those in read(state).items()}
    everything.setdefault(uuid, {})[_key(floor)] = asdict(floor)
    json_file.write(state / FILE, {"floors": everything})


def _key(floor: Floor) -> str:
    return f"{floor.kind}, shared" if floor.shared else floor.kind


def _floor(fields: object) -> Floor | None:
    try:
        floor = msgspec.convert(fields, Floor)
    except msgspec.ValidationError:
        return None
    return floor if math.isfinite(floor.floor_ratio) and 0.0 < floor.floor_ratio < 1.0 else None
