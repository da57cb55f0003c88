"""Invariants of a store after any fault of its daemon, and a process's memory, descriptors and threads."""

from __future__ import annotations

import itertools
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotate.evidence import Lane
from annotate.verdict import Status, Verdict
from gpuwatch.store import Reader, Run
from gpuwatch.store.run import UNFINISHED
from gpuwatch.store.signal_columns import LANE_COLUMNS
from tests.waiting import PATIENCE_S

KEYED = (*(lane.value for lane in LANE_COLUMNS), "census", "power")  # tables whose key is time and GPU


@dataclass(frozen=True, slots=True)
class BrokenError(Exception):
    """A damaged store, with the place of the damage."""

    where: str
    what: str


def databases(state: Path) -> list[Path]:
    return sorted(path for path in state.glob("*.db") if path.is_file())


def check_files(state: Path) -> None:
    """Check that every database passes integrity_check, and none was set aside.  Raises BrokenError: otherwise."""
    for path in databases(state):
        found = said(path, "PRAGMA integrity_check")
        if found != [("ok",)]:
            raise BrokenError(path.name, f"integrity_check: {found[:3]}")
    aside = [path.name for path in state.glob("*.corrupt-*")]
    if aside:
        raise BrokenError(str(state), f"set aside: {aside}")


def check_rows(state: Path) -> None:
    """Check that no reading of a GPU is stored twice, and no two rows overlap in time.  Raises BrokenError: otherwise.

    A row without duration may be inside another row's time, because another thread reads a window's edges.
    """
    for table in KEYED:
        rows = sorted(
            row
            for path in sorted(state.glob("readings-*.db"))
            for row in said(path, f"SELECT uuid, at_ns, {_stood(table)} FROM {table} JOIN gpus USING (gpu)")
        )
        for (uuid, at_ns, stood_ms), (next_uuid, next_ns, next_ms) in itertools.pairwise(rows):
            if uuid != next_uuid:
                continue
            if next_ns <= at_ns:
                raise BrokenError(table, f"{uuid}: two rows at {at_ns}")
            if next_ms and next_ns < at_ns + stood_ms * 1_000_000:
                raise BrokenError(table, f"{uuid}: the row of {at_ns} lasted until after {next_ns}")


def _stood(table: str) -> str:
    """Return the column of a row's duration in ms; 0 for a table without durations."""
    return "0" if table == "power" else "stood_ms"


def check_runs(state: Path) -> list[Run]:
    """Check that every window is finished and readable, and no row lacks a window.  Raises BrokenError: otherwise.

    The rows are verdicts, findings, evidence and timings.
    """
    with Reader(state) as reader:
        runs = reader.runs()
        for run in runs:
            for verdict in run.verdicts:
                Verdict.from_dict(verdict)
            for uuid in run.uuids:
                reader.evidence(run, uuid)
            if run.status in UNFINISHED or run.status not in list(Status):
                raise BrokenError(run.id, f"still {run.status}")
            if run.status == Status.UNPROVEN and not run.why:
                raise BrokenError(run.id, "unproven without a reason")
    known = {(row[0],) for row in said(state / "gpuwatch.db", "SELECT id FROM runs")}
    for table in ("verdicts", "findings", "evidence", "timings"):
        orphans = set(said(state / "gpuwatch.db", f"SELECT DISTINCT run FROM {table}")) - known
        if orphans:
            raise BrokenError(table, f"rows without a window: {orphans}")
    return runs


def last_ns(state: Path, lane: Lane = Lane.FAST) -> dict[str, int]:
    """Return the end of each GPU's last row in this lane."""
    last: dict[str, int] = {}
    for path in sorted(state.glob("readings-*.db")):
        query = f"SELECT uuid, max(at_ns + stood_ms * 1000000) FROM {lane.value} JOIN gpus USING (gpu) GROUP BY uuid"
        for uuid, at_ns in said(path, query):
            last[uuid] = max(at_ns, last.get(uuid, 0))
    return last


def committed_ns(state: Path) -> dict[str, int]:
    """Return the end of each GPU's last committed row while a daemon writes; nothing before the first or on an SQLite error."""
    try:
        return last_ns(state)
    except sqlite3.Error:
        return {}


def said(path: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path, timeout=PATIENCE_S)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def memory_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))
