"""Laboratory recordings: an .npz of one GPU's telemetry, with marks for each scenario and kernel times.

``telemetry`` is a table.  ``cols`` holds the names of the columns, including ``t_ns`` (CLOCK_MONOTONIC of the recording
machine).  ``mark_X`` holds start and end of scenario X, ``timing_X`` rows of (start in ns, milliseconds).  ``device``
may hold the GPU's identity as JSON.
"""

import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from annotate.capsule import limits
from annotate.evidence import Column, Device, Evidence, Times, Timings, Trace, Values, WindowRecord
from gpuwatch.errors import UsageError

# By column of the file: the signal, and the factor from the column's unit to the signal's unit.
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
# A window's evidence includes this much time before the window's start and after its end.
_LEAD_NS, _TAIL_NS = 5_000_000_000, 500_000_000
_TEXT_LENGTH = 400
_MOST_BYTES = 1 << 30  # unpacked; a day of all columns at 100 Hz takes 0.83 GB
# Errors for a torn or foreign archive; numpy parses the headers of its members as Python.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError, SyntaxError, EOFError, LookupError, TypeError, ValueError,
    OSError, RuntimeError, ArithmeticError, MemoryError,
)  # fmt: skip
_UNKNOWN = Device(uuid="GPU-of-recording", name="GPU of a recording")


def load(path: Path) -> tuple[Evidence, ...]:
    """Return one piece of evidence per mark, in order of time, labelled with the mark's scenario.

    Raises UsageError: for a file without telemetry and marks, damaged data, and values outside their range.
    """
    arrays = _arrays(path)
    at_ns, columns, device = _telemetry(path, arrays), _columns(path, arrays), _device(path, arrays)
    out = []
    for label, (begin_ns, end_ns) in _marks(path, arrays):
        rows = slice(*np.searchsorted(at_ns, [begin_ns - _LEAD_NS, end_ns + _TAIL_NS]))
        out.append(
            Evidence(
                window=WindowRecord(begin_ns=begin_ns, end_ns=end_ns, label=label),
                device=device,
                trace=Trace(columns={signal: Column(at_ns[rows], values[rows]) for signal, values in columns.items()}),
                timings=_timings(path, arrays, label),
            )
        )
    if not out:
        raise _wrong(path, f"expected marks (mark_SCENARIO), found {', '.join(arrays)}")
    return tuple(out)


def _marks(path: Path, arrays: Mapping[str, Any]) -> list[tuple[str, tuple[int, int]]]:
    """Return labels with start and end in nanoseconds, in order of time."""
    out = []
    for name, mark in arrays.items():
        if not name.startswith("mark_"):
            continue
        if mark.shape != (2,) or mark.dtype.kind != "i" or mark[1] <= mark[0]:
            raise _wrong(
                path, f"expected two times in {name}, start before end, found {mark.dtype} {mark.shape} {np.ravel(mark)[:2]}"
            )
        begin_ns, end_ns = (int(at) for at in mark)
        try:
            limits.window(WindowRecord(begin_ns=begin_ns, end_ns=end_ns))
        except ValueError as error:
            raise _wrong(path, f"{name}: {error}") from error
        out.append((name.removeprefix("mark_"), (begin_ns, end_ns)))
    return sorted(out, key=lambda mark: mark[1])


def whole(path: Path) -> tuple[Evidence, ...]:
    """Return the whole telemetry as one window.

    Raises UsageError: for a file without telemetry, damaged data, and values outside their range.
    """
    arrays = _arrays(path)
    at_ns = _telemetry(path, arrays)
    return (
        Evidence(
            window=WindowRecord(begin_ns=int(at_ns[0]), end_ns=int(at_ns[-1])),
            device=_device(path, arrays),
            trace=Trace(columns={signal: Column(at_ns, values) for signal, values in _columns(path, arrays).items()}),
        ),
    )


def _arrays(path: Path) -> dict[str, Any]:  # numpy's own type for an archive's members
    try:
        with zipfile.ZipFile(path) as archive:
            size_bytes = sum(member.file_size for member in archive.infolist())
            if size_bytes > _MOST_BYTES:
                raise _wrong(path, f"expected an .npz of at most {_MOST_BYTES} bytes, found {size_bytes} unpacked")
            read = {member.filename.removesuffix(".npy"): _array(archive, member) for member in archive.infolist()}
    except _DAMAGE as error:
        raise _wrong(path, f"expected an .npz recording, found a file that cannot be read as one: {error}") from error
    arrays = {name: value for name, value in read.items() if value is not None}
    missing = {"telemetry", "cols"} - arrays.keys()
    if missing:
        raise _wrong(path, f"expected an .npz with telemetry and cols, found {', '.join(sorted(arrays)) or 'nothing'}")
    return arrays


def _array(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo
) -> Any:  # numpy's own type; None for a member that is not an array
    """Read a member.  Raises ValueError: for an unknown format, or a header that declares more data than the member holds."""
    if not member.filename.endswith(".npy"):
        return None
    with archive.open(member) as file:
        match np.lib.format.read_magic(file):
            case (1, 0):
                shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            case (2, 0):
                shape, _, dtype = np.lib.format.read_array_header_2_0(file)
            case version:
                raise ValueError(f"{member.filename}: expected format 1 or 2, found {version}")
    if math.prod(shape) * max(1, dtype.itemsize) > member.file_size:
        raise ValueError(f"{member.filename}: expected {dtype} of shape {shape}, found {member.file_size} bytes")
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _wrong(path: Path, reason: object) -> UsageError:
    """Return the error with its reason on one line, cut to 400 characters: a foreign archive can contain any name."""
    text = " ".join(str(reason).split())
    return UsageError(f"{path}: {text if len(text) <= _TEXT_LENGTH else text[: _TEXT_LENGTH - 1] + '…'}")


def _telemetry(path: Path, arrays: Mapping[str, Any]) -> Times:
    table, names = arrays["telemetry"], _names(arrays)
    if table.dtype.kind not in "fi" or table.ndim != 2 or table.shape[1] != len(names) or "t_ns" not in names:
        raise _wrong(
            path,
            "expected telemetry as a table with one column for each of cols, t_ns among them,"
            f" found {table.dtype} {table.shape} and columns {', '.join(names)}",
        )
    if not len(table):
        raise _wrong(path, "expected readings, found an empty telemetry table")
    times = table[:, names.index("t_ns")]
    if not np.isfinite(times).all() or (np.diff(times) < 0).any():
        row = int(np.argmax(~np.isfinite(times) | (np.diff(times, prepend=times[0]) < 0)))
        raise _wrong(path, f"row {row}: expected a time no earlier than the row before, found {times[row]}")
    try:
        return limits.as_times(times)
    except ValueError as error:
        raise _wrong(path, f"t_ns: {error}") from error


def _names(arrays: Mapping[str, Any]) -> list[str]:
    return [str(name) for name in np.ravel(arrays["cols"])]


def _columns(path: Path, arrays: Mapping[str, Any]) -> dict[str, Values]:
    out: dict[str, Values] = {}
    for index, name in enumerate(_names(arrays)):
        if name in _COLUMNS:
            signal, scale = _COLUMNS[name]
            values = np.asarray(arrays["telemetry"][:, index], np.float64) * scale
            if (values < 0).any():
                row = int(np.argmax(values < 0))
                raise _wrong(path, f"row {row}, {name}: expected a number of at least 0, found {values[row] / scale:g}")
            try:
                limits.values(values)
            except ValueError as error:
                raise _wrong(path, f"{name}: {error}") from error
            if not np.isnan(values).all():
                out[signal] = values
    return out


def _timings(path: Path, arrays: Mapping[str, Any], label: str) -> Timings | None:
    table = arrays.get(f"timing_{label}")
    if table is None:
        return None
    if table.dtype.kind != "f" or table.ndim != 2 or table.shape[1] != 2:
        raise _wrong(path, f"expected rows of two numbers in timing_{label}, found {table.dtype} {table.shape}")
    try:
        return Timings(at_ns=limits.as_times(table[:, 0]), took_s=np.asarray(table[:, 1], np.float64) / 1e3)
    except ValueError as error:
        raise _wrong(path, f"timing_{label}: {error}") from error


def _device(path: Path, arrays: Mapping[str, Any]) -> Device:
    if "device" not in arrays:
        return _UNKNOWN
    try:
        device = msgspec.json.decode(str(arrays["device"]), type=Device)
        limits.numbers(device)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, f"expected the facts of a device as JSON in device, found {error}") from error
    return device
