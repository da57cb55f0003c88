"""Recordings of all file formats as evidence."""

import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from annotate.errors import CapsuleError
from annotate.evidence import Column, Evidence, Trace, WindowRecord
from gpuwatch.errors import UsageError
from gpuwatch.sources import npz_recording, smi_log

_FORMATS = "a CSV log of nvidia-smi, a recording of `gpuwatch record`, or an .npz with telemetry and marks"
_ZIP = b"PK\x03\x04"
_HEAD_BYTES = 4096


def load(path: str | Path, *, query: str | None = None) -> tuple[Evidence, ...]:
    """Load a recording: one piece of evidence for each of its windows, or for each GPU of a log.

    ``query`` names the columns of an nvidia-smi log without a header.
    Raises UsageError: with a text of one line, for a file in none of the formats.
    """
    path = Path(path)
    match _format(path):
        case "scenarios":
            return npz_recording.load(path)
        case "log":
            return smi_log.load(path, query=query)
        case _:
            return _unpacked(path)


def whole(path: str | Path) -> tuple[Evidence, ...]:
    """Return a recording's whole evidence: one window per GPU over the full length.

    Raises UsageError: as ``load``.
    """
    path = Path(path)
    return npz_recording.whole(path) if _format(path) == "scenarios" else merged(load(path))


def merged(pieces: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Merge pieces of evidence by GPU: each reading once, and a window from the first reading to the last.

    Pieces without a device are dropped.
    """
    by_gpu: dict[str, list[Evidence]] = {}
    for piece in pieces:
        if piece.device is not None:
            by_gpu.setdefault(piece.device.uuid, []).append(piece)
    return tuple(_joined(of_gpu) for of_gpu in by_gpu.values())


def _joined(pieces: Sequence[Evidence]) -> Evidence:
    traces = [piece.trace for piece in pieces]
    names = {name for trace in traces for name in trace.columns}
    trace = Trace(
        columns={name: _column([trace.column(name) for trace in traces]) for name in sorted(names)},
        dense_power=_column([trace.dense_power for trace in traces]),
        process_lists=tuple(
            sorted(dict.fromkeys(c for t in traces for c in t.process_lists), key=lambda process_list: process_list.at_ns)
        ),
        events=tuple(sorted(dict.fromkeys(e for t in traces for e in t.events), key=lambda event: event.at_ns)),
        gaps=tuple(sorted(dict.fromkeys(g for t in traces for g in t.gaps), key=lambda gap: gap.begin_ns)),
        refresh_ns={name: period for t in traces for name, period in t.refresh_ns.items()},
    )
    ends = [(int(column.at_ns[0]), int(column.at_ns[-1])) for column in trace.columns.values() if len(column)]
    begin_ns = min((begin for begin, _ in ends), default=pieces[0].window.begin_ns)
    end_ns = max((end for _, end in ends), default=pieces[0].window.end_ns)
    return replace(pieces[-1], window=WindowRecord(begin_ns=begin_ns, end_ns=end_ns), trace=trace, timings=None)


def _column(parts: Sequence[Column]) -> Column:
    at_ns, first = np.unique(np.concatenate([part.at_ns for part in parts]), return_index=True)
    return Column(at_ns, np.concatenate([part.values for part in parts])[first])


def _format(path: Path) -> str:
    """Return ``scenarios``, ``log`` or ``capsule``, by the first bytes and an archive's names.

    Raises UsageError: for an unreadable or empty file, a pipe, a damaged archive, and an HTML page.
    """
    try:
        if path.is_fifo():  # the file is read more than once, and a pipe without a writer would block
            raise UsageError(f"{path}: expected {_FORMATS}, found a pipe; write it to a file first")
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: expected a file, found nothing to read: {error.strerror}") from error
    if not head:
        raise UsageError(f"{path}: expected {_FORMATS}, found an empty file")
    if head.lstrip().lower().startswith(b"<!doctype html"):
        raise UsageError(f"{path}: expected {_FORMATS}, found an HTML page; for a report run `gpuwatch verify {path}`")
    if head.startswith(_ZIP):
        return "scenarios" if b"telemetry" in _members(path) else "capsule"
    # UTF-16 with a byte order mark counts as a log: the log's parser rejects UTF-16 with a clear message.
    return "log" if b"\0" not in head or head.startswith((b"\xff\xfe", b"\xfe\xff")) else "capsule"


def _members(path: Path) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive:
            return " ".join(archive.namelist()).encode()
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise UsageError(f"{path}: expected {_FORMATS}, found a truncated or damaged archive: {error}") from error


def _unpacked(path: Path) -> tuple[Evidence, ...]:
    from annotate.capsule.pack import unpack

    try:
        pieces = unpack(path.read_bytes())
    except CapsuleError as error:
        raise UsageError(f"{path}: expected {_FORMATS}, found another format: {error}") from error
    if not pieces:
        raise UsageError(f"{path}: expected a recording with evidence, found an empty one")
    return pieces
