"""Laboratory recordings: an .npz of one GPU's telemetry with marks for each scenario, and kernel times beside it.

``telemetry`` is a table whose ``cols`` name its columns, ``t_ns`` among them (CLOCK_MONOTONIC of the machine that
recorded); ``mark_X`` holds begin and end of scenario X, ``timing_X`` rows of (begin in ns, milliseconds).  ``device`` may
hold what identifies the GPU, as JSON.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from annotate.evidence import Column, Device, Evidence, Times, Timings, Trace, Values, Window
from gpuwatch.errors import UsageError

# Column of the file: the signal it fills, and what its unit is in that signal's.
_COLUMNS: Mapping[str, tuple[str, float]] = {
    "sm_mhz": ("sm_clock_mhz", 1.0),
    "mem_mhz": ("mem_clock_mhz", 1.0),
    "power_mw": ("power_average_w", 1e-3),
    "power_instant_mw": ("power_w", 1e-3),
    "energy_mj": ("energy_j", 1e-3),
    "temp_c": ("temperature_c", 1.0),
    "reasons": ("event_reasons_mask", 1.0),
    "util_gpu": ("utilization_ratio", 1e-2),
    "util_mem": ("mem_utilization_ratio", 1e-2),
    "viol_power_ns": ("power_violation_ns", 1.0),
    "cap_counter_ns": ("power_cap_ns", 1.0),
}
# Evidence reaches from this long before a window to this long after it.
_LEAD_NS, _TAIL_NS = 5_000_000_000, 500_000_000
_UNKNOWN = Device(uuid="GPU-of-recording", name="GPU of a recording")


def load(path: Path) -> tuple[Evidence, ...]:
    """One piece of evidence for each mark, in the order of time, labelled with its scenario.  Raises UsageError."""
    arrays = _arrays(path)
    at_ns, columns, device = _telemetry(path, arrays), _columns(path, arrays), _device(path, arrays)
    out = []
    for name in sorted((name for name in arrays if name.startswith("mark_")), key=lambda name: arrays[name].tolist()):
        mark = arrays[name]
        if mark.shape != (2,) or mark.dtype.kind != "i" or mark[1] <= mark[0]:
            raise UsageError(f"{path}: expected two times in {name}, begin before end, found {mark.tolist()}")
        begin_ns, end_ns = (int(at) for at in mark)
        label = name.removeprefix("mark_")
        rows = slice(*np.searchsorted(at_ns, [begin_ns - _LEAD_NS, end_ns + _TAIL_NS]))
        out.append(
            Evidence(
                window=Window(begin_ns=begin_ns, end_ns=end_ns, label=label),
                device=device,
                trace=Trace(columns={signal: Column(at_ns[rows], values[rows]) for signal, values in columns.items()}),
                timings=_timings(path, arrays, label),
            )
        )
    if not out:
        raise UsageError(f"{path}: expected marks (mark_SCENARIO), found {', '.join(arrays)}")
    return tuple(out)


def whole(path: Path) -> tuple[Evidence, ...]:
    """The telemetry from its first row to its last.  Raises UsageError."""
    arrays = _arrays(path)
    at_ns = _telemetry(path, arrays)
    trace = Trace(columns={signal: Column(at_ns, values) for signal, values in _columns(path, arrays).items()})
    return (
        Evidence(
            window=Window(begin_ns=int(at_ns[0]), end_ns=int(at_ns[-1])),
            device=_device(path, arrays),
            trace=trace,
        ),
    )


def _arrays(path: Path) -> dict[str, Any]:  # numpy's own type of an archive's members
    try:
        with np.load(path, allow_pickle=False) as archive:
            read = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise UsageError(f"{path}: expected an .npz recording, found a file that cannot be read as one: {error}") from error
    # A member that is no array comes back as its bytes.
    arrays = {name: value for name, value in read.items() if isinstance(value, np.ndarray)}
    missing = {"telemetry", "cols"} - arrays.keys()
    if missing:
        raise UsageError(f"{path}: expected an .npz with telemetry and cols, found {', '.join(sorted(arrays)) or 'nothing'}")
    return arrays


def _telemetry(path: Path, arrays: Mapping[str, Any]) -> Times:
    table, names = arrays["telemetry"], [str(name) for name in np.atleast_1d(arrays["cols"])]
    if table.dtype.kind not in "fi" or table.ndim != 2 or table.shape[1] != len(names) or "t_ns" not in names:
        expected = "telemetry as a table with one column for each of cols, t_ns among them"
        found = f"{table.dtype} {table.shape} and columns {', '.join(names)}"
        raise UsageError(f"{path}: expected {expected}, found {found}")
    if not len(table):
        raise UsageError(f"{path}: expected readings, found an empty telemetry table")
    times = table[:, names.index("t_ns")]
    if not np.isfinite(times).all() or (np.diff(times) < 0).any():
        row = int(np.argmax(~np.isfinite(times) | (np.diff(times, prepend=times[0]) < 0)))
        raise UsageError(f"{path}: row {row}: expected a time no earlier than the row before, found {times[row]}")
    return np.asarray(times, np.int64)


def _columns(path: Path, arrays: Mapping[str, Any]) -> dict[str, Values]:
    out: dict[str, Values] = {}
    for index, name in enumerate(str(name) for name in arrays["cols"]):
        if name in _COLUMNS:
            signal, scale = _COLUMNS[name]
            values = np.asarray(arrays["telemetry"][:, index], np.float64) * scale
            if (values < 0).any():
                row = int(np.argmax(values < 0))
                raise UsageError(f"{path}: row {row}, {name}: expected no negative number, found {values[row] / scale:g}")
            if not np.isnan(values).all():
                out[signal] = values
    return out


def _timings(path: Path, arrays: Mapping[str, Any], label: str) -> Timings | None:
    table = arrays.get(f"timing_{label}")
    if table is None:
        return None
    if table.dtype.kind != "f" or table.ndim != 2 or table.shape[1] != 2:
        raise UsageError(f"{path}: expected rows of two numbers in timing_{label}, found {table.dtype} {table.shape}")
    return Timings(at_ns=table[:, 0].astype(np.int64), took_s=table[:, 1] / 1e3)


def _device(path: Path, arrays: Mapping[str, Any]) -> Device:
    if "device" not in arrays:
        return _UNKNOWN
    try:
        facts = json.loads(str(arrays["device"]))
        known = {field.name for field in fields(Device)}
        return Device(**{name: value for name, value in facts.items() if name in known})
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: expected the facts of a device as JSON in device, found {error}") from error
