"""Evidence as bytes: what lies beside a stored verdict, in a recording, in a report, so that it can be judged again.

A zip of numpy arrays and one JSON manifest.  Times are differences, so that they compress; nothing is pickled.
"""

from __future__ import annotations

import io
import itertools
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from annotate.evidence import (
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
    Visibility,
    Window,
)
from gpuwatch.errors import CapsuleError

SCHEMA = 1
UNPACKED_BYTES = 1 << 30  # a capsule that claims to hold more is not one of ours
DECIMATE_ABOVE_COUNT = 60_000  # rows of a column: ten minutes at 100 Hz
BUCKETS_COUNT = 10_000

_T = TypeVar("_T")

# A torn or foreign zip fails in as many ways as it can be torn.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, LookupError, TypeError, ValueError, AttributeError, OSError, RuntimeError,
    ArithmeticError, MemoryError,
)  # fmt: skip


def pack(evidences: Sequence[Evidence], *, decimate: bool = True) -> bytes:
    """One or more windows' evidence as one blob.

    With ``decimate``, columns longer than ten minutes at full rate keep the first, last, lowest and highest row of each
    of ten thousand stretches: extremes and counters at the edges survive, the exact course between them does not.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    manifest = {
        "schema": SCHEMA,
        "evidence": [_put(each, f"{i}", arrays, decimate=decimate) for i, each in enumerate(evidences)],
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        archive.writestr("manifest.json", json.dumps(manifest, separators=(",", ":")))
        for name, array in arrays.items():
            raw = io.BytesIO()
            np.save(raw, array, allow_pickle=False)
            archive.writestr(f"{name}.npy", raw.getvalue())
    return out.getvalue()


def unpack(data: bytes) -> tuple[Evidence, ...]:
    """The evidence of a blob.  Raises CapsuleError if it is torn, none of ours, or of a newer schema."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size_bytes = sum(entry.file_size for entry in archive.infolist())
            if size_bytes > UNPACKED_BYTES:
                raise CapsuleError(f"expected at most {UNPACKED_BYTES} bytes of evidence, found {size_bytes}")
            manifest = json.loads(archive.read("manifest.json"))
            if not isinstance(manifest, dict) or not isinstance(manifest.get("schema"), int):
                raise CapsuleError("expected a manifest with a schema number, found none")
            if manifest["schema"] > SCHEMA:
                raise CapsuleError(
                    f"expected evidence of schema {SCHEMA} or older, found {manifest['schema']}; use a newer gpuwatch"
                )
            arrays = {
                name.removesuffix(".npy"): np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
        return tuple(_get(entry, arrays) for entry in manifest["evidence"])
    except CapsuleError:
        raise
    except _DAMAGE as error:
        raise CapsuleError(f"expected a gpuwatch recording, found damaged data ({type(error).__name__}: {error})") from error


def _put(evidence: Evidence, key: str, arrays: dict[str, npt.NDArray[Any]], *, decimate: bool) -> dict[str, Any]:
    trace = evidence.trace
    times: dict[bytes, str] = {}  # lanes share their times: each array is kept once

    def keep_times(at_ns: npt.NDArray[np.int64]) -> str:
        name = times.setdefault(at_ns.tobytes(), f"{key}/t{len(times)}")
        arrays.setdefault(name, np.diff(at_ns, prepend=np.int64(0)))
        return name

    columns = {}
    for name, column in trace.columns.items():
        kept = _decimated(column) if decimate else column
        arrays[f"{key}/c/{name}"] = _narrow(kept.values)
        columns[name] = keep_times(kept.at_ns)
    dense = _decimated(trace.dense_power) if decimate else trace.dense_power
    arrays[f"{key}/dense"] = np.round(dense.values, 3)
    if evidence.timings is not None:
        arrays[f"{key}/took"] = evidence.timings.took_s
    return {
        "key": key,
        "window": {**asdict(evidence.window), "pids": sorted(evidence.window.pids)},
        "device": asdict(evidence.device) if evidence.device else None,
        "host": asdict(evidence.host),
        "told": dict(evidence.told),
        "absence": evidence.absence,
        "columns": columns,
        "dense": keep_times(dense.at_ns),
        "timings": keep_times(evidence.timings.at_ns) if evidence.timings is not None else None,
        "censuses": _censuses(trace.censuses),
        "events": [asdict(event) for event in trace.events],
        "gaps": [[gap.begin_ns, gap.end_ns, gap.lane.value] for gap in trace.gaps],
        "refresh_ns": dict(trace.refresh_ns),
    }


def _get(entry: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Evidence:
    key = entry["key"]

    def times(name: str) -> npt.NDArray[np.int64]:
        return np.cumsum(arrays[name], dtype=np.int64)

    columns = {}
    for name, at in entry["columns"].items():
        column = Column(times(at), arrays[f"{key}/c/{name}"].astype(np.float64))
        if len(column.at_ns) != len(column.values):
            raise CapsuleError(f"expected as many values as times of {name}, found {len(column.values)}")
        columns[name] = column
    timings = entry["timings"]
    return Evidence(
        window=Window(**{**entry["window"], "pids": frozenset(entry["window"]["pids"])}),
        device=_known(Device, entry["device"]) if entry["device"] else None,
        trace=Trace(
            columns=columns,
            dense_power=Column(times(entry["dense"]), arrays[f"{key}/dense"].astype(np.float64)),
            censuses=tuple(_census(row, entry["censuses"]) for row in entry["censuses"]["rows"]),
            events=tuple(_known(Event, event) for event in entry["events"]),
            gaps=tuple(Gap(begin_ns=begin, end_ns=end, lane=Lane(lane)) for begin, end, lane in entry["gaps"]),
            refresh_ns=entry["refresh_ns"],
        ),
        host=_known(Host, entry["host"]),
        told=entry["told"],
        timings=Timings(times(timings), arrays[f"{key}/took"].astype(np.float64)) if timings else None,
        absence=entry["absence"],
    )


def _known(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """A record from what an older or newer minor version wrote: facts it does not have stay None, unknown ones go."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # every kind here is a dataclass
    return kind(**{name: value for name, value in values.items() if name in names})


def _censuses(censuses: Sequence[Census]) -> dict[str, Any]:
    """Each different list of processes once, and when it was seen: who is on a GPU rarely changes."""
    lists: dict[str, int] = {}
    rows = []
    for census in censuses:
        listed = json.dumps([asdict(process) for process in census.processes], separators=(",", ":"))
        rows.append([census.at_ns, census.took_ns, lists.setdefault(listed, len(lists)), census.visibility.value])
    return {"uuid": censuses[0].uuid if censuses else "", "lists": [json.loads(listed) for listed in lists], "rows": rows}


def _census(row: Sequence[Any], kept: Mapping[str, Any]) -> Census:
    at_ns, took_ns, index, visibility = row
    processes = tuple(
        replace(_known(Process, process), ownership=Ownership(process["ownership"])) for process in kept["lists"][index]
    )
    return Census(uuid=kept["uuid"], at_ns=at_ns, took_ns=took_ns, processes=processes, visibility=Visibility(visibility))


def _narrow(values: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """The same values in the smallest type that holds them exactly."""
    if len(values) and not np.isnan(values).any() and (values == np.trunc(values)).all() and np.abs(values).max() < 2**53:
        whole = values.astype(np.int64)
        for kind in (np.uint8, np.uint16, np.uint32):
            if whole.min() >= 0 and whole.max() <= np.iinfo(kind).max:
                return whole.astype(kind)
        return whole
    return values


def _decimated(column: Column) -> Column:
    count = len(column)
    if count <= DECIMATE_ABOVE_COUNT:
        return column
    edges = np.linspace(0, count, BUCKETS_COUNT + 1).astype(np.int64)
    keep: set[int] = {0, count - 1}
    for begin, end in itertools.pairwise(edges):
        part = column.values[begin:end]
        keep |= {int(begin), int(end - 1)}
        if not np.isnan(part).all():
            keep |= {int(begin + np.nanargmin(part)), int(begin + np.nanargmax(part))}
    index = np.array(sorted(keep))
    return Column(column.at_ns[index], column.values[index])
