"""Unpacking of capsules, with checks of every type and amount that rules rely on: the bytes may come from anywhere."""

import io
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from annotate.capsule import byte_planes, decimate, limits
from annotate.capsule.manifest import (
    ARRAYS,
    MANIFEST,
    MANIFEST_BYTES,
    NUMBERS_COUNT,
    PAUSES_COUNT,
    PROCESS_LISTS_COUNT,
    RECORDED_COUNT,
    ROWS_COUNT,
    SCHEMA,
    UNPACKED_BYTES,
    Entry,
    Head,
    Manifest,
    PackedProcessLists,
    PackedSpans,
)
from annotate.errors import CapsuleError
from annotate.evidence import (
    COUNTERS,
    Column,
    Evidence,
    Gap,
    OtherWindow,
    OtherWork,
    Pause,
    ProcessList,
    Timings,
    Trace,
    WorkRecord,
)

# The exceptions that a damaged zip or one of another format can raise.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, LookupError, TypeError, ValueError, AttributeError, OSError,
    RuntimeError, ArithmeticError, MemoryError,
)  # fmt: skip
_head, _manifest = msgspec.json.Decoder(Head), msgspec.json.Decoder(Manifest)


def unpack(data: bytes) -> tuple[Evidence, ...]:
    """Read a recording that ``gpuwatch record`` wrote.

    Args:
        data: The file's bytes, at most 256 MiB.

    Returns:
        The evidence of each window and GPU.

    Raises CapsuleError: when the bytes are damaged, too many, of another format, or of a newer schema.

    Example:
        >>> pieces = unpack(Path("window.capsule").read_bytes())
        >>> len(pieces), pieces[0].device.name
        (4, 'NVIDIA H200')
    """
    try:
        if len(data) > UNPACKED_BYTES:
            raise CapsuleError(f"expected at most {UNPACKED_BYTES} bytes, found {len(data)}")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if (size_bytes := sum(entry.file_size for entry in archive.infolist())) > UNPACKED_BYTES:
                raise CapsuleError(f"expected at most {UNPACKED_BYTES} bytes of evidence, found {size_bytes}")
            head = _member(archive, MANIFEST, MANIFEST_BYTES)
            if (schema := _schema(head)) > SCHEMA:
                raise CapsuleError(f"expected evidence of schema {SCHEMA} or older, found {schema}; use a newer gpuwatch")
            manifest = _manifest.decode(head)
            arrays = _unblocked(manifest.arrays, _member(archive, ARRAYS, UNPACKED_BYTES))
        reading = _Reading(arrays)
        return tuple(reading.evidence(entry) for entry in manifest.evidence)
    except CapsuleError:
        raise
    except _DAMAGE as error:
        text = " ".join(str(error).split())[:300]
        found = f"found damaged data ({type(error).__name__}: {text})"
        raise CapsuleError(f"expected a gpuwatch recording, {found}; copy or export it again") from error


def _member(archive: zipfile.ZipFile, name: str, most_bytes: int) -> bytes:
    if name not in archive.namelist():
        raise CapsuleError("expected a gpuwatch recording, found another archive")
    entry = archive.getinfo(name)
    if entry.file_size > most_bytes:
        raise CapsuleError(f"expected at most {most_bytes} bytes of evidence in {name}, found {entry.file_size}")
    # Other methods fail with yet more exceptions, and ``pack`` does not use them.
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise CapsuleError(f"expected {name} deflated, found method {entry.compress_type}")
    return archive.read(entry)


def _schema(manifest: bytes) -> int:
    try:
        return _head.decode(manifest).schema
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CapsuleError("expected a manifest with a schema number, found none") from error


def _unblocked(contents: Sequence[tuple[int, int]], data: bytes) -> list[npt.NDArray[Any]]:
    """Decode the arrays: integers as int64, real numbers as float64."""
    if sum(abs(count) for count, _ in contents) > NUMBERS_COUNT:
        raise CapsuleError(f"expected at most {NUMBERS_COUNT} numbers, found more")
    arrays: list[npt.NDArray[Any]] = []
    rest = memoryview(data)
    for count, scale in contents:
        if count < 0 or scale < 0:
            raise CapsuleError(f"expected a count and a scale of 0 or more, found {count} and {scale}")
        if scale:
            whole, rest = byte_planes.decode(rest, count)
            arrays.append(whole if scale == 1 else whole / scale)
        else:
            raw, rest = rest[: 8 * count], rest[8 * count :]
            if len(raw) != 8 * count:
                raise CapsuleError(f"expected {count} numbers, found {len(raw)} bytes")
            arrays.append(byte_planes.joined(raw, 8).view("<f8").astype(np.float64))
    return arrays


class _Reading:
    """The reader of one capsule, with the number of rows left, counted first: a few bytes can expand to many rows."""

    def __init__(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        self._arrays = arrays
        self._rows_left = ROWS_COUNT
        self._lists_left = PROCESS_LISTS_COUNT

    def evidence(self, entry: Entry) -> Evidence:
        packed = (*entry.columns.values(), entry.dense, entry.timings, (entry.other_work.at,) if entry.other_work else ())
        self._spend(sum(len(self._array(kept[0])) for kept in packed if kept and kept[0] is not None))
        for record in (entry.device, entry.host, *entry.events):
            if record is not None:
                limits.numbers(record)
        trace = Trace(
            columns={name: self._column(kept, counts=name in COUNTERS) for name, kept in entry.columns.items()},
            dense_power=self._column(entry.dense),
            process_lists=self._process_lists(entry.process_lists),
            events=entry.events,
            gaps=tuple(_gap(Gap(begin_ns=begin, end_ns=end, lane=lane)) for begin, end, lane in entry.gaps),
            refresh_ns={name: limits.refresh(name, period_ns) for name, period_ns in entry.refresh_ns.items()},
        )
        window = limits.window(entry.window)
        for column in (*trace.columns.values(), trace.dense_power):
            limits.near(column.at_ns, window)
        return Evidence(
            window=window,
            device=entry.device,
            trace=trace,
            host=entry.host,
            declared=entry.declared,
            timings=self._timings(entry.timings) if entry.timings else None,
            absence=entry.absence,
            overlapping=tuple(map(_other_window, entry.overlapping)),
            other_work=self._other_work(entry.other_work) if entry.other_work else None,
            pauses=self._pauses(entry.pauses) if entry.pauses else (),
            record=_work_record(entry.record) if entry.record else None,
        )

    def _array(self, number: int) -> npt.NDArray[Any]:
        if not 0 <= number < len(self._arrays):
            raise CapsuleError(f"expected one of {len(self._arrays)} arrays, found {number}")
        return self._arrays[number]

    def _times(self, number: int) -> npt.NDArray[np.int64]:
        at_ns = self._array(number)
        if at_ns.dtype != np.int64:
            raise CapsuleError(f"expected whole nanoseconds in array {number}, found fractions")
        return at_ns

    def _spend(self, rows_count: int) -> None:
        self._rows_left -= rows_count
        if self._rows_left < 0:
            raise CapsuleError(f"expected at most {ROWS_COUNT} rows, found more")

    def _pair(self, times: int, values: int) -> Column:
        at_ns, found = self._times(times), self._array(values)
        if len(at_ns) != len(found):
            raise CapsuleError(f"expected {len(at_ns)} values, one for each time, found {len(found)}")
        return Column(at_ns, limits.values(found.astype(np.float64)))

    def _column(self, kept: Sequence[int], *, counts: bool = False) -> Column:
        if len(kept) not in (2, 4):
            raise CapsuleError(f"expected a column of two or four numbers, found {len(kept)}")
        of = self._pair(kept[0], kept[1])
        limits.times(of.at_ns)
        if len(kept) == 2:
            return of
        whole = decimate.filled(of, kept[2], self._silent(kept[3], len(of)), counts=counts)
        self._spend(len(whole))
        return whole

    def _silent(self, number: int, count: int) -> npt.NDArray[np.int64]:
        silent = self._times(number)
        if len(silent) and not 0 <= int(silent.min()) <= int(silent.max()) < count:
            raise CapsuleError(f"expected silent rows below {count}, found another")
        return silent

    def _timings(self, kept: Sequence[int | None]) -> Timings:
        numbers = [number for number in kept if number is not None]
        if len(kept) not in (2, 4) or len(numbers) < len(kept) - 1 or None in (kept[0], kept[1], kept[-1]):
            raise CapsuleError(f"expected timings of two or four numbers, found {list(kept)}")
        times = self._pair(numbers[0], numbers[1])
        limits.times(times.at_ns, ascending=False)
        if len(kept) == 2:  # schema 1
            return Timings(times.at_ns, times.values)
        clock = limits.values(self._array(numbers[2]).astype(np.float64)) if len(numbers) == 4 else None
        if clock is not None and len(clock) != len(times):
            raise CapsuleError(f"expected {len(times)} clocks, one for each iteration, found {len(clock)}")
        if not 1 <= numbers[-1] < 1 << 62:
            raise CapsuleError(f"expected 1 call or more per time, found {numbers[-1]}")
        return Timings(times.at_ns, times.values, clock, numbers[-1])

    def _other_work(self, kept: PackedSpans) -> OtherWork:
        pieces = self._pair(kept.at, kept.took)
        limits.times(pieces.at_ns, ascending=False)
        if not ((pieces.values >= 0) & (pieces.values < limits.LONGEST_NS / 1e9)).all():
            raise CapsuleError("expected other work that takes 0 s to 31 days, found another")
        return OtherWork(pieces.at_ns, pieces.values, self._names(kept, len(pieces)))

    def _pauses(self, kept: PackedSpans) -> tuple[Pause, ...]:
        begins_ns, took_ns = self._times(kept.at), self._times(kept.took)
        causes = self._names(kept, len(begins_ns))
        if len(took_ns) != len(causes) or len(causes) > PAUSES_COUNT:
            raise CapsuleError(f"expected {len(begins_ns)} pauses, at most {PAUSES_COUNT}, found {len(took_ns)} lengths")
        if not ((took_ns >= 0) & (took_ns < limits.LONGEST_NS)).all():
            raise CapsuleError("expected pauses of 0 s to 31 days, found another")
        ends_ns = limits.times(begins_ns, ascending=False) + took_ns
        return tuple(map(Pause, begins_ns.tolist(), ends_ns.tolist(), causes))

    def _names(self, kept: PackedSpans, count: int) -> tuple[str, ...]:
        named = self._times(kept.named)
        if len(named) != count or (count and not 0 <= int(named.min()) <= int(named.max()) < len(kept.names)):
            raise CapsuleError(f"expected one of {len(kept.names)} words for each of {count} pieces, found others")
        return tuple(kept.names[number] for number in named.tolist())

    def _process_lists(self, kept: PackedProcessLists | None) -> tuple[ProcessList, ...]:
        if kept is None:
            return ()
        at_ns, took_ns, listed = limits.times(self._times(kept.at)), self._times(kept.took), self._times(kept.listed)
        if not len(at_ns) == len(took_ns) == len(listed):
            raise CapsuleError(f"expected a list of processes for each of {len(at_ns)} times, found {len(listed)}")
        if len(listed) and not 0 <= int(listed.min()) <= int(listed.max()) < len(kept.lists):
            raise CapsuleError(f"expected one of {len(kept.lists)} lists of processes, found another")
        for processes, _ in kept.lists:
            for process in processes:
                limits.numbers(process)
        index, times = np.arange(len(at_ns)), at_ns
        if kept.repeats:
            index, times = decimate.fill_index(at_ns, kept.repeats[0], self._silent(kept.repeats[1], len(at_ns)))
        self._lists_left -= len(times)
        if self._lists_left < 0:
            raise CapsuleError(f"expected at most {PROCESS_LISTS_COUNT} lists of processes, found more")
        # A utilisation describes the time since the previous reading, so repeated lists have none.
        idle = [tuple(replace(process, utilization_ratio=None) for process in processes) for processes, _ in kept.lists]
        out = []
        last = -1
        for i, when_ns in zip(index.tolist(), times.tolist(), strict=True):
            processes, visibility = kept.lists[listed[i]]
            repeated, last = i == last, i
            found = idle[listed[i]] if repeated else processes
            out.append(
                ProcessList(uuid=kept.uuid, at_ns=when_ns, took_ns=int(took_ns[i]), visibility=visibility, processes=found)
            )
        return tuple(out)


def _other_window(found: OtherWindow) -> OtherWindow:
    limits.numbers(found)
    if not -limits.FARTHEST_NS < found.begin_ns <= found.end_ns < limits.FARTHEST_NS:
        raise ValueError(f"expected a window that begins before it ends, found {found.begin_ns} to {found.end_ns}")
    return found


def _work_record(found: WorkRecord) -> WorkRecord:
    if len(found.windows) > RECORDED_COUNT:
        raise CapsuleError(f"expected a record of at most {RECORDED_COUNT} windows, found {len(found.windows)}")
    for each in found.windows:
        limits.amounts(each)
    if found.clock_mhz is not None and not 0.0 < found.clock_mhz <= limits.LARGEST:
        raise ValueError(f"expected a record's clock above 0 MHz, found {found.clock_mhz} MHz")
    return found


def _gap(found: Gap) -> Gap:
    if not -limits.FARTHEST_NS < found.begin_ns <= found.end_ns < limits.FARTHEST_NS:
        raise ValueError(f"expected a gap that begins before it ends, found {found.begin_ns} to {found.end_ns}")
    return found
