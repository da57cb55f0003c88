"""The form of a capsule's manifest, and the most it may hold.

Types are checked as it is read, amounts before they are made.
"""

import msgspec

from annotate.evidence import Device, Event, Fact, Host, Lane, OtherWindow, Process, Visibility, WindowRecord, WorkRecord

SCHEMA = 2  # 2: clocks and batches of timings, which a reader of 1 takes for damage
MANIFEST, ARRAYS = "manifest.json", "arrays"

# No capsule of gpuwatch holds more: a day of one GPU is two megabytes.
UNPACKED_BYTES = 256 << 20
MANIFEST_BYTES = 64 << 20  # as records it takes some twelve times as much
NUMBERS_COUNT = 40_000_000  # in all arrays
ROWS_COUNT = 120_000_000  # of all columns, repeated ones put back: a day of eight GPUs
PROCESS_LISTS_COUNT = 2_000_000
PAUSES_COUNT = 100_000  # each becomes a record
RECORDED_COUNT = 1000  # windows of a record: a store keeps 32


class PackedProcessLists(msgspec.Struct, frozen=True):
    """Each different list of processes, and which was seen when: numbers of arrays."""

    uuid: str
    lists: list[tuple[tuple[Process, ...], Visibility]]
    at: int
    took: int
    listed: int
    repeats: tuple[int, int] | None


class PackedSpans(msgspec.Struct, frozen=True):
    """Pieces of time with a word each: numbers of the arrays of begins, lengths and words, and the words."""

    at: int
    took: int
    named: int
    names: list[str]


class Entry(msgspec.Struct, frozen=True, rename={"declared": "told", "process_lists": "censuses"}):
    """One piece of evidence; a column is the numbers of its arrays, and when values that are left out were repeated."""

    window: WindowRecord
    device: Device | None
    host: Host
    declared: dict[str, Fact]
    absence: str | None
    columns: dict[str, list[int]]  # two numbers, or four
    dense: tuple[int, int]
    timings: list[int | None] | None  # two numbers as the first version wrote them, else four
    process_lists: PackedProcessLists | None
    events: tuple[Event, ...]
    gaps: list[tuple[int, int, Lane]]
    refresh_ns: dict[str, int]
    overlapping: tuple[OtherWindow, ...] = ()  # older ones have none
    other_work: PackedSpans | None = None
    pauses: PackedSpans | None = None
    record: WorkRecord | None = None


class Manifest(msgspec.Struct, frozen=True):
    """Count and scale of every array, in the order of their bytes; scale 0: real numbers as they are."""

    evidence: list[Entry]
    arrays: list[tuple[int, int]]


class Head(msgspec.Struct, frozen=True):
    """The part of a manifest that says whether the rest can be read."""

    schema: int
