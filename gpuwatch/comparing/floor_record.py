"""By how much each GPU tells two equal arms apart: measured by `gpuwatch selftest`, kept by UUID and kind of kernel."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpuwatch import json_file

FILE = "floors.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """One kind of kernel on one GPU: the 95th percentile of A/A differences, and on how many trials it rests.

    ``shared``: both arms worked on the same buffers.  With buffers of their own they differ more, by where those lie.
    """

    kind: str
    shared: bool = False
    floor_ratio: float
    trials_count: int
    measured_wall_s: float


def read(state: Path) -> dict[str, tuple[Floor, ...]]:
    """Every floor kept, by UUID; a damaged entry is left out."""
    found = json_file.read(state / FILE).get("floors")
    if not isinstance(found, dict):
        return {}
    return {str(uuid): _floors(kinds) for uuid, kinds in found.items() if isinstance(kinds, dict)}


def of(state: Path, uuid: str, kind: str | None = None, *, shared: bool = False) -> float | None:
    """The floor of a kind of kernel; without a kind that is on record the largest, None where there is none."""
    found = [floor for floor in read(state).get(uuid, ()) if floor.shared == shared]
    named = [floor.floor_ratio for floor in found if floor.kind == kind]
    return max(named or [floor.floor_ratio for floor in found], default=None)


def keep(state: Path, uuid: str, floor: Floor) -> None:
    """Put one on record in place of the one before.  Raises OSError."""
    everything = {each: {_key(one): asdict(one) for one in those} for each, those in read(state).items()}
    everything.setdefault(uuid, {})[_key(floor)] = asdict(floor)
    json_file.write(state / FILE, {"floors": everything})


def _floors(kinds: dict[str, Any]) -> tuple[Floor, ...]:
    made = (_floor(fields) for fields in kinds.values() if isinstance(fields, dict))
    return tuple(floor for floor in made if floor is not None)


def _key(floor: Floor) -> str:
    return f"{floor.kind}, shared" if floor.shared else floor.kind


def _floor(fields: dict[str, Any]) -> Floor | None:
    try:
        floor = Floor(
            kind=str(fields["kind"]), shared=bool(fields.get("shared", False)), floor_ratio=float(fields["floor_ratio"]), trials_count=int(fields["trials_count"]),
            measured_wall_s=float(fields["measured_wall_s"]),
        )  # fmt: skip
    except (LookupError, TypeError, ValueError):
        return None
    return floor if math.isfinite(floor.floor_ratio) and 0.0 < floor.floor_ratio < 1.0 else None
