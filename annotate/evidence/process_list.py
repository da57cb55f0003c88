"""Process lists of a GPU, and how much of the machine each could show."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

USE_STANDS_NS = 12_000_000_000  # the utilisation record is asked every ten seconds while no window is open


class Ownership(StrEnum):
    """Whose process it is, seen from one window."""

    OWN = "own"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"


class Visibility(StrEnum):
    """The part of the machine's process list that the witness could see."""

    HOST = "host"  # every process of the machine
    NAMESPACE = "namespace"  # only this container's
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process the driver named: on the process list, or only in the utilisation record (then no memory is known)."""

    pid: int
    name: str | None = None
    user: str | None = None
    started_s: float | None = None  # wall time of its start: a PID alone is reused
    memory_bytes: int | None = None
    utilization_ratio: float | None = None
    listed: bool = True  # False: only the utilisation record names it
    graphics: bool = False
    ownership: Ownership = Ownership.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessList:
    """The processes on one GPU at one instant."""

    uuid: str
    at_ns: int
    took_ns: int
    processes: tuple[Process, ...]
    visibility: Visibility = Visibility.UNKNOWN
    use_asked: bool = False  # of the utilisation record, which may have named nobody; not known of stored ones

    @property
    def tells_use(self) -> bool:
        """Return whether the utilisation record was asked too, as far as it can be known."""
        return self.use_asked or any(process.utilization_ratio is not None for process in self.processes)

    def with_use(self, earlier: ProcessList) -> ProcessList:
        """The same list, with what an earlier one knew of the utilisation record: how busy each was, and whom only it named."""
        if self.tells_use or self.at_ns - earlier.at_ns > USE_STANDS_NS:
            return self
        ratios = {(process.pid, process.started_s): process.utilization_ratio for process in earlier.processes}
        here = {process.pid for process in self.processes}
        listed = (replace(each, utilization_ratio=ratios.get((each.pid, each.started_s))) for each in self.processes)
        unlisted = (each for each in earlier.processes if not each.listed and each.pid not in here)
        return replace(self, processes=(*listed, *unlisted))
