"""Who was on a GPU, and how much of the machine the list could show."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Ownership(StrEnum):
    """Whose process it is, seen from one window."""

    OWN = "own"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"


class Visibility(StrEnum):
    """How much of the machine's process list the witness could see."""

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
class Census:
    """Who was on one GPU at one instant."""

    uuid: str
    at_ns: int
    took_ns: int
    processes: tuple[Process, ...]
    visibility: Visibility = Visibility.UNKNOWN
