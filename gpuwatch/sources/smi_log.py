"""Logs of ``nvidia-smi --query-gpu=… --format=csv -lms N`` as evidence; ``smi_columns`` describes their columns.

The log's local wall time becomes nanoseconds since the epoch, so these times cannot be compared with monotonic times.
A log without ``uuid``, ``index`` or ``pci.bus_id`` counts as a log of one GPU.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from annotate.capsule import limits
from annotate.evidence import Column, Device, Evidence, Trace, WindowRecord
from gpuwatch.errors import UsageError
from gpuwatch.sources.smi_columns import FAULT_REASONS, IDENTITY, REASON_COLUMNS, SIGNAL_COLUMNS, ColumnReader, is_absent, plain

_LINE_BYTES = 65_536  # nvidia-smi has some 150 columns of at most 64 characters
_EXPECTED = "a log with a header of nvidia-smi, such as `timestamp, uuid, clocks.current.sm [MHz], power.draw [W]`"
_ELSE = "; for another table: gpuwatch judge FILE --times COLUMN; other files: gpuwatch judge --help"


@dataclass(slots=True)
class _LoggedGpu:
    """The rows read so far of one GPU."""

    facts: dict[str, Any] = field(default_factory=dict)
    at_ns: array[int] = field(default_factory=lambda: array("q"))
    columns: dict[str, array[float]] = field(default_factory=dict)

    def append(self, at_ns: int, values: Mapping[str, float]) -> None:
        self.at_ns.append(at_ns)
        for name, value in values.items():
            # All rows have the columns of the header, so the columns have equal lengths.
            self.columns.setdefault(name, array("d")).append(value)


def load(path: Path, *, query: str | None = None) -> tuple[Evidence, ...]:
    """Return one piece of evidence per GPU, in the order of the log, with one window over all rows of the GPU.

    ``query`` replaces the header of a log written with ``noheader``.  Cells that are N/A count as not observed.
    Raises UsageError: for a malformed, empty or too long log.
    """
    lines = _lines(path)
    readers: tuple[ColumnReader, ...] | None = None
    header: list[str] = []
    if query is not None:
        header = [_printable(name.strip()) for name in query.split(",")]
        readers = _readers(f"{path}: --query", header)
    gpus: dict[str, _LoggedGpu] = {}
    for number, line, complete in lines:
        cells = [cell.strip() for cell in line.split(",")]
        where = f"{path}: line {number}"
        if readers is None:
            header, readers = cells, _readers(where, cells)
        elif plain(cells[0]) == plain(header[0]) and cells[0] and not _is_time(cells[0]):
            if [plain(cell) for cell in cells] != [plain(cell) for cell in header]:
                raise UsageError(f"{where}: expected the columns of the first header again, found {_short(line)}")
        elif complete or not gpus:
            _add_row(where, readers, cells, gpus)
        # else: skip the last line, which was not written completely
    if not gpus:
        raise UsageError(f"{path}: expected rows of readings, found none")
    for gpu in gpus.values():
        if gpu.at_ns[-1] - gpu.at_ns[0] > limits.LONGEST_NS:
            raise UsageError(
                f"{path}: expected at most 31 days, found {(gpu.at_ns[-1] - gpu.at_ns[0]) / 86_400e9:.0f}: cut the log"
            )
    return tuple(_evidence(path, key, gpu) for key, gpu in gpus.items())


def _lines(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield number and text of each non-blank line, and True if the line ends with a newline.  Raises UsageError."""
    with path.open("rb") as file:
        number, raw = 0, file.readline(_LINE_BYTES + 1)
        while raw:
            following = file.readline(_LINE_BYTES + 1)
            number += 1
            where = f"{path}: line {number}"
            if len(raw) > _LINE_BYTES:
                raise UsageError(f"{where}: expected {_EXPECTED}, found a line of more than {_LINE_BYTES} bytes")
            if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise UsageError(f"{where}: expected UTF-8, found UTF-16: write the log with `nvidia-smi -f FILE`")
            try:
                text = raw.decode("utf-8-sig")
            except UnicodeDecodeError:
                raise UsageError(f"{where}: expected {_EXPECTED}, found bytes that are not UTF-8 text{_ELSE}") from None
            if "\0" in text:
                raise UsageError(f"{where}: expected text, found NUL bytes, as after a power loss: remove these lines")
            if text.strip():
                yield number, _printable(text.strip()), text.endswith("\n")
            raw = following


def _readers(where: str, header: list[str]) -> tuple[ColumnReader, ...]:
    names = [plain(cell) for cell in header]
    if _is_time(header[0]):
        raise UsageError(f"{where}: expected {_EXPECTED}, found a row: log without noheader, or name the columns with --query")
    if "timestamp" not in names:
        raise UsageError(f"{where}: expected {_EXPECTED}, found {_short(', '.join(header))}{_ELSE}")
    readers = tuple(ColumnReader.of(where, cell) for cell in header)
    if not any(name in SIGNAL_COLUMNS or name in REASON_COLUMNS for name in names):
        raise UsageError(f"{where}: expected a column of clocks, power, temperature or load, found only {', '.join(names)}")
    return readers


def _add_row(where: str, readers: tuple[ColumnReader, ...], cells: list[str], gpus: dict[str, _LoggedGpu]) -> None:
    if len(cells) != len(readers):
        found = f"{len(cells)}: {_short(', '.join(cells))}"
        raise UsageError(f"{where}: expected {len(readers)} columns as in the header, found {found}")
    facts: dict[str, Any] = {}
    values: dict[str, float] = {}
    reasons: dict[int, float] = {}
    at_ns = 0
    for reader, cell in zip(readers, cells, strict=True):
        if reader.name == "timestamp":
            at_ns = _time_ns(where, cell)
        elif reader.name in IDENTITY:
            if not is_absent(cell):
                facts[IDENTITY[reader.name]] = reader.read(where, cell)
        elif reader.name in REASON_COLUMNS:
            reasons[REASON_COLUMNS[reader.name]] = reader.number(where, cell)
        elif reader.name in SIGNAL_COLUMNS:
            values[SIGNAL_COLUMNS[reader.name].signal] = reader.number(where, cell)
    # A log without one of the limiting reasons gets no mask: a mask would state that the missing reason was inactive.
    if "event_reasons_mask" not in values and reasons.keys() >= FAULT_REASONS:
        values["event_reasons_mask"] = float(sum(bit * active for bit, active in reasons.items()))
    gpu = gpus.setdefault(str(facts.get("uuid") or facts.get("pci_bus_id") or facts.get("index", "")), _LoggedGpu())
    if gpu.at_ns and at_ns < gpu.at_ns[-1]:
        at_text = next(cell for reader, cell in zip(readers, cells, strict=True) if reader.name == "timestamp")
        raise UsageError(f"{where}: expected a time no earlier than the row before, found {at_text}")
    gpu.facts.update(facts)
    gpu.append(at_ns, values)


def _evidence(path: Path, key: str, gpu: _LoggedGpu) -> Evidence:
    at_ns = np.array(gpu.at_ns, np.int64)
    columns = {name: Column(at_ns, np.array(values, np.float64)) for name, values in gpu.columns.items()}
    facts = {name: value for name, value in gpu.facts.items() if name not in ("index", "uuid", "name")}
    uuid, name = gpu.facts.get("uuid", f"GPU-of-log-{key}"), gpu.facts.get("name", "GPU of a log")
    device = Device(uuid=str(uuid), name=str(name), **facts)
    # A log shows no change faster than the log's period.
    period_ns = int(np.median(np.diff(at_ns))) if len(at_ns) > 1 else 0
    slow = {name: period_ns for name in columns if period_ns > Trace().refresh_of_ns(name)}
    return Evidence(
        window=WindowRecord(begin_ns=int(at_ns[0]), end_ns=int(at_ns[-1]), label=path.name),
        device=device,
        trace=Trace(
            columns={name: column for name, column in columns.items() if not np.isnan(column.values).all()},
            refresh_ns=slow,
        ),
    )


def _is_time(cell: str) -> bool:
    return cell[:4].isdigit() and cell[4:5] == "/"


def _time_ns(where: str, cell: str) -> int:
    try:
        second, dot, milli = cell.partition(".")
        if dot and not (milli.isascii() and milli.isdigit() and len(milli) <= 9):
            raise ValueError(milli)
        at_ns = _second_ns(second) + int(milli.ljust(9, "0") if dot else 0)
        if abs(at_ns) >= limits.FARTHEST_NS:
            raise OverflowError(second)
        return at_ns
    except (ValueError, OverflowError):
        raise UsageError(f"{where}, timestamp: expected a time such as 2026/11/21 08:15:02.123, found {_short(cell)}") from None


@lru_cache(maxsize=16)
def _second_ns(text: str) -> int:
    # nvidia-smi writes local time without a zone, so this assumes the zone of this machine.  The hour that repeats at the end
    # of summer time counts as the first of the two.
    return round(datetime.strptime(text, "%Y/%m/%d %H:%M:%S").astimezone().timestamp()) * 1_000_000_000


def _printable(text: str) -> str:
    """Replace characters that could control a terminal or break a line."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\t" else "?" for c in text)


def _short(text: str, length: int = 60) -> str:
    text = _printable(text)
    return repr(text if len(text) <= length else text[: length - 1] + "…")
