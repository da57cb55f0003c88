"""Evidence as bytes: what lies beside a stored verdict, in a recording, in a report, so that it can be judged again.

A zip of one JSON manifest and one block of arrays.  Arrays are differences of whole numbers; nothing is pickled.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from annotate.evidence import (
    COUNTERS,
    Census,
    Column,
    Device,
    Event,
    Evidence,
    Gap,
    Host,
    Lane,
    Ownership,
    Process,
    Timings,
    Trace,
    Values,
    Visibility,
    Window,
)
from gpuwatch import planes, thinning
from gpuwatch.errors import CapsuleError

SCHEMA = 2  # 2: clocks and batches of timings, which a reader of 1 takes for damage
UNPACKED_BYTES = 256 << 20  # what claims to hold more is not one of ours: a day of one GPU is two megabytes

_MANIFEST, _ARRAYS = "manifest.json", "arrays"
_T = TypeVar("_T")

# Decimal places in which drivers count: milliwatts, percents, microseconds.
_SCALES = (1, 100, 1000, 1_000_000, 1_000_000_000)
_EXACT = float(1 << 53)

# A torn or foreign zip fails in as many ways as it can be torn.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, LookupError, TypeError, ValueError, AttributeError, OSError, RuntimeError,
    ArithmeticError, MemoryError,
)  # fmt: skip


def pack(evidences: Sequence[Evidence], *, decimate: bool = True) -> bytes:
    """One or more windows' evidence as one blob, lossless for any that covers less than ten minutes.

    With ``decimate``, longer ones keep the first, last, lowest and highest row of each of eight hundred stretches, and all
    within ten seconds of the window's edges: extremes and counters survive, the exact course between them does not.
    """
    arrays = _Arrays()
    manifest = {
        "schema": SCHEMA,
        "evidence": [_put(evidence, arrays, decimate=decimate) for evidence in evidences],
        "arrays": arrays.contents,
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr(_MANIFEST, json.dumps(manifest, separators=(",", ":")))
        archive.writestr(_ARRAYS, b"".join(arrays.blocks))
    return out.getvalue()


def unpack(data: bytes) -> tuple[Evidence, ...]:
    """The evidence of a blob.  Raises CapsuleError if it is torn, none of ours, or of a newer schema."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size_bytes = sum(entry.file_size for entry in archive.infolist())
            if size_bytes > UNPACKED_BYTES:
                raise CapsuleError(f"expected at most {UNPACKED_BYTES} bytes of evidence, found {size_bytes}")
            if _MANIFEST not in archive.namelist():
                raise CapsuleError("expected a gpuwatch recording, found another archive")
            manifest = json.loads(archive.read(_MANIFEST))
            if not isinstance(manifest, dict) or not isinstance(manifest.get("schema"), int):
                raise CapsuleError("expected a manifest with a schema number, found none")
            if manifest["schema"] > SCHEMA:
                raise CapsuleError(
                    f"expected evidence of schema {SCHEMA} or older, found {manifest['schema']}; use a newer gpuwatch"
                )
            arrays = _unblocked(manifest["arrays"], archive.read(_ARRAYS))
        return tuple(_get(entry, arrays) for entry in manifest["evidence"])
    except CapsuleError:
        raise
    except _DAMAGE as error:
        raise CapsuleError(f"expected a gpuwatch recording, found damaged data ({type(error).__name__}: {error})") from error


@dataclass(slots=True)
class _Arrays:
    """Arrays by number, each different one once: signals of one lane share their times."""

    contents: list[list[int]] = field(default_factory=list)  # count and scale; scale 0: as they are
    blocks: list[bytes] = field(default_factory=list)
    _numbers: dict[tuple[int, bytes], int] = field(default_factory=dict)

    def whole(self, values: npt.NDArray[Any], scale: int = 1) -> int:
        return self._add(len(values), scale, planes.encode(values.astype(np.int64)))

    def real(self, values: Values) -> int:
        """Exactly these values: as whole numbers of some decimal unit where they are, which takes a quarter of the room."""
        for scale in _SCALES:
            scaled = np.round(values * scale)
            if (
                (np.abs(scaled) < _EXACT).all()
                and (scaled / scale == values).all()
                and not np.signbit(values[values == 0]).any()
            ):
                return self.whole(scaled, scale)
        return self._add(len(values), 0, planes.planes(values.astype("<f8")))

    def _add(self, count: int, scale: int, block: bytes) -> int:
        number = self._numbers.setdefault((scale, block), len(self.blocks))
        if number == len(self.blocks):
            self.blocks.append(block)
            self.contents.append([count, scale])
        return number


def _unblocked(contents: Sequence[Sequence[int]], data: bytes) -> list[npt.NDArray[Any]]:
    """Whole numbers as int64, real ones as float64."""
    arrays: list[npt.NDArray[Any]] = []
    for count, scale in contents:
        if scale:
            whole, data = planes.decode(data, count)
            arrays.append(whole if scale == 1 else whole / scale)
        else:
            raw, data = data[: 8 * count], data[8 * count :]
            if len(raw) != 8 * count:
                raise CapsuleError(f"expected {count} numbers, found {len(raw)} bytes")
            arrays.append(planes.joined(raw, 8).view("<f8").astype(np.float64))
    return arrays


def _put(evidence: Evidence, arrays: _Arrays, *, decimate: bool) -> dict[str, Any]:
    trace, window = evidence.trace, evidence.window
    thins = decimate and _span_ns(trace) > thinning.LONG_NS

    def column(of: Column, *, repeats: bool, counts: bool = False) -> list[Any]:
        thinned = thinning.thin(of.at_ns, of.values, window.begin_ns, window.end_ns, counts=counts) if thins else None
        if thinned is None:
            return [arrays.whole(of.at_ns), arrays.real(of.values)]
        kept = [arrays.whole(of.at_ns[thinned.index]), arrays.real(of.values[thinned.index])]
        return [*kept, thinned.step_ns, arrays.whole(thinned.silent)] if repeats else kept

    return {
        "window": {**asdict(window), "pids": sorted(window.pids)},
        "device": asdict(evidence.device) if evidence.device else None,
        "host": asdict(evidence.host),
        "told": dict(evidence.told),
        "absence": evidence.absence,
        "columns": {name: column(of, repeats=True, counts=name in COUNTERS) for name, of in trace.columns.items()},
        "dense": column(trace.dense_power, repeats=False),
        "timings": _put_timings(evidence.timings, arrays) if evidence.timings else None,
        "censuses": _put_censuses(evidence, arrays, thins=thins),
        "events": [asdict(event) for event in trace.events],
        "gaps": [[gap.begin_ns, gap.end_ns, gap.lane.value] for gap in trace.gaps],
        "refresh_ns": dict(trace.refresh_ns),
    }


def _put_timings(timings: Timings, arrays: _Arrays) -> list[int | None]:
    clock = timings.sm_clock_mhz
    kept = None if clock is None else arrays.real(clock)
    return [arrays.whole(timings.at_ns), arrays.real(timings.took_s), kept, timings.calls_count]


def _get_timings(kept: Sequence[Any], column: Callable[[Sequence[int]], Column], arrays: Sequence[npt.NDArray[Any]]) -> Timings:
    times = column(kept[:2])
    if len(kept) == 2:  # as the first version wrote them
        return Timings(times.at_ns, times.values)
    clock = None if kept[2] is None else arrays[kept[2]].astype(np.float64)
    if clock is not None and len(clock) != len(times):
        raise CapsuleError(f"expected {len(times)} clocks, one for each iteration, found {len(clock)}")
    if not isinstance(kept[3], int) or kept[3] < 1:
        raise CapsuleError(f"expected how many calls each time is of, found {kept[3]!r}")
    return Timings(times.at_ns, times.values, clock, kept[3])


def _get(entry: Mapping[str, Any], arrays: Sequence[npt.NDArray[Any]]) -> Evidence:
    def column(kept: Sequence[int], *, counts: bool = False) -> Column:
        at_ns, values = arrays[kept[0]], arrays[kept[1]].astype(np.float64)
        if len(at_ns) != len(values) or at_ns.dtype != np.int64:
            raise CapsuleError(f"expected {len(at_ns)} values, one for each time, found {len(values)}")
        of = Column(at_ns, values)
        return thinning.filled(of, kept[2], arrays[kept[3]], counts=counts) if len(kept) > 2 else of

    window = entry["window"]
    return Evidence(
        window=replace(_known(Window, window), pids=frozenset(window["pids"])),
        device=_known(Device, entry["device"]) if entry["device"] else None,
        trace=Trace(
            columns={name: column(kept, counts=name in COUNTERS) for name, kept in entry["columns"].items()},
            dense_power=column(entry["dense"]),
            censuses=_get_censuses(entry["censuses"], arrays),
            events=tuple(_known(Event, event) for event in entry["events"]),
            gaps=tuple(Gap(begin_ns=begin, end_ns=end, lane=Lane(lane)) for begin, end, lane in entry["gaps"]),
            refresh_ns=entry["refresh_ns"],
        ),
        host=_known(Host, entry["host"]),
        told=entry["told"],
        timings=_get_timings(entry["timings"], column, arrays) if entry["timings"] else None,
        absence=entry["absence"],
    )


def _span_ns(trace: Trace) -> int:
    ends = [(int(of.at_ns[0]), int(of.at_ns[-1])) for of in (*trace.columns.values(), trace.dense_power) if len(of)]
    return max(end for _, end in ends) - min(begin for begin, _ in ends) if ends else 0


def _known(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """A record from what an older or newer minor version wrote: facts it does not have stay None, unknown ones go."""
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]  # every kind here is a dataclass
    return kind(**{name: value for name, value in values.items() if name in names})


def _put_censuses(evidence: Evidence, arrays: _Arrays, *, thins: bool) -> dict[str, Any] | None:
    """Each different list of processes once, and when it was seen: who is on a GPU rarely changes."""
    censuses = evidence.trace.censuses
    if not censuses:
        return None
    at_ns = np.array([census.at_ns for census in censuses], np.int64)
    thinned = None
    if thins:
        # The busiest moment of each stretch stands for it, and every coming and going.
        busy = np.array([max((p.utilization_ratio or 0.0 for p in census.processes), default=0.0) for census in censuses])
        thinned = thinning.thin(at_ns, busy, evidence.window.begin_ns, evidence.window.end_ns)
    if thinned is not None:
        pids = [frozenset(process.pid for process in census.processes) for census in censuses]
        moves = [i for i in range(1, len(pids)) if pids[i] != pids[i - 1]][: 4 * thinning.BUCKETS_COUNT]
        index = np.union1d(thinned.index, np.array([*moves, *(i - 1 for i in moves)], np.int64)).astype(np.int64)
        silent = np.searchsorted(index, thinned.index[thinned.silent])
        thinned = thinning.Thinned(index, thinned.step_ns, silent)
        censuses, at_ns = tuple(censuses[i] for i in index.tolist()), at_ns[index]
    lists: dict[str, int] = {}
    listed = [
        lists.setdefault(json.dumps([[asdict(p) for p in census.processes], census.visibility.value]), len(lists))
        for census in censuses
    ]
    return {
        "uuid": censuses[0].uuid,
        "lists": [json.loads(text) for text in lists],
        "at": arrays.whole(at_ns),
        "took": arrays.whole(np.array([census.took_ns for census in censuses], np.int64)),
        "listed": arrays.whole(np.array(listed, np.int64)),
        "repeats": [thinned.step_ns, arrays.whole(thinned.silent)] if thinned is not None else None,
    }


def _get_censuses(kept: Mapping[str, Any] | None, arrays: Sequence[npt.NDArray[Any]]) -> tuple[Census, ...]:
    if kept is None:
        return ()
    uuid, at_ns, took_ns, listed = kept["uuid"], arrays[kept["at"]], arrays[kept["took"]], arrays[kept["listed"]]
    if not len(at_ns) == len(took_ns) == len(listed):
        raise CapsuleError(f"expected a list of processes for each of {len(at_ns)} times, found {len(listed)}")
    lists = [(tuple(_process(process) for process in each), Visibility(visibility)) for each, visibility in kept["lists"]]
    index, times = np.arange(len(at_ns)), at_ns
    if kept["repeats"]:
        index, times = thinning.fill_index(at_ns, kept["repeats"][0], arrays[kept["repeats"][1]])
    # How busy a process was is said of the time since it was last asked, so only a list as such can be repeated.
    idle = [tuple(replace(process, utilization_ratio=None) for process in processes) for processes, _ in lists]
    out = []
    last = -1
    for i, when_ns in zip(index.tolist(), times.tolist(), strict=True):
        processes, visibility = lists[listed[i]]
        repeated, last = i == last, i
        out.append(Census(
            uuid=uuid, at_ns=when_ns, took_ns=int(took_ns[i]), visibility=visibility,
            processes=idle[listed[i]] if repeated else processes,
        ))  # fmt: skip
    return tuple(out)


def _process(values: Mapping[str, Any]) -> Process:
    return replace(_known(Process, values), ownership=Ownership(values["ownership"]))
