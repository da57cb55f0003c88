"""Records beside the lanes: the driver's own power record, events, and intervals of silence."""

from __future__ import annotations

from dataclasses import dataclass

from annotate.evidence.reading import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRecord:
    """An interval of the driver's own dense power record (about 20 ms apart): parallel tuples, oldest first."""

    uuid: str
    at_ns: int
    took_ns: int
    sample_at_ns: tuple[int, ...]
    sample_w: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that was reported or happened: an Xid, a clock change, a GPU lost or back, the machine suspended."""

    uuid: str
    at_ns: int
    kind: str  # "xid", "clock", "ecc", "lost", "back", "suspended"
    value: int | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """An interval in which a lane was due and gave nothing."""

    begin_ns: int
    end_ns: int
    lane: Lane = Lane.FAST
