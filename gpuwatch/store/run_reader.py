"""Queries of the ledger."""

# ruff: noqa: S608 - names in these statements are constants; values are always bound

import sqlite3
import zlib
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import msgspec

from annotate.evidence import OtherWindow, RecordedWindow, Timings
from gpuwatch.errors import StoreError
from gpuwatch.interfaces import Run
from gpuwatch.store import files, schema, work_records
from gpuwatch.store.overlapping import MOST_COUNT, StoredSpan, foreign_to
from gpuwatch.store.run import BADNESS, OPEN, UNFINISHED, Ended, as_json, from_row, reason_without_verdict
from gpuwatch.wire import store_owner
from gpuwatch.wire.packed_times import PackedTimes
from gpuwatch.wire.spans import NamedSpans

SHORTEST_PREFIX = 4

# Made here: two threads that use a type for the first time together would crash (annotate/verdict.py).
_recorded: msgspec.json.Decoder[RecordedWindow] = msgspec.json.Decoder(RecordedWindow)

# Errors from rows of a damaged file: SQLite cannot read them, or they hold impossible values.
DAMAGE = (
    sqlite3.Error,
    zlib.error,
    msgspec.MsgspecError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,  # JSON nested deeper than Python's recursion limit
)


class LedgerConnection:
    """A read-only connection to a store's database.

    Every query raises StoreError: when the database cannot be read.  The message has one line.
    """

    def __init__(self, state: Path) -> None:
        self.state = Path(state)
        self.path = self.state / files.DATABASE
        self._db = files.open_to_read(self.path)

    def close(self) -> None:
        self._db.conn.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _first(self, sql: str, values: Iterable[Any] = ()) -> tuple[Any, ...] | None:
        return next(iter(self._rows(sql, values)), None)

    def _rows(self, sql: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        with self._as_store_error():
            return self._db.execute(sql, list(values)).fetchall()

    def _dicts(self, sql: str, values: Iterable[Any] = ()) -> list[dict[str, Any]]:
        with self._as_store_error():
            return list(self._db.query(sql, list(values)))

    @contextmanager
    def _as_store_error(self) -> Iterator[None]:
        try:
            yield
        except DAMAGE as error:
            raise StoreError(f"{self.path}: expected a readable gpuwatch database, found: {error}") from error


class RunReader(LedgerConnection):
    """Queries of stored runs.

    Every query raises StoreError: when the database cannot be read.  The message has one line.
    """

    def __init__(self, state: Path) -> None:
        super().__init__(state)
        self.left_out: dict[str, str] = {}  # by id, the reasons for unreadable runs, which lists omit
        try:
            schema.refuse_newer(self._db, self.path)
            if "runs" not in self._db.table_names():
                raise StoreError(f"{self.path}: expected a gpuwatch store, found another database")
            # A store of an older version lacks this column until a daemon of this version opens it.
            self._has_tags = any(row[1] == "tags" for row in self._db.execute("PRAGMA table_info(runs)"))
        except StoreError:
            self.close()
            raise
        except files.REFUSALS as error:
            self.close()
            raise StoreError(f"{self.path}: expected a readable gpuwatch database, found: {error}") from error

    def last_xids(self, boot_id: str) -> list[tuple[str, int, float]]:
        """Return GPU, Xid number and wall time of the last event per GPU and Xid in this boot, oldest first."""
        return self._rows(
            "SELECT uuid, value, max(at_wall_s) FROM events WHERE boot_id = ? AND kind = 'xid' AND value IS NOT NULL"
            " GROUP BY uuid, value ORDER BY 3",
            (boot_id,),
        )

    def runs(
        self,
        *,
        since_wall_s: float | None = None,
        until_wall_s: float | None = None,
        label: str | None = None,
        status: Collection[str] = (),
        tags: Mapping[str, str | None] | None = None,
        limit: int | None = None,
        worst_first: bool = False,
    ) -> list[Run]:
        """Return the runs that match every filter, newest first; with ``worst_first``, the worst status first.

        ``since_wall_s`` and ``until_wall_s`` bound a run's start time.  A run matches ``tags`` if it has every tag; the
        value None matches any value.
        """
        wheres: list[tuple[str, list[Any]]] = [
            (sql, [value])
            for sql, value in (("begun_wall_s >= ?", since_wall_s), ("begun_wall_s <= ?", until_wall_s), ("label = ?", label))
            if value is not None
        ]
        if len(status) == 1:
            wheres.append(("status = ?", list(status)))  # with several statuses, SQLite cannot use the index for the order
        elif status:
            wheres.append((f"status IN ({', '.join('?' * len(status))})", list(status)))
        if status and worst_first:  # a redundant condition on the sort column; without it SQLite would sort all rows
            badness = sorted({BADNESS.get(each, -1) for each in status})
            wheres.append((f"badness IN ({', '.join('?' * len(badness))})", badness))
        wheres += [self._having_tag(name, text) for name, text in (tags or {}).items()]
        where = " AND ".join(sql for sql, _ in wheres) or "1"
        values = [value for _, of_one in wheres for value in of_one]
        order = "badness DESC, begun_wall_s DESC" if worst_first else "begun_wall_s DESC"
        sql = f"SELECT * FROM runs WHERE {where} ORDER BY {order}, id DESC LIMIT ?"
        return self._readable(sql, [*values, -1 if limit is None else limit], self.left_out)

    def _having_tag(self, name: str, text: str | None) -> tuple[str, list[Any]]:
        """Return the SQL condition and the bound values for runs with a tag.

        A ``text`` of None matches any value.  Invalid JSON never matches.
        """
        if not self._has_tags:
            return "0", []
        # Search the text first, because parsing the JSON of a million runs is slow.
        written = f"{as_json(name)}:{'' if text is None else as_json(text)}"
        one = "SELECT 1 FROM json_each(runs.tags) WHERE key = ? AND value = coalesce(?, value)"
        valid = f"CASE WHEN json_valid(runs.tags) THEN EXISTS ({one}) ELSE 0 END"
        return f"CASE WHEN instr(runs.tags, ?) THEN {valid} ELSE 0 END", [written, name, text]

    def ended(self, *, since_wall_s: float | None = None) -> list[Ended]:
        """Return the finished runs, oldest first, without their verdicts, which are slow to decode."""
        sql = f"""SELECT id, boot_id, begun_wall_s, CASE WHEN json_valid(host) THEN json_extract(host, '$.hostname') END FROM runs
            WHERE begun_wall_s >= ? AND status NOT IN ({", ".join("?" * len(UNFINISHED))}) ORDER BY begun_wall_s, id"""
        return [Ended(*row) for row in self._rows(sql, [since_wall_s or 0.0, *UNFINISHED])]

    def named(self, ids: Sequence[str]) -> list[Run]:
        """Return the known and readable runs of these ids, in the order given."""
        sql = "SELECT * FROM runs WHERE id IN (SELECT value FROM json_each(?))"
        runs = {run.id: run for run in self._readable(sql, [as_json(ids)], self.left_out)}
        return [runs[run_id] for run_id in ids if run_id in runs]

    def run(self, id_prefix: str) -> Run:
        """Return the run with this id, or else the only readable run whose id begins with this prefix.

        Raises StoreError: for a prefix of fewer than four characters, for no such run or several, and for an unreadable run.
        """
        if len(id_prefix) < SHORTEST_PREFIX:
            raise StoreError(f"run: expected a label or at least {SHORTEST_PREFIX} characters of an id, found {id_prefix!r}")
        sql = "SELECT * FROM runs WHERE id >= ? AND id < ? LIMIT 11"
        unreadable: dict[str, str] = {}
        found = self._readable(sql, [id_prefix, f"{id_prefix}\U0010ffff"], unreadable)
        if id_prefix in unreadable or (unreadable and not found):
            raise StoreError(unreadable.get(id_prefix) or next(iter(unreadable.values())))
        exact = [run for run in found if run.id == id_prefix]
        if len(found) != 1 and not exact:
            if not found:
                raise StoreError(f"run {id_prefix}: expected a run in {self.state}, found none; list runs with: gpuwatch audit")
            some = ", ".join(run.id for run in found[:3])
            raise StoreError(f"run {id_prefix}: expected the prefix of one id, found {len(found)} ids: {some}; add characters")
        return (exact or found)[0]

    def packed(self, run: Run, uuid: str) -> bytes | None:
        """Return a run's stored capsule of one GPU, byte for byte, or None if no capsule is stored."""
        row = self._first("SELECT capsule FROM evidence WHERE run = ? AND uuid = ?", (run.id, uuid))
        return None if row is None else bytes(row[0])

    def signatures(self, run: Run) -> dict[int, bytes]:
        """Return the daemon's signatures of a run's verdicts, by position; empty for a store of an older version."""
        if "signatures" not in self._db.table_names():
            return {}
        return dict(self._rows("SELECT position, signature FROM signatures WHERE run = ?", (run.id,)))

    def overlapping(self, run: Run, uuid: str) -> tuple[OtherWindow, ...]:
        """Return the windows of other processes that overlap a run on one GPU, oldest first; open ones end with the run."""
        end_ns = run.begin_ns if run.end_ns is None else run.end_ns
        # The index by end serves both parts.  The plus keeps SQLite off the index by start, which would scan all earlier
        # windows.
        columns = "SELECT id, uid, pid, pids, label, begin_ns, end_ns, parent, uuids FROM runs WHERE boot_id = ? AND"
        sql = f"""{columns} end_ns > ? AND +begin_ns < ? AND id != ?
            UNION ALL {columns} end_ns IS NULL AND status = ? AND +begin_ns < ? AND id != ? ORDER BY begin_ns, id LIMIT ?"""
        ended = [run.boot_id, run.begin_ns, end_ns, run.id]
        rows = self._rows(sql, [*ended, run.boot_id, OPEN, end_ns, run.id, MOST_COUNT])
        with self._as_store_error():
            return foreign_to(run, uuid, [StoredSpan.of(row, end_ns) for row in rows])

    def recorded(self, run: Run, work: str) -> list[RecordedWindow]:
        """Return the numbers of the user's earlier windows of this work, newest last; empty for an older version's store."""
        if "recorded_windows" not in self._db.table_names():
            return []
        rows = self._rows(work_records.EARLIER, (run.uid, run.source, work, run.id))
        with self._as_store_error():
            return [_recorded.decode(numbers) for (numbers,) in rows]

    def _timings(self, run_id: str) -> Timings | None:
        row = next(iter(self._dicts("SELECT * FROM timings WHERE run = ?", [run_id])), None)
        if row is None:
            return None
        clock = row.get("sm_clock_mhz")  # a read-only store of the first version lacks this column
        with self._as_store_error():
            return PackedTimes(row["at_ns"], row["took_s"], clock, row.get("calls_count") or 1).unpacked()

    def _spans(self, run_id: str, what: str) -> NamedSpans | None:
        """Return a run's spans of one kind, or None if no spans are stored, as in a store of an older version."""
        if "spans" not in self._db.table_names():
            return None
        sql = "SELECT begin_ns, end_ns, named, names FROM spans WHERE run = ? AND what = ?"
        row = self._first(sql, (run_id, what))
        if row is None:
            return None
        with self._as_store_error():
            begin_ns, end_ns = (array("q", each) for each in row[:2])
            names = msgspec.json.decode(row[3], type=list[str])
            words = tuple(names[number] for number in row[2])
            if not len(begin_ns) == len(end_ns) == len(words):
                raise ValueError(
                    f"expected {len(begin_ns)} end times and words, one per start time, found {len(end_ns)} and {len(words)}"
                )
            return NamedSpans(begin_ns, end_ns, words)

    def _readable(self, sql: str, values: list[Any], unreadable: dict[str, str]) -> list[Run]:
        """Return the readable runs, and add the reasons for the others to ``unreadable`` by id."""
        packed: dict[str, list[bytes]] = {}
        of_verdicts = "SELECT run, verdict FROM verdicts WHERE run IN (SELECT value FROM json_each(?)) ORDER BY run, position"
        # One transaction: otherwise a run read as unjudged could get verdicts that the daemon wrote afterwards.
        with self._as_store_error(), self._db.atomic():
            rows = list(self._dicts(sql, values))
            for run_id, verdict in self._rows(of_verdicts, [as_json([row["id"] for row in rows])]):
                packed.setdefault(run_id, []).append(verdict)
        runs = []
        for row in rows:
            try:
                verdicts = [msgspec.json.decode(zlib.decompress(each)) for each in packed.get(row["id"], ())]
                runs.append(from_row(row, tuple(verdicts)))
            except DAMAGE as error:
                unreadable[str(row["id"])] = f"{self.path}: run {row['id']}: expected a readable window, found: {error}"
        return self._with_reasons(runs)

    def _with_reasons(self, runs: list[Run]) -> list[Run]:
        """Return runs, the unfinished ones with the reason that the next daemon will store, if no daemon owns the store now."""
        if not any(run.status in UNFINISHED for run in runs) or store_owner.is_alive(self.state):
            return runs
        return [
            replace(run, why=reason_without_verdict(run.status, run.end_ns)) if run.status in UNFINISHED else run
            for run in runs
        ]
