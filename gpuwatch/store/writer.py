"""The one writer of a store: a thread that owns every connection, commits twice a second and drops what no longer fits.

SQLite before 3.51.3 can corrupt a write-ahead log that two connections write or checkpoint at once; here only one does.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from annotate.evidence import Census, Device, Event, Gap, Lane, PowerRecord, Reading
from gpuwatch import clock
from gpuwatch.errors import StoreError
from gpuwatch.protocols import Lost, Sweep
from gpuwatch.store import files
from gpuwatch.store.run import Run, to_row
from gpuwatch.store.schema import VERSION, migrations
from gpuwatch.store.segment import GAP_NS, Segment

_log = logging.getLogger("gpuwatch.store")

WAITING_COUNT = 200_000  # sweeps held when the disk stalls: four minutes of eight GPUs at full rate
CLOCK_S = 60.0
RETENTION_S = 10.0
CHECKPOINT_S = 30.0
WALL_STEP_NS = 20_000_000  # a wall clock that moved more between two looks was stepped


class Store:
    """Takes sweeps from any thread and keeps them; opens its files, or raises StoreError in one line."""

    def __init__(
        self,
        state: Path,
        *,
        source: str,
        boot_id: str,
        budget_bytes: int = 2 << 30,
        max_age_s: float = 30 * 86400.0,
        segment_bytes: int = 64 << 20,
        commit_s: float = 0.5,
        wall_s: Callable[[], float] = clock.wall_s,
        offset_ns: Callable[[], int] = clock.wall_offset_ns,
    ) -> None:
        self._state = state
        self._source = source
        self._boot_id = boot_id
        self._segment_bytes = segment_bytes
        self._commit_s = commit_s
        self._wall_s = wall_s
        self._offset_ns = offset_ns
        self.set_budget(budget_bytes, max_age_s)
        self._waiting: deque[Sweep | Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._counts = {"rows_count": 0, "dropped_count": 0, "errors_count": 0, "set_aside_count": 0}
        self._full = False
        self._failing: str | None = None
        self._last: dict[str, int] = {}  # of each GPU's fast lane
        self._lost: dict[str, int] = {}
        self._devices: dict[str, Device] = {}
        self._offset_kept_ns: int | None = None
        self._held = contextlib.ExitStack()
        try:
            state.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._held.enter_context(files.writer_lock(state))
            kind = files.file_system(state)
            # A write-ahead log needs shared memory, which a network file system does not have.
            self._journal = "DELETE" if kind in files.NETWORK_FILE_SYSTEMS else "WAL"
            if self._journal == "DELETE":
                _log.warning("%s lies on %s: no write-ahead log, readers may make the writer wait", state, kind)
            self._db = self._open_permanent()
            self._segment = self._open_segment()
        except (OSError, sqlite3.Error) as error:
            self._held.close()
            raise StoreError(f"{state}: the store cannot be opened: {error}; choose another --state") from error
        except BaseException:
            self._held.close()
            raise
        self._thread = threading.Thread(target=self._work, name="gpuwatch-store", daemon=True)
        self._thread.start()

    # From any thread

    def take(self, sweep: Sweep) -> None:
        if len(self._waiting) < WAITING_COUNT:
            self._waiting.append(sweep)
        else:
            self._counts["dropped_count"] += 1

    def put_device(self, device: Device) -> None:
        self._do(lambda: self._keep_device(device))

    def put_refresh(self, uuid: str, refresh_ns: Mapping[str, int]) -> None:
        rows = [(uuid, signal, period_ns) for signal, period_ns in refresh_ns.items()]
        self._do(lambda: self._permanently("INSERT OR REPLACE INTO refresh VALUES (?, ?, ?)", rows))

    def put_run(self, run: Run, evidence: Mapping[str, bytes] | None = None) -> None:
        """Insert or replace a run, with its findings and evidence; committed at once, in the order of calls."""
        self._do(lambda: self._keep_run(run, evidence or {}))
        self._wake.set()

    def flush(self, timeout_s: float = 1.0) -> bool:
        """Whether everything taken before this call was committed within so long."""
        done = threading.Event()
        self._do(done.set)
        self._wake.set()
        return done.wait(timeout_s) and self._failing is None

    def set_budget(self, budget_bytes: int, max_age_s: float) -> None:
        self._budget_bytes = budget_bytes
        self._max_age_s = max_age_s

    def statistics(self) -> dict[str, Any]:
        """What it holds and what went wrong, as JSON values."""
        held = files.segments(self._state)
        return {
            **self._counts,
            "waiting_count": len(self._waiting),
            "bytes": files.size_bytes(self._state / files.PERMANENT) + sum(map(files.size_bytes, held)),
            "segments_count": len(held),
            "disk_full": self._full,
            "failing": self._failing,
            "journal_mode": self._journal,
            "sqlite_version": sqlite3.sqlite_version,
        }

    def close(self) -> None:
        """Commit what is left and leave plain files."""
        self._closing = True
        self._wake.set()
        self._thread.join(10.0)
        self._held.close()

    # In the writer's thread

    def _do(self, work: Callable[[], None]) -> None:
        self._waiting.append(work)

    def _work(self) -> None:
        begun_ns = clock.now_ns()
        due = dict.fromkeys((self._mark_clock, self._retain, self._checkpoint), begun_ns)
        period_s = {self._mark_clock: CLOCK_S, self._retain: RETENTION_S, self._checkpoint: CHECKPOINT_S}
        while not self._closing:
            self._wake.wait(self._commit_s)
            self._wake.clear()
            self._guarded(self._drain)
            for work, due_ns in due.items():
                if clock.now_ns() >= due_ns:
                    due[work] = clock.now_ns() + int(period_s[work] * 1e9)
                    self._guarded(work)
        self._guarded(self._drain)
        self._guarded(self._mark_clock)
        self._guarded(self._segment.close)
        self._guarded(self._close_permanent)

    def _guarded(self, work: Callable[[], None]) -> None:
        """What SQLite or the disk refuse is counted and said once; the daemon goes on serving."""
        try:
            work()
        except (sqlite3.Error, OSError, StoreError) as error:
            self._counts["errors_count"] += 1
            if self._failing != str(error):
                _log.error("the store cannot write: %s", error)
            self._failing = str(error)
            if isinstance(error, sqlite3.DatabaseError) and _is_damage(error):
                self._guarded(self._replace_segment)
            elif _is_full(error):
                self._make_room()
        else:
            if work == self._drain and self._failing is not None:
                _log.info("the store writes again")
                self._failing, self._full = None, False

    def _drain(self) -> None:
        """Everything that waits, in order: sweeps are gathered and committed before each piece of work and at the end."""
        if self._segment.size_bytes > self._segment_bytes:
            self._rotate()
        for _ in range(len(self._waiting)):
            item = self._waiting.popleft()
            if isinstance(item, Sweep):
                self._gather(item)
            else:
                self._commit()
                item()
        self._commit()

    def _commit(self) -> None:
        try:
            self._counts["rows_count"] += self._segment.write()
        except sqlite3.Error:
            self._counts["dropped_count"] += self._segment.drop()
            raise

    def _gather(self, sweep: Sweep) -> None:
        match sweep.observed:
            case Reading() as reading:
                if sweep.lane is Lane.FAST:
                    self._gap_before(reading, sweep)
                self._segment.reading(reading)
            case Census() as census:
                self._segment.census(census)
            case PowerRecord() as record:
                self._segment.power(record)
            case Event() as event:
                self._keep_event(event)
            case Lost() as lost:
                if sweep.lane is Lane.FAST and sweep.uuid not in self._lost:
                    self._lost[sweep.uuid] = self._last.get(sweep.uuid, lost.at_ns)
                    self._keep_event(Event(uuid=sweep.uuid, at_ns=lost.at_ns, kind="lost", text=lost.reason))

    def _gap_before(self, reading: Reading, sweep: Sweep) -> None:
        last_ns = self._last.get(reading.uuid)
        lost_ns = self._lost.pop(reading.uuid, None)
        behind = sweep.missed_count > 0 or sweep.late_ns > GAP_NS // 2
        if lost_ns is not None:
            self._segment.gap(reading.uuid, Gap(begin_ns=lost_ns, end_ns=reading.at_ns))
        elif last_ns is not None and behind and reading.at_ns - last_ns > GAP_NS:
            self._segment.gap(reading.uuid, Gap(begin_ns=last_ns, end_ns=reading.at_ns))
        self._last[reading.uuid] = reading.at_ns

    def _keep_event(self, event: Event) -> None:
        if event.kind == "clock":
            return  # forty in four seconds of bursty load, and each has no payload: the readings show them
        row = (event.uuid, self._boot_id, event.at_ns, event.kind, event.value, event.text)
        self._permanently("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", [row])

    def _keep_device(self, device: Device) -> None:
        if self._devices.get(device.uuid) == device:
            return
        values = {"boot_id": self._boot_id, "at_ns": clock.now_ns(), **asdict(device)}
        names = ", ".join(values)
        self._permanently(f"INSERT INTO devices ({names}) VALUES ({', '.join('?' * len(values))})", [tuple(values.values())])
        self._devices[device.uuid] = device

    def _keep_run(self, run: Run, evidence: Mapping[str, bytes]) -> None:
        row = to_row(run)
        # Updated in place, not replaced: replacing would take the evidence along.
        update = ", ".join(f"{name} = excluded.{name}" for name in row if name != "id")
        found = [
            (run.id, verdict["device"]["uuid"], f["rule"], f["severity"], f["says"], f["remedy"], f["effect_ratio"], f["accepted"])
            for verdict in run.verdicts
            for f in verdict["findings"]
            if f["answered"] == "found"
        ]
        with self._db.atomic():
            self._db.conn.execute(
                f"INSERT INTO runs ({', '.join(row)}) VALUES ({', '.join('?' * len(row))}) "  # noqa: S608 - our own names
                f"ON CONFLICT (id) DO UPDATE SET {update}",
                tuple(row.values()),
            )
            self._db.conn.execute("DELETE FROM findings WHERE run = ?", (run.id,))
            self._db.conn.executemany("INSERT INTO findings VALUES (?, ?, ?, ?, ?, ?, ?, ?)", found)
            self._db.conn.executemany(
                "INSERT OR REPLACE INTO evidence VALUES (?, ?, ?)", [(run.id, uuid, blob) for uuid, blob in evidence.items()]
            )

    def _permanently(self, sql: str, rows: list[tuple[Any, ...]]) -> None:
        with self._db.atomic():
            self._db.conn.executemany(sql, rows)

    # Files

    def _connect(self, path: Path) -> Database:
        connection = sqlite3.connect(path, check_same_thread=False, timeout=5.0)
        path.chmod(0o600 if self._state.stat().st_mode & 0o077 == 0 else 0o640)
        db = Database(connection, execute_plugins=False)
        connection.execute(f"PRAGMA journal_mode = {self._journal}").fetchall()
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA journal_size_limit = 16777216")
        connection.execute(f"PRAGMA synchronous = {'FULL' if path.name == files.PERMANENT else 'NORMAL'}")
        return db

    def _whole(self, path: Path) -> Path:
        """A path that holds a database of ours or nothing."""
        newer = files.newer_version(path, VERSION)
        if newer is not None and not files.is_damaged(path):
            raise StoreError(f"{path}: expected a store of version {VERSION} or older, found {newer}; upgrade gpuwatch")
        if files.is_damaged(path):
            files.set_aside(path)
            self._counts["set_aside_count"] += 1
        return path

    def _open_permanent(self) -> Database:
        db = self._connect(self._whole(self._state / files.PERMANENT))
        migrations.apply(db)
        db.execute(f"PRAGMA user_version = {VERSION}")
        # What a daemon that died left open can no longer be closed by anybody.
        with db.atomic():
            db.execute(
                "UPDATE runs SET status = 'unproven', why = 'the daemon went away before this window was judged', "
                "end_ns = coalesce(end_ns, begin_ns) WHERE status IN ('open', 'closing', 'judging')"
            )
        return db

    def _open_segment(self) -> Segment:
        """The last segment if it belongs to this boot and has room, else a new one."""
        held = files.segments(self._state)
        if held:
            last = self._whole(held[-1])
            if last.exists() and files.size_bytes(last) < self._segment_bytes and Segment.boot_of(last, self._connect) == self._boot_id:
                return Segment(last, self._boot_id, self._connect)
            if last.exists():
                Segment(last, self._boot_id, self._connect).close()  # a daemon that died left its log beside it
        path = files.segment_path(self._state, self._wall_s())
        while path.exists():
            path = path.with_name(f"readings-{int(path.stem.partition('-')[2]) + 1:013d}.db")
        return Segment(path, self._boot_id, self._connect)

    def _rotate(self) -> None:
        self._commit()
        self._segment.close()
        self._segment = self._open_segment()
        self._mark_clock()
        self._retain()

    def _replace_segment(self) -> None:
        """The live segment turned out damaged: set it aside and go on in a new one."""
        with contextlib.suppress(sqlite3.Error):
            self._segment.close()
        files.set_aside(self._segment.path)
        self._counts["set_aside_count"] += 1
        self._segment = self._open_segment()

    def _retain(self) -> None:
        """Drop the oldest segments beyond budget and age, whole files at a time, never the live one."""
        held = [path for path in files.segments(self._state) if path != self._segment.path]
        total = self._segment.size_bytes + sum(map(files.size_bytes, held))
        for path in held:
            age_s = self._wall_s() - path.stat().st_mtime
            if total <= self._budget_bytes and age_s <= self._max_age_s:
                break
            total -= files.size_bytes(path)
            files.remove(path)

    def _make_room(self) -> None:
        """A full disk: deleting rows needs room itself, only unlinking a file gives some."""
        self._full = True
        held = [path for path in files.segments(self._state) if path != self._segment.path]
        if held:
            _log.warning("the disk is full: dropping %s", held[0].name)
            files.remove(held[0])

    def _mark_clock(self) -> None:
        """Keep a pair of monotonic and wall time; at once more when the wall clock was stepped."""
        offset_ns = self._offset_ns()
        now_ns = clock.now_ns()
        pairs = [(self._boot_id, now_ns, now_ns + offset_ns)]
        if self._offset_kept_ns is not None and abs(offset_ns - self._offset_kept_ns) > WALL_STEP_NS:
            pairs.insert(0, (self._boot_id, now_ns - 1, now_ns - 1 + self._offset_kept_ns))
        self._offset_kept_ns = offset_ns
        self._permanently("INSERT INTO clocks VALUES (?, ?, ?)", pairs)
        self._segment.mark_clock(now_ns, now_ns + offset_ns)

    def _checkpoint(self) -> None:
        self._segment.checkpoint()
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _close_permanent(self) -> None:
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._db.execute("PRAGMA journal_mode = DELETE").fetchall()
        self._db.close()


def _is_full(error: Exception) -> bool:
    return "disk is full" in str(error) or "disk I/O error" in str(error) or getattr(error, "errno", None) == 28


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return "malformed" in str(error) or "not a database" in str(error)


__all__ = ["Store"]
