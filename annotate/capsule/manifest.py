"""The structure of a capsule's manifest, and the limits of its size.

msgspec checks the types while it decodes; ``unpack`` checks the limits.
"""

import msgspec

from annotate.evidence import Device, Event, Fact, Host, Lane, OtherWindow, Process, Visibility, WindowRecord, WorkRecord

SCHEMA = 2  # 2 adds clocks and batch sizes to timings, which readers of schema 1 cannot decode
MANIFEST, ARRAYS = "manifest.json", "arrays"

# Far above the capsules that gpuwatch writes.
UNPACKED_BYTES = 256 << 20
MANIFEST_BYTES = 64 << 20  # a decoded manifest takes about 12 times as much memory
NUMBERS_COUNT = 40_000_000  # most numbers in all arrays together
ROWS_COUNT = 120_000_000  # most rows of all columns, with repeated rows restored: a day of eight GPUs
PROCESS_LISTS_COUNT = 2_000_000
PAUSES_COUNT = 100_000  # each is decoded into a Pause
RECORDED_COUNT = 1000  # windows in a work record: the store keeps 32


class PackedProcessLists(msgspec.Struct, frozen=True):
    """Distinct process lists, and the indices of the arrays with each reading's time, duration and list."""

    uuid: str
    lists: list[tuple[tuple[Process, ...], Visibility]]
    at: int
    took: int
    listed: int
    repeats: tuple[int, int] | None


class PackedSpans(msgspec.Struct, frozen=True):
    """Labelled intervals: the indices of the arrays of start times, lengths and label positions, and the distinct labels."""

    at: int
    took: int
    named: int
    names: list[str]


class Entry(msgspec.Struct, frozen=True, rename={"declared": "told", "process_lists": "censuses"}):
    """The evidence of one window on one GPU.

    A column holds the indices of two arrays, times and values.  A decimated column adds the step at which values repeat,
    and the index of the array of silent rows.
    """

    window: WindowRecord
    device: Device | None
    host: Host
    declared: dict[str, Fact]
    absence: str | None
    columns: dict[str, list[int]]  # two integers, or four if decimated
    dense: tuple[int, int]
    timings: list[int | None] | None  # start times and durations; from schema 2 on also clocks or None, and calls
    process_lists: PackedProcessLists | None
    events: tuple[Event, ...]
    gaps: list[tuple[int, int, Lane]]
    refresh_ns: dict[str, int]
    overlapping: tuple[OtherWindow, ...] = ()  # absent from older capsules
    other_work: PackedSpans | None = None
    pauses: PackedSpans | None = None
    record: WorkRecord | None = None


class Manifest(msgspec.Struct, frozen=True):
    """The evidence, and the count and scale of every array in stored order; scale 0 means unscaled real numbers."""

    evidence: list[Entry]
    arrays: list[tuple[int, int]]


class Head(msgspec.Struct, frozen=True):
    """The schema number of a manifest, which ``unpack`` reads before the rest."""

    schema: int
