"""The writer of ``gpuwatch.db``, which holds everything that is stored for good, and the newest packed evidence."""

# ruff: noqa: S608 - names in these statements are constants; values are always bound

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from annotate.evidence import Device, Event, RecordedWindow
from annotate.status import Status
from gpuwatch import clock
from gpuwatch.errors import StoreError
from gpuwatch.interfaces import Run
from gpuwatch.store import files, schema, work_records
from gpuwatch.store.database import Database
from gpuwatch.store.held_file import HeldFile
from gpuwatch.store.run import DIED, UNFINISHED, as_json, reason_without_verdict, to_row
from gpuwatch.store.signal_columns import DEVICE_COLUMNS, quoted
from gpuwatch.store.store_options import WriterFacts
from gpuwatch.wire.packed_times import PackedTimes
from gpuwatch.wire.spans import NamedSpans

_SAME_CLOCK_NS = 50_000_000  # wall time is only for display: a smaller drift starts no new interval


class Ledger(HeldFile):
    """Writes of one connection, each in its own transaction or in the caller's.  The methods raise sqlite3.Error."""

    def __init__(self, path: Path, db: Database, *, boot_id: str, evidence_bytes: int) -> None:
        super().__init__(path, db, durable=True)
        self._boot_id = boot_id
        self.evidence_bytes = evidence_bytes
        self._kept_bytes: int | None = None

    @property
    def size_bytes(self) -> int:
        return files.size_bytes(self.path)

    def put_clock(self, at_ns: int, wall_offset_ns: int) -> None:
        """Record the offset of wall time from monotonic time; extend the last interval if the offset is nearly the same."""
        last = self.database.execute(
            "SELECT begin_ns, wall_offset_ns FROM clocks WHERE boot_id = ? ORDER BY begin_ns DESC LIMIT 1", (self._boot_id,)
        ).fetchone()
        if last and abs(last[1] - wall_offset_ns) < _SAME_CLOCK_NS:
            sql = "UPDATE clocks SET end_ns = ? WHERE boot_id = ? AND begin_ns = ?"
            self.database.execute(sql, (at_ns, self._boot_id, last[0]))
        else:
            sql = "INSERT OR REPLACE INTO clocks VALUES (?, ?, ?, ?)"
            self.database.execute(sql, (self._boot_id, at_ns, at_ns, wall_offset_ns))

    def put_device(self, device: Device, at_ns: int, wall_s: float) -> None:
        """Insert a row if any fact of a GPU differs from its last row."""
        facts = {name: getattr(device, name) for name in DEVICE_COLUMNS}
        latest = f"SELECT {quoted(facts)} FROM devices WHERE uuid = ? ORDER BY id DESC LIMIT 1"
        if next(self.database.query(latest, (device.uuid,)), None) != facts:
            row = {"boot_id": self._boot_id, "since_ns": at_ns, "since_wall_s": wall_s, **facts}
            self.database.execute(
                f"INSERT INTO devices ({quoted(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values())
            )

    def put_refresh(self, uuid: str, refresh_ns: Mapping[str, int]) -> None:
        with self.database.atomic():
            self.database.conn.executemany(
                "INSERT OR REPLACE INTO refresh VALUES (?, ?, ?)",
                [(uuid, name, int(period_ns)) for name, period_ns in refresh_ns.items()],
            )

    def put_event(self, event: Event, wall_s: float) -> None:
        self.database.execute(
            "INSERT INTO events (uuid, boot_id, at_ns, at_wall_s, kind, value, text) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (event.uuid, self._boot_id, event.at_ns, wall_s, event.kind, event.value, event.text),
        )

    def put_timings(self, run_id: str, times: PackedTimes) -> None:
        self.database.execute(
            "INSERT OR REPLACE INTO timings (run, count, at_ns, took_s, sm_clock_mhz, calls_count) VALUES (?, ?, ?, ?, ?, ?)",
            (run_id, times.count, times.at_ns, times.took_s, times.sm_clock_mhz, times.calls_count),
        )

    def put_spans(self, run_id: str, what: str, spans: NamedSpans) -> None:
        names = {word: number for number, word in enumerate(dict.fromkeys(spans.words))}
        self.database.execute(
            "INSERT OR REPLACE INTO spans VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                run_id,
                what,
                len(spans.words),
                spans.begin_ns.tobytes(),
                spans.end_ns.tobytes(),
                bytes(names[word] for word in spans.words),
                as_json(list(names)),
            ),
        )

    def put_run(self, run: Run, evidence: Mapping[str, bytes], signatures: Sequence[bytes] = ()) -> None:
        """Insert or replace a run with its verdicts, signatures and findings; keep stored evidence if none is passed."""
        with self.database.atomic():
            row = to_row(run)
            sql = f"INSERT OR REPLACE INTO runs ({quoted(row)}) VALUES ({', '.join('?' * len(row))})"
            self.database.execute(sql, list(row.values()))
            self.database.execute("DELETE FROM verdicts WHERE run = ?", (run.id,))
            self.database.execute("DELETE FROM findings WHERE run = ?", (run.id,))
            self.database.execute("DELETE FROM signatures WHERE run = ?", (run.id,))
            for position, verdict in enumerate(run.verdicts):
                uuid = (verdict.get("device") or {}).get("uuid")
                packed = zlib.compress(msgspec.json.encode(verdict))
                self.database.execute(
                    "INSERT INTO verdicts VALUES (?, ?, ?, ?, ?)", (run.id, position, uuid, str(verdict.get("status")), packed)
                )
                found = [_finding_row(run.id, uuid, i, finding) for i, finding in enumerate(_hazards(verdict))]
                self.database.conn.executemany(f"INSERT INTO findings VALUES ({', '.join('?' * 12)})", found)
            signed = [(run.id, position, signature) for position, signature in enumerate(signatures)]
            self.database.conn.executemany("INSERT INTO signatures VALUES (?, ?, ?)", signed)
            for uuid, capsule in evidence.items():
                self.database.execute("INSERT OR REPLACE INTO evidence VALUES (?, ?, ?)", (run.id, uuid, capsule))
        if evidence:
            self._bound(sum(map(len, evidence.values())))

    def put_recorded(self, run: Run, recorded: Mapping[str, RecordedWindow]) -> None:
        """Add the numbers of a VALID run to the record of each work, by the digest of the work key; drop the oldest."""
        with self.database.atomic():
            for work, window in recorded.items():
                work_records.put(self.database, run, work, window)

    def end_unfinished(self, last_ns: int | None) -> int:
        """Mark runs that a dead daemon left open or unjudged as unproven, and return their count.  Call at startup."""
        query = f"SELECT * FROM runs WHERE status IN ({', '.join('?' * len(UNFINISHED))})"
        left = list(self.database.query(query, UNFINISHED))
        with self.database.atomic():
            for row in left:
                told = row["told"]
                begin_ns, end_ns = row["begin_ns"], row["end_ns"]
                why = reason_without_verdict(row["status"], end_ns)
                if why == DIED:
                    told = _with_abandoned(told)
                    alive = last_ns is not None and row["boot_id"] == self._boot_id
                    end_ns = max(begin_ns, last_ns) if alive and last_ns is not None else begin_ns
                self.database.execute(
                    "UPDATE runs SET status = ?, badness = ?, why = ?, end_ns = ?, told = ? WHERE id = ?",
                    (Status.UNPROVEN.value, Status.UNPROVEN.badness, why, end_ns, told, row["id"]),
                )
        return len(left)

    def close(self) -> bool:
        return files.close_plain(self.database, self.path)

    def recount(self) -> None:
        """Count the kept evidence anew: a failed transaction undid changes that were counted."""
        self._kept_bytes = None

    def _bound(self, added_bytes: int) -> None:
        """Drop the oldest packed evidence beyond its limit; runs and verdicts stay."""
        if self._kept_bytes is None:
            self._kept_bytes = self.database.execute("SELECT coalesce(sum(length(capsule)), 0) FROM evidence").fetchone()[0]
        else:
            self._kept_bytes += added_bytes
        while self._kept_bytes > self.evidence_bytes:
            oldest = self.database.execute(
                "SELECT run, sum(length(capsule)) FROM evidence GROUP BY run ORDER BY run LIMIT 1"
            ).fetchone()
            if oldest is None:
                return
            self.database.execute("DELETE FROM evidence WHERE run = ?", (oldest[0],))
            self._kept_bytes -= oldest[1]


def open_ledger(folder: Path, facts: WriterFacts, *, wal: bool, evidence_bytes: int) -> tuple[Ledger, int]:
    """Return the folder's ledger, created or migrated as needed, and the count of damaged ledgers set aside.

    Raises StoreError: for a ledger that is newer, locked, or damaged even when new.
    Raises sqlite3.Error, OSError: when disk or database fails.
    """
    path = folder / files.DATABASE
    for set_aside_count in range(2):
        wrong = _damage(path) if path.exists() else None
        if wrong is None:
            db = files.open_to_write(path, mode=facts.mode, wal=wal, durable=True)
            try:
                wrong = files.check(db, now_ns=facts.now_ns)
                if wrong is None:
                    schema.prepare_ledger(db, path)
                    return Ledger(path, db, boot_id=facts.boot_id, evidence_bytes=evidence_bytes), set_aside_count
            except files.REFUSALS as error:
                if not files.is_broken(error):
                    raise
                wrong = error
            db.conn.close()
        files.set_aside(path, wrong, wall_s=clock.wall_s())
    raise StoreError(f"{path}: expected a usable new database, found a damaged one; check the disk")


def _damage(path: Path) -> object:
    """Return the error of a damaged ledger, or None for a readable one.  Raises StoreError: for a newer or locked ledger."""
    try:
        db = files.open_to_read(path)
    except StoreError as error:
        if error.__cause__ is not None and files.is_broken(error.__cause__):
            return error.__cause__
        raise
    try:
        schema.refuse_newer(db, path)
    except files.REFUSALS as error:
        return error
    finally:
        db.conn.close()
    return None


def _with_abandoned(told: str) -> str:
    """Return declared facts with the fact ``abandoned``; unreadable facts stay unchanged."""
    try:
        return as_json({**msgspec.json.decode(told), "abandoned": True})
    except (ValueError, TypeError, RecursionError):
        return told


def _hazards(verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    order = {"reject": 0, "flag": 1, "note": 2}
    found = [finding for finding in verdict.get("findings", ()) if finding.get("answered") == "found"]
    return sorted(found, key=lambda finding: order.get(finding.get("severity") or "note", 2))


def _finding_row(run_id: str, uuid: str | None, position: int, finding: Mapping[str, Any]) -> tuple[object, ...]:
    begin_ns, end_ns = finding.get("span_ns") or (None, None)
    return (
        run_id,
        uuid,
        position,
        finding["rule"],
        finding.get("severity"),
        int(bool(finding.get("accepted"))),
        finding.get("says") or "",
        finding.get("remedy") or "",
        finding.get("effect_ratio"),
        begin_ns,
        end_ns,
        as_json(finding.get("facts") or {}),
    )
