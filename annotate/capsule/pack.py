"""Packing of evidence into bytes, stored with verdicts, recordings and reports so that windows can be judged again.

The bytes are a zip of one JSON manifest and one block of arrays.  Arrays are differences of integers or raw floats; nothing
is pickled.
"""

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from annotate.capsule import byte_planes
from annotate.capsule import decimate as thinning
from annotate.capsule.manifest import ARRAYS, MANIFEST, SCHEMA
from annotate.capsule.unpack import unpack
from annotate.evidence import (
    COUNTERS,
    Column,
    Evidence,
    OtherWork,
    Pause,
    Times,
    Timings,
    Trace,
    Values,
)


def pack(evidences: Sequence[Evidence], *, decimate: bool = True) -> bytes:
    """Return the evidence of one or more windows as one blob, without baselines; up to ten minutes keep all rows.

    With ``decimate``, longer columns keep at least the first, last, lowest and highest row of each of 800 intervals, and all
    rows within 10 s of the window's edges.  The exact course between kept rows is lost.
    """
    arrays = _Arrays()
    manifest = {
        "schema": SCHEMA,
        "evidence": [_put(evidence, arrays, decimate=decimate) for evidence in evidences],
        "arrays": arrays.contents,
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr(MANIFEST, msgspec.json.encode(manifest))
        archive.writestr(ARRAYS, b"".join(arrays.blocks))
    return out.getvalue()


@dataclass(slots=True)
class _Arrays:
    """Distinct arrays by index: signals of one lane share an array of times."""

    contents: list[list[int]] = field(default_factory=list)  # count and scale of each array; 0 means unscaled
    blocks: list[bytes] = field(default_factory=list)
    _numbers: dict[tuple[int, bytes], int] = field(default_factory=dict)

    def whole(self, values: npt.NDArray[Any], scale: int = 1) -> int:
        return self._add(len(values), scale, byte_planes.encode(values.astype(np.int64)))

    def real(self, values: Values) -> int:
        """Add exactly these values, as integers of a decimal unit if possible, which takes a quarter of the bytes."""
        # Decimal units of drivers: milliwatts, percents, microseconds.
        for scale in (1, 100, 1000, 1_000_000, 1_000_000_000):
            scaled = np.round(values * scale)
            if (
                (np.abs(scaled) < float(1 << 53)).all()
                and (scaled / scale == values).all()
                and not np.signbit(values[values == 0]).any()
            ):
                return self.whole(scaled, scale)
        return self._add(len(values), 0, byte_planes.planes(values.astype("<f8")))

    def _add(self, count: int, scale: int, block: bytes) -> int:
        number = self._numbers.setdefault((scale, block), len(self.blocks))
        if number == len(self.blocks):
            self.blocks.append(block)
            self.contents.append([count, scale])
        return number


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
        "told": dict(evidence.declared),
        "absence": evidence.absence,
        "columns": {name: column(of, repeats=True, counts=name in COUNTERS) for name, of in trace.columns.items()},
        "dense": column(trace.dense_power, repeats=False),
        "timings": _put_timings(evidence.timings, arrays) if evidence.timings else None,
        "censuses": _put_process_lists(evidence, arrays, thins=thins),
        "events": [asdict(event) for event in trace.events],
        "gaps": [[gap.begin_ns, gap.end_ns, gap.lane.value] for gap in trace.gaps],
        "refresh_ns": dict(trace.refresh_ns),
        "overlapping": [asdict(each) for each in evidence.overlapping],
        "other_work": _put_other_work(evidence.other_work, arrays),
        "pauses": _put_pauses(evidence.pauses, arrays),
        "record": asdict(evidence.record) if evidence.record else None,
    }


def _put_timings(timings: Timings, arrays: _Arrays) -> list[int | None]:
    clock = timings.sm_clock_mhz
    kept = None if clock is None else arrays.real(clock)
    return [arrays.whole(timings.at_ns), arrays.real(timings.took_s), kept, timings.calls_count]


def _put_other_work(other: OtherWork | None, arrays: _Arrays) -> dict[str, Any] | None:
    return None if other is None else _put_spans(other.at_ns, arrays.real(other.took_s), other.kinds, arrays)


def _put_pauses(pauses: Sequence[Pause], arrays: _Arrays) -> dict[str, Any] | None:
    if not pauses:
        return None
    begins_ns = np.array([pause.begin_ns for pause in pauses], np.int64)
    took_ns = np.array([pause.end_ns for pause in pauses], np.int64) - begins_ns
    return _put_spans(begins_ns, arrays.whole(took_ns), [pause.cause for pause in pauses], arrays)


def _put_spans(at_ns: Times, took: int, words: Sequence[str], arrays: _Arrays) -> dict[str, Any]:
    """Add intervals: each distinct word once, and the index of each interval's word."""
    names: dict[str, int] = {}
    named = np.array([names.setdefault(word, len(names)) for word in words], np.int64)
    return {"at": arrays.whole(at_ns), "took": took, "named": arrays.whole(named), "names": list(names)}


def _span_ns(trace: Trace) -> int:
    ends = [(int(of.at_ns[0]), int(of.at_ns[-1])) for of in (*trace.columns.values(), trace.dense_power) if len(of)]
    return max(end for _, end in ends) - min(begin for begin, _ in ends) if ends else 0


def _put_process_lists(evidence: Evidence, arrays: _Arrays, *, thins: bool) -> dict[str, Any] | None:
    """Add each distinct process list once, with the times at which the list was read; return None without lists."""
    process_lists = evidence.trace.process_lists
    if not process_lists:
        return None
    at_ns = np.array([process_list.at_ns for process_list in process_lists], np.int64)
    thinned = None
    if thins:
        # Keep the busiest list of each interval, and the lists before and after each of the first 3200 changes of PIDs.
        busy = np.array(
            [max((p.utilization_ratio or 0.0 for p in process_list.processes), default=0.0) for process_list in process_lists]
        )
        thinned = thinning.thin(at_ns, busy, evidence.window.begin_ns, evidence.window.end_ns)
    if thinned is not None:
        pids = [frozenset(process.pid for process in process_list.processes) for process_list in process_lists]
        moves = [i for i in range(1, len(pids)) if pids[i] != pids[i - 1]][: 4 * thinning.BUCKETS_COUNT]
        index = np.union1d(thinned.index, np.array([*moves, *(i - 1 for i in moves)], np.int64)).astype(np.int64)
        silent = np.searchsorted(index, thinned.index[thinned.silent])
        thinned = thinning.Thinned(index, thinned.step_ns, silent)
        process_lists, at_ns = tuple(process_lists[i] for i in index.tolist()), at_ns[index]
    lists: dict[str, int] = {}
    listed = [
        lists.setdefault(json.dumps([[asdict(p) for p in process_list.processes], process_list.visibility.value]), len(lists))
        for process_list in process_lists
    ]
    return {
        "uuid": process_lists[0].uuid,
        "lists": [json.loads(text) for text in lists],
        "at": arrays.whole(at_ns),
        "took": arrays.whole(np.array([process_list.took_ns for process_list in process_lists], np.int64)),
        "listed": arrays.whole(np.array(listed, np.int64)),
        "repeats": [thinned.step_ns, arrays.whole(thinned.silent)] if thinned is not None else None,
    }


__all__ = ["SCHEMA", "pack", "unpack"]
