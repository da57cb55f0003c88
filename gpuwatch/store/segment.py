"""One segment being written: rows of every lane, the process lists, the dense record and the gaps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from annotate.evidence import Census, Gap, Lane, PowerRecord, Process, Reading
from gpuwatch.errors import StoreError
from gpuwatch.store import dense, files
from gpuwatch.store.columns import GPU_COUNT, TABLES, Changes, key, stored_name, to_row
from gpuwatch.store.schema import VERSION, add_columns, create_segment

# A sampler that reports skipped deadlines and left so long a silence has a gap; shorter ones no rule looks at.
GAP_NS = 250_000_000


class Segment:
    """Takes what was observed and holds it until ``write``; only the writer's thread calls it."""

    def __init__(self, path: Path, boot_id: str, connect: Callable[[Path], Database]) -> None:
        self.path = path
        fresh = not path.exists() or path.stat().st_size == 0
        self._db = connect(path)
        if fresh:
            create_segment(self._db, boot_id)
        else:
            add_columns(self._db)
        self._db.execute(f"PRAGMA user_version = {VERSION}")
        self._numbers_of_disk()
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._changes: dict[tuple[str, Lane], Changes] = {}
        self._insert = {
            lane.value: f"INSERT OR REPLACE INTO {lane.value} (key, took_us, {', '.join(map(stored_name, names))}) "
            f"VALUES ({', '.join('?' * (len(names) + 2))})"
            for lane, names in TABLES.items()
        } | {
            "censuses": "INSERT OR REPLACE INTO censuses VALUES (?, ?, ?, ?)",
            "process_lists": "INSERT OR REPLACE INTO process_lists VALUES (?, ?)",
            "power": "INSERT OR REPLACE INTO power VALUES (?, ?)",
            "gaps": "INSERT INTO gaps VALUES (?, ?, ?, ?)",
            "gpus": "INSERT OR REPLACE INTO gpus VALUES (?, ?)",
        }

    @staticmethod
    def boot_of(path: Path, connect: Callable[[Path], Database]) -> str | None:
        """The boot a segment on disk belongs to."""
        db = connect(path)
        try:
            return next((str(row["boot_id"]) for row in db.query("SELECT boot_id FROM segment")), None)
        finally:
            db.close()

    def reading(self, reading: Reading) -> None:
        row = to_row(reading)
        changes = self._changes.get((reading.uuid, reading.lane))
        if changes is None:
            changes = self._changes[(reading.uuid, reading.lane)] = Changes(reading.lane)
        if reading.lane is Lane.EDGE or changes.keep(reading.at_ns, row):
            self._add(reading.lane.value, (key(reading.at_ns, self._gpu(reading.uuid)), reading.took_ns // 1000, *row))

    def census(self, census: Census) -> None:
        processes = json.dumps([_process(process) for process in census.processes], separators=(",", ":"))
        index = self._lists.get(processes)
        if index is None:
            index = self._lists[processes] = len(self._lists) + 1
            self._add("process_lists", (index, processes))
        changes = self._changes.get((census.uuid, Lane.PROCESSES))
        if changes is None:
            changes = self._changes[(census.uuid, Lane.PROCESSES)] = Changes(Lane.EDGE)
        # A list is kept as one number, so whether it changed is whether the number did.
        if changes.keep(census.at_ns, (index,) * len(TABLES[Lane.EDGE])):
            row = (key(census.at_ns, self._gpu(census.uuid)), census.took_ns // 1000, index, census.visibility.value)
            self._add("censuses", row)

    def power(self, record: PowerRecord) -> None:
        if not record.sample_at_ns:
            return
        for times, watts in dense.stretches(record.sample_at_ns, record.sample_w):
            self._add("power", (key(times[0], self._gpu(record.uuid)), dense.pack(times, watts)))

    def gap(self, uuid: str, gap: Gap) -> None:
        self._add("gaps", (self._gpu(uuid), gap.lane.value, gap.begin_ns, gap.end_ns))

    def mark_clock(self, monotonic_ns: int, wall_ns: int) -> None:
        """What the views turn monotonic times into wall time with: the latest pair."""
        self._db.execute("UPDATE segment SET monotonic_ns = ?, wall_ns = ?", [monotonic_ns, wall_ns])

    def write(self) -> int:
        """Commit what is held; how many rows.  On an error of SQLite what is held stays held."""
        rows = self._rows
        if not rows:
            return 0
        with self._db.atomic():
            for table, values in rows.items():
                self._db.conn.executemany(self._insert[table], values)
        self._rows = {}
        return sum(map(len, rows.values()))

    def drop(self) -> int:
        """Forget what is held: the disk is full, and readings that cannot be kept must not fill the memory instead."""
        count = sum(map(len, self._rows.values()))
        self._rows = {}
        self._changes = {}
        self._numbers_of_disk()
        return count

    def checkpoint(self) -> None:
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """Leave one plain file that opens read-only anywhere."""
        try:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._db.execute("PRAGMA journal_mode = DELETE").fetchall()
        finally:
            self._db.close()

    @property
    def size_bytes(self) -> int:
        return files.size_bytes(self.path)

    def _numbers_of_disk(self) -> None:
        """GPUs and process lists have the numbers they were written with, and no others."""
        self._gpus = {row["uuid"]: row["gpu"] for row in self._db.query("SELECT gpu, uuid FROM gpus")}
        self._lists = {row["processes"]: row["id"] for row in self._db.query("SELECT id, processes FROM process_lists")}

    def _add(self, table: str, row: tuple[Any, ...]) -> None:
        self._rows.setdefault(table, []).append(row)

    def _gpu(self, uuid: str) -> int:
        gpu = self._gpus.get(uuid)
        if gpu is None:
            gpu = len(self._gpus)
            if gpu >= GPU_COUNT:
                raise StoreError(f"expected at most {GPU_COUNT} GPUs in one store, found another: {uuid}")
            self._gpus[uuid] = gpu
            self._add("gpus", (gpu, uuid))
        return gpu


def _process(process: Process) -> dict[str, Any]:
    kept = {
        "pid": process.pid, "name": process.name, "user": process.user, "started_s": process.started_s,
        "memory_bytes": process.memory_bytes, "utilization_ratio": process.utilization_ratio, "listed": process.listed,
        "graphics": process.graphics,
    }  # fmt: skip
    return {name: value for name, value in kept.items() if value is not None}
