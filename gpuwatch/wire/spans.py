"""Spans next to a window's timings: conversion of messages to evidence, and the bounds of a message."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from annotate.evidence import OtherWork, Pause
from gpuwatch.errors import UsageError
from gpuwatch.wire import messages as wire

_FARTHEST_NS = 1 << 62  # 146 years: any two times then have a difference in 64 bits
_MOST_COUNTS = {"other": wire.TIMES_COUNT, "pauses": wire.PAUSES_COUNT}


@dataclass(frozen=True, slots=True, eq=False)
class NamedSpans:
    """Spans, and the word of each."""

    begin_ns: array[int]  # 64 bits on every machine with a supported GPU; little-endian
    end_ns: array[int]
    words: tuple[str, ...]

    def as_other_work(self) -> OtherWork:
        import numpy as np  # needed only in the judge's worker: the daemon stores the bytes

        begin_ns, end_ns = (np.array(each, np.int64) for each in (self.begin_ns, self.end_ns))
        return OtherWork(begin_ns, (end_ns - begin_ns) / 1e9, self.words)

    def as_pauses(self) -> tuple[Pause, ...]:
        return tuple(map(Pause, self.begin_ns, self.end_ns, self.words))


def check(piece: wire.Spans, before_count: int) -> int:
    """Return the number of spans in a message; the window already has ``before_count`` of this kind.

    Raises UsageError: when the arrays do not match each other, exceed the bounds of a window, or hold invalid values.
    """
    count = len(piece.named)
    if len(piece.begin_ns) != 8 * count or len(piece.end_ns) != 8 * count:
        lengths = f"{len(piece.begin_ns)} and {len(piece.end_ns)}"
        raise UsageError(f"spans: expected {8 * count} bytes of start times and of end times, found {lengths}")
    if before_count + count > _MOST_COUNTS[piece.what]:
        found = before_count + count
        raise UsageError(f"spans: expected at most {_MOST_COUNTS[piece.what]} {piece.what} per window, found {found}")
    ends = zip(array("q", piece.begin_ns), array("q", piece.end_ns), strict=True)
    for begin_ns, end_ns in ends:
        if not -_FARTHEST_NS < begin_ns <= end_ns < _FARTHEST_NS:
            expected = "every end at or after its start, and times within 2^62 ns"
            raise UsageError(f"spans: expected {expected}, found {begin_ns} to {end_ns}; use the monotonic clock's nanoseconds")
    if count and max(piece.named) >= len(piece.names):
        raise UsageError(f"spans: expected one of {len(piece.names)} names, found number {max(piece.named)}")
    return count


def decode(pieces: Sequence[wire.Spans]) -> NamedSpans | None:
    """Return the spans in checked messages, in their order; None without messages."""
    if not pieces:
        return None
    return NamedSpans(
        array("q", b"".join(piece.begin_ns for piece in pieces)),
        array("q", b"".join(piece.end_ns for piece in pieces)),
        tuple(piece.names[number] for piece in pieces for number in piece.named),
    )


def of_pauses(pauses: Iterable[Pause]) -> NamedSpans | None:
    """Return pauses as named spans, oldest first; None without pauses."""
    ordered = sorted(pauses, key=lambda pause: pause.begin_ns)
    if not ordered:
        return None
    begin_ns, end_ns = (array("q", [getattr(pause, end) for pause in ordered]) for end in ("begin_ns", "end_ns"))
    return NamedSpans(begin_ns, end_ns, tuple(pause.cause for pause in ordered))
