"""One file of readings while it is written: its numbers for GPUs and processes, and the rows of a commit."""

# ruff: noqa: S608 - names in these statements are constants; values are always bound

from __future__ import annotations

from pathlib import Path

from annotate.evidence import Lane, Process
from gpuwatch.store import dense_power, files, schema
from gpuwatch.store.compaction import SegmentRows
from gpuwatch.store.database import Database
from gpuwatch.store.held_file import HeldFile
from gpuwatch.store.run import as_json
from gpuwatch.store.signal_columns import GPUS_COUNT, LANE_COLUMNS, key, quoted
from gpuwatch.store.store_options import WriterFacts

KNOWN_COUNT = 4096  # processes whose number is remembered; a forgotten process gets another number


class Segment(HeldFile):
    """The live segment.  Methods raise sqlite3.Error."""

    def __init__(self, path: Path, db: Database, boot_id: str) -> None:
        super().__init__(path, db, durable=False)
        self.boot_id = boot_id
        self._begin_ns: int = db.execute("SELECT begin_ns FROM segment").fetchone()[0]
        self._gpus: dict[str, int] = {}
        self._processes: dict[tuple[object, ...], int] = {}
        self._recall()
        self._insert = {
            lane: f"INSERT OR REPLACE INTO {lane.value} (id, stood_ms, {quoted(c.name for c in columns)}) "
            f"VALUES (?, ?{', ?' * len(columns)})"
            for lane, columns in LANE_COLUMNS.items()
        }

    @staticmethod
    def create(path: Path, facts: WriterFacts, *, begin_ns: int, wall_offset_ns: int, wal: bool) -> Segment:
        db = files.open_to_write(path, mode=facts.mode, wal=wal, durable=False)
        schema.prepare_readings(db, path)
        with db.atomic():
            db.execute(
                "INSERT OR REPLACE INTO segment VALUES (1, ?, ?, ?, ?)",
                (facts.boot_id, begin_ns, wall_offset_ns, facts.source),
            )
        return Segment(path, db, facts.boot_id)

    @property
    def pages_bytes(self) -> int:
        """Return the size of the file after its log is written back."""
        pages_count: int = self.database.execute("PRAGMA page_count").fetchone()[0]
        return pages_count * files.PAGE_BYTES

    def last_ns(self) -> int | None:
        """Return the latest end of the lanes' last rows; None without rows."""
        times = [
            self.database.execute(f"SELECT at_ns + stood_ms * 1000000 FROM {lane.value} ORDER BY id DESC LIMIT 1").fetchone()
            for lane in LANE_COLUMNS
        ]
        return max((row[0] for row in times if row), default=None)

    def write(self, rows: SegmentRows) -> int:
        """Commit these rows in one transaction, and return their count."""
        if not len(rows):
            return 0
        try:
            with self.database.atomic():
                self._write(rows)
        except BaseException:
            self._recall()
            raise
        return len(rows)

    def note_absence(self, at_ns: int) -> None:
        """Record that no daemon watched this segment's GPUs between the last writer's end and now."""
        with self.database.atomic():
            self.database.execute("UPDATE gaps SET end_ns = max(?, begin_ns) WHERE end_ns IS NULL", (at_ns,))
            for gpu in self._gpus.values():
                self.database.execute(
                    """INSERT OR IGNORE INTO gaps (gpu, lane, begin_ns, end_ns)
                    SELECT * FROM (SELECT gpu, 'fast', at_ns + stood_ms * 1000000 AS last_ns, ? FROM fast
                        WHERE id & 63 = ? ORDER BY id DESC LIMIT 1) WHERE last_ns < ?""",
                    (at_ns, gpu, at_ns),
                )

    def note_loss(self, lost: Segment, at_ns: int) -> None:
        """Record the loss of another segment: a gap on each of its GPUs, from its start to ``at_ns``."""
        gaps: list[tuple[str, Lane, int, int | None]] = [
            (uuid, Lane.FAST, min(lost._begin_ns, at_ns), at_ns) for uuid in lost._gpus
        ]
        self.write(SegmentRows(gaps=gaps))

    def close(self) -> bool:
        """Close to one plain file; return False if a reader prevents that now."""
        return files.close_plain(self.database, self.path)

    def _write(self, rows: SegmentRows) -> None:
        connection = self.database.conn
        by_lane: dict[Lane, list[tuple[object, ...]]] = {}
        for lane, at_ns, uuid, stood_ms, values in rows.readings:
            encoded = [column.encode(value) for column, value in zip(LANE_COLUMNS[lane], values, strict=True)]
            by_lane.setdefault(lane, []).append((self._key(at_ns, uuid), stood_ms, *encoded))
        for lane, encoded_rows in by_lane.items():
            connection.executemany(self._insert[lane], encoded_rows)
        connection.executemany(
            "INSERT OR REPLACE INTO census VALUES (?, ?, ?, ?, ?)",
            [
                (self._key(at_ns, uuid), stood_ms, took_us, visibility.value, self._present(processes))
                for at_ns, uuid, stood_ms, took_us, visibility, processes in rows.process_lists
            ],
        )
        connection.executemany(
            "INSERT OR REPLACE INTO power VALUES (?, ?, ?)",
            [(self._key(at_ns[0], uuid), len(at_ns), dense_power.pack(at_ns, watts)) for uuid, at_ns, watts in rows.power],
        )
        connection.executemany(
            "INSERT OR REPLACE INTO gaps (gpu, lane, begin_ns, end_ns) VALUES (?, ?, ?, ?)",
            [(self._gpu(uuid), lane.value, begin_ns, end_ns) for uuid, lane, begin_ns, end_ns in rows.gaps],
        )

    def _key(self, at_ns: int, uuid: str) -> int:
        return key(at_ns, self._gpu(uuid))

    def _gpu(self, uuid: str) -> int:
        number = self._gpus.get(uuid)
        if number is None:
            if len(self._gpus) >= GPUS_COUNT:
                raise OverflowError(f"expected at most {GPUS_COUNT} GPUs in a segment, found one more: {uuid}")
            number = self._gpus[uuid] = len(self._gpus)
            self.database.execute("INSERT INTO gpus VALUES (?, ?)", (number, uuid))
        return number

    def _present(self, processes: tuple[Process, ...]) -> str:
        """Encode the processes of a list: number, memory, utilisation."""
        return as_json([[self._process(each), each.memory_bytes, each.utilization_ratio] for each in processes])

    def _process(self, process: Process) -> int:
        key = (process.pid, process.started_s, process.name, process.user, int(process.graphics), int(process.listed))
        number = self._processes.get(key)
        if number is None:
            if len(self._processes) >= KNOWN_COUNT:
                self._processes.clear()
            number = self._processes[key] = self._next_process
            self._next_process += 1
            self.database.execute("INSERT INTO processes VALUES (?, ?, ?, ?, ?, ?, ?)", (number, *key))
        return number

    def _recall(self) -> None:
        """Reload the committed numbers of GPUs and processes."""
        self._gpus = {row[1]: row[0] for row in self.database.execute("SELECT gpu, uuid FROM gpus")}
        self._next_process: int = self.database.execute("SELECT coalesce(max(process) + 1, 0) FROM processes").fetchone()[0]
        latest = "SELECT process, pid, started_s, name, user, graphics, listed FROM processes ORDER BY process DESC LIMIT ?"
        self._processes = {tuple(row[1:]): row[0] for row in self.database.execute(latest, (KNOWN_COUNT,))}
