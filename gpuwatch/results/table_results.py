"""Reader of any CSV or JSON file, by columns that the user names: COLUMN or COLUMN:UNIT."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from annotate.evidence import Values
from gpuwatch.errors import UsageError
from gpuwatch.results.bounded_file import as_begins, as_clocks, as_floats, as_seconds, decode
from gpuwatch.results.result_file import ResultFile, ResultSeries, checked

_MOST_JSON_BYTES = 64 << 20  # parsed JSON takes much more memory than its numbers
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_CLOCKS = {"MHz": 1.0, "mhz": 1.0, "GHz": 1e3, "ghz": 1e3, "Hz": 1e-6, "hz": 1e-6, "kHz": 1e-3, "khz": 1e-3}
_MOST_LEVELS_COUNT = 8


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The columns of a table with times, true SM clocks and start times on CLOCK_MONOTONIC; each may name a unit."""

    times: str
    clock: str | None = None
    begin: str | None = None


def read_table(path: Path, blob: bytes, columns: ColumnNames) -> ResultFile:
    """Read the named columns.

    Raises ValueError: for missing columns, values that are not numbers, and a column of times without any.
    Raises UsageError: for JSON above 64 MiB.
    """
    is_json = blob.lstrip()[:1] in (b"{", b"[")
    names = {"--times": columns.times, "--clock": columns.clock, "--begin": columns.begin}
    units = {"--times": _TIMES, "--clock": _CLOCKS, "--begin": _TIMES}
    # A column's name may be "a:b", so only a known unit is split off.
    asked = {option: _split(name, units[option]) for option, name in names.items() if name is not None}
    wanted = {option: column for option, (column, _) in asked.items()}
    found = _json_columns(blob, wanted) if is_json else _csv_columns(blob, wanted)
    scales = {option: scale for option, (_, scale) in asked.items()}
    series = ResultSeries(
        name=path.name,
        took_s=as_seconds(found["--times"], scales["--times"]),
        sm_clock_mhz=as_clocks(found["--clock"], scales["--clock"]) if "--clock" in found else None,
        at_ns=as_begins(found["--begin"], scales["--begin"] * 1e9) if "--begin" in found else None,
    )
    if not len(series.took_s):
        raise ValueError(f"expected times in {columns.times}, found none")
    cannot = [] if columns.begin is not None else ["when each entry began: --begin names a column of CLOCK_MONOTONIC"]
    cannot += [] if columns.clock is not None else ["the clock of each entry: --clock names a column"]
    return ResultFile(tool="JSON" if is_json else "CSV", series=(checked(series),), cannot=tuple(cannot))


def _split(name: str, units: Mapping[str, float]) -> tuple[str, float]:
    """Return column and scale; without ``:UNIT``, a unit after the name's last ``_`` counts, else the default unit."""
    column, colon, unit = name.rpartition(":")
    if colon and unit in units:
        return column, units[unit]
    suffix = name.rpartition("_")[2]
    return name, units.get(suffix, 1.0)


def _csv_columns(blob: bytes, wanted: Mapping[str, str]) -> dict[str, Values]:
    try:
        text = blob.decode("utf-8-sig")
        rows = csv.reader(io.StringIO(text, newline=""))
        header = [cell.strip() for cell in next(rows, [])]
        places = {}
        for option, name in wanted.items():
            if name not in header:
                raise ValueError(f"{option}: expected one of the columns {', '.join(header)[:200]}, found {name!r}")
            places[option] = header.index(name)
        values: dict[str, list[float]] = {option: [] for option in wanted}
        for number, row in enumerate(rows, 2):
            if not row:
                continue
            for option, place in places.items():
                values[option].append(_number(row[place] if place < len(row) else "", number, wanted[option]))
    except csv.Error as error:
        raise ValueError(f"expected CSV, found {error}") from error
    return {option: np.array(column, np.float64) for option, column in values.items()}


def _number(cell: str, row: int, column: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise ValueError(f"row {row}, {column}: expected a number, found {cell[:40]!r}") from None


def _json_columns(blob: bytes, wanted: Mapping[str, str]) -> dict[str, Values]:
    if len(blob) > _MOST_JSON_BYTES:
        raise UsageError(f"expected JSON of at most {_MOST_JSON_BYTES >> 20} MiB, found {len(blob) >> 20} MiB")
    whole = decode(blob, object)
    found: dict[str, Values] = {}
    for option, name in wanted.items():
        values = _walk(whole, name.split("."), f"{option} {name}")
        found[option] = as_floats(values if isinstance(values, list) else [values])
    return found


def _walk(value: object, names: list[str], place: str) -> object:
    """Return the value at a dotted path, or those of all items of a list.  Raises ValueError: for a path that leads nowhere."""
    if len(names) > _MOST_LEVELS_COUNT:
        raise ValueError(f"{place}: expected a path of at most {_MOST_LEVELS_COUNT} names, found {len(names)}")
    if not names or names == [""]:
        return value
    name, rest = names[0], names[1:]
    if isinstance(value, dict) and name in value:
        return _walk(value[name], rest, place)
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        return _walk(value[int(name)], rest, place)
    if isinstance(value, list) and value and not name.isdecimal():
        inner = [_walk(each, names, place) for each in value]
        return [one for each in inner for one in (each if isinstance(each, list) else [each])]
    has = ", ".join(map(str, value))[:200] if isinstance(value, dict) else type(value).__name__
    raise ValueError(f"{place}: expected {name!r}, found {has or 'nothing'}")
