"""The tables and views of ledger and readings.  A new schema version adds one numbered migration here and one fixture.

gpuwatch runs the statements for a new file; sqlite-utils applies missing migrations to an older file, in a child process.
"""

# ruff: noqa: S608 - names in these statements are constants; values are always bound

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from annotate.evidence import Lane
from gpuwatch.errors import StoreError
from gpuwatch.store import migrate
from gpuwatch.store.database import Database
from gpuwatch.store.migrate import Executes, MigrationSet
from gpuwatch.store.signal_columns import DEVICE_COLUMNS, LANE_COLUMNS

LEDGER = MigrationSet("gpuwatch")
READINGS = MigrationSet("gpuwatch-readings")


@LEDGER(name="001")
def _ledger_001(db: Executes) -> None:
    _create(
        db,
        # Times are monotonic times of a boot; each interval has an offset to wall time, for display.
        """CREATE TABLE clocks (
            boot_id TEXT NOT NULL, begin_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, wall_offset_ns INTEGER NOT NULL,
            PRIMARY KEY (boot_id, begin_ns)) STRICT""",
        """CREATE TABLE devices (
            id INTEGER PRIMARY KEY, boot_id TEXT NOT NULL, since_ns INTEGER NOT NULL, since_wall_s REAL NOT NULL,
            uuid TEXT NOT NULL, name TEXT NOT NULL) STRICT""",
        "CREATE INDEX devices_uuid ON devices (uuid, since_wall_s)",
        """CREATE TABLE refresh (
            uuid TEXT NOT NULL, signal TEXT NOT NULL, refresh_ns INTEGER NOT NULL, PRIMARY KEY (uuid, signal)) STRICT""",
        """CREATE TABLE runs (
            id TEXT PRIMARY KEY, label TEXT, claim TEXT NOT NULL, status TEXT NOT NULL, badness INTEGER NOT NULL,
            why TEXT NOT NULL, begun_wall_s REAL NOT NULL, boot_id TEXT NOT NULL, begin_ns INTEGER NOT NULL,
            end_ns INTEGER, pid INTEGER NOT NULL, uid INTEGER NOT NULL, user TEXT, process TEXT, parent TEXT,
            source TEXT NOT NULL, simulated INTEGER NOT NULL, policy TEXT NOT NULL, uuids TEXT NOT NULL,
            pids TEXT NOT NULL, told TEXT NOT NULL, host TEXT) STRICT""",
        "CREATE INDEX runs_time ON runs (begun_wall_s)",
        "CREATE INDEX runs_worst ON runs (badness, begun_wall_s)",
        "CREATE INDEX runs_label ON runs (label, begun_wall_s)",
        "CREATE INDEX runs_status ON runs (status, begun_wall_s)",
        """CREATE TABLE verdicts (
            run TEXT NOT NULL REFERENCES runs(id), position INTEGER NOT NULL, uuid TEXT, status TEXT NOT NULL,
            verdict BLOB NOT NULL, PRIMARY KEY (run, position)) STRICT""",
        """CREATE TABLE findings (
            run TEXT NOT NULL REFERENCES runs(id), uuid TEXT, position INTEGER NOT NULL, rule TEXT NOT NULL,
            severity TEXT, accepted INTEGER NOT NULL, says TEXT NOT NULL, remedy TEXT NOT NULL, effect_ratio REAL,
            begin_ns INTEGER, end_ns INTEGER, facts TEXT NOT NULL) STRICT""",
        "CREATE INDEX findings_run ON findings (run)",
        "CREATE INDEX findings_rule ON findings (rule)",
        """CREATE TABLE evidence (
            run TEXT NOT NULL REFERENCES runs(id), uuid TEXT NOT NULL, capsule BLOB NOT NULL,
            PRIMARY KEY (run, uuid)) STRICT""",
        """CREATE TABLE timings (
            run TEXT PRIMARY KEY REFERENCES runs(id), count INTEGER NOT NULL, at_ns BLOB NOT NULL, took_s BLOB NOT NULL)
            STRICT""",
        """CREATE TABLE events (
            id INTEGER PRIMARY KEY, uuid TEXT NOT NULL, boot_id TEXT NOT NULL, at_ns INTEGER NOT NULL,
            at_wall_s REAL NOT NULL, kind TEXT NOT NULL, value INTEGER, text TEXT) STRICT""",
        "CREATE INDEX events_time ON events (uuid, boot_id, at_ns)",
    )


@LEDGER(name="002")
def _ledger_002(db: Executes) -> None:
    _add_columns(db, "timings", {"sm_clock_mhz": "BLOB", "calls_count": "INTEGER"})


@LEDGER(name="003")
def _ledger_003(db: Executes) -> None:
    _create(
        db,
        # The public key (32 bytes) and the signature (64) under the verdict at this position.
        """CREATE TABLE signatures (
            run TEXT NOT NULL REFERENCES runs(id), position INTEGER NOT NULL, signature BLOB NOT NULL,
            PRIMARY KEY (run, position)) STRICT""",
    )


@LEDGER(name="004")
def _ledger_004(db: Executes) -> None:
    _create(
        db,
        # Other work and pauses: int64 start and end times, and one byte per span, an index into a JSON list of words.
        """CREATE TABLE spans (
            run TEXT NOT NULL REFERENCES runs(id), what TEXT NOT NULL, count INTEGER NOT NULL, begin_ns BLOB NOT NULL,
            end_ns BLOB NOT NULL, named BLOB NOT NULL, names TEXT NOT NULL, PRIMARY KEY (run, what)) STRICT""",
    )
    _add_columns(db, "runs", {"program": "TEXT"})


@LEDGER(name="005")
def _ledger_005(db: Executes) -> None:
    _create(
        db,
        # Records are separate for each user: one user's windows cannot change another user's record.
        """CREATE TABLE work_records (
            id INTEGER PRIMARY KEY, uid INTEGER NOT NULL, source TEXT NOT NULL, work TEXT NOT NULL, latest TEXT NOT NULL,
            UNIQUE (uid, source, work)) STRICT""",
        """CREATE TABLE recorded_windows (
            record INTEGER NOT NULL REFERENCES work_records(id), run TEXT NOT NULL, numbers TEXT NOT NULL,
            PRIMARY KEY (record, run)) STRICT, WITHOUT ROWID""",
    )


@LEDGER(name="006")
def _ledger_006(db: Executes) -> None:
    _add_columns(db, "runs", {"tags": "TEXT"})


@READINGS(name="001")
def _readings_001(db: Executes) -> None:
    # Time and GPU form the key, so queries of an interval need no index.  Rows inserted in order of time fill their pages.
    key = """id INTEGER PRIMARY KEY, at_ns INTEGER GENERATED ALWAYS AS (id >> 6) VIRTUAL,
            gpu INTEGER GENERATED ALWAYS AS (id & 63) VIRTUAL"""
    # Later columns are in a new table at once: each ALTER TABLE makes SQLite parse the whole schema again.
    lanes = (f"CREATE TABLE {lane.value} ({key}, {_lane_columns(lane)}) STRICT" for lane in (Lane.FAST, Lane.SLOW, Lane.EDGE))
    _create(
        db,
        """CREATE TABLE segment (
            id INTEGER PRIMARY KEY CHECK (id = 1), boot_id TEXT NOT NULL, begin_ns INTEGER NOT NULL,
            wall_offset_ns INTEGER NOT NULL, source TEXT NOT NULL) STRICT""",
        "CREATE TABLE gpus (gpu INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE) STRICT",
        *lanes,
        """CREATE TABLE processes (
            process INTEGER PRIMARY KEY, pid INTEGER NOT NULL, started_s REAL, name TEXT, user TEXT,
            graphics INTEGER NOT NULL, listed INTEGER NOT NULL) STRICT""",
        f"""CREATE TABLE census (
            {key}, stood_ms INTEGER NOT NULL, took_us INTEGER NOT NULL, visibility TEXT NOT NULL, present TEXT NOT NULL)
            STRICT""",
        f"CREATE TABLE power ({key}, count INTEGER NOT NULL, samples BLOB NOT NULL) STRICT",
        """CREATE TABLE gaps (
            begin_ns INTEGER NOT NULL, gpu INTEGER NOT NULL, lane TEXT NOT NULL, end_ns INTEGER,
            PRIMARY KEY (begin_ns, gpu, lane)) STRICT, WITHOUT ROWID""",
    )


@READINGS(name="002")
def _readings_002(db: Executes) -> None:
    _create(
        db,
        f"""CREATE TABLE pulse (
            id INTEGER PRIMARY KEY, at_ns INTEGER GENERATED ALWAYS AS (id >> 6) VIRTUAL,
            gpu INTEGER GENERATED ALWAYS AS (id & 63) VIRTUAL, {_lane_columns(Lane.PULSE)}) STRICT""",
    )


def _lane_columns(lane: Lane) -> str:
    return ", ".join(("stood_ms INTEGER NOT NULL", *(f'"{column.name}" {column.kind}' for column in LANE_COLUMNS[lane])))


def prepare_ledger(db: Database, path: Path) -> None:
    """Bring ``gpuwatch.db`` up to this version, with its columns, views and indexes."""
    migrate.bring_up(db, path, LEDGER)
    with db.atomic():
        _add_columns(db, "devices", DEVICE_COLUMNS)
        _put_views(db, _LEDGER_VIEWS)
        # `gpuwatch top` looks up the windows that began before a past moment; without this index, SQLite would scan all windows.
        db.execute("CREATE INDEX IF NOT EXISTS runs_moment ON runs (boot_id, begin_ns)")
        # The judge needs the windows that overlap another window; this index finds such windows without a scan.
        db.execute("CREATE INDEX IF NOT EXISTS runs_span ON runs (boot_id, end_ns, begin_ns)")


def prepare_readings(db: Database, path: Path) -> None:
    """Bring a segment up to this version, with its columns and views."""
    migrate.bring_up(db, path, READINGS)
    with db.atomic():
        for lane, columns in LANE_COLUMNS.items():
            _add_columns(db, lane.value, {column.name: column.kind for column in columns})
        _put_views(db, _readings_views())


def refuse_newer(db: Database, path: Path, migrations: MigrationSet = LEDGER) -> None:
    """Raise StoreError for a file of a later version, and leave the file unchanged."""
    if migrate.is_newer(db, migrations):
        newest = max(migrate.applied(db, migrations))
        raise StoreError(
            f"{path}: expected schema {max(migrations.steps)} or older, found {newest};"
            " use a newer gpuwatch, or another folder with --state"
        )


def _put_views(db: Database, views: Mapping[str, str]) -> None:
    there = dict(db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'view'"))
    for name, sql in views.items():
        wanted = f'CREATE VIEW "{name}" AS {sql}'
        if there.get(name) != wanted:
            db.execute(f'DROP VIEW IF EXISTS "{name}"')
            db.execute(wanted)


def _create(db: Executes, *statements: str) -> None:
    for statement in statements:
        db.execute(statement)


def _add_columns(db: Executes, table: str, wanted: Mapping[str, str]) -> None:
    """Add nullable columns for fields unknown to older versions, without a rewrite of the rows; old rows read as not observed."""
    there = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    for name, kind in wanted.items():
        if name not in there:
            db.execute(f'ALTER TABLE {table} ADD COLUMN "{name}" {kind}')


_TIME = "strftime('%Y-%m-%d %H:%M:%f', {}, 'unixepoch')"
_GPU_NAMES = """(SELECT group_concat(name, ', ') FROM (
        SELECT DISTINCT devices.name FROM json_each(runs.uuids) JOIN devices ON devices.uuid = json_each.value))"""

_LEDGER_VIEWS = {
    "windows": f"""
    SELECT {_TIME.format("runs.begun_wall_s")} AS begun_utc,
        round((runs.end_ns - runs.begin_ns) / 1e9, 3) AS length_s,
        runs.status, runs.label, {_GPU_NAMES} AS gpu,
        (SELECT group_concat(rule, ', ') FROM (
            SELECT DISTINCT rule FROM findings WHERE findings.run = runs.id AND NOT accepted ORDER BY position)) AS hazards,
        runs.claim, runs.process, runs.user, runs.why, runs.simulated, runs.id
    FROM runs ORDER BY runs.begun_wall_s DESC""",
    "hazards": f"""
    SELECT {_TIME.format("runs.begun_wall_s")} AS begun_utc, runs.label, findings.rule, findings.severity,
        findings.says, findings.remedy, findings.effect_ratio, findings.accepted,
        (SELECT devices.name FROM devices WHERE devices.uuid = findings.uuid ORDER BY since_wall_s DESC LIMIT 1) AS gpu,
        findings.uuid, runs.status, runs.id AS run
    FROM findings JOIN runs ON runs.id = findings.run ORDER BY runs.begun_wall_s DESC, findings.position""",
    "gpus": f"""
    SELECT {_TIME.format("since_wall_s")} AS since_utc, uuid, name, driver_version, pci_bus_id, power_limit_w, sm_clock_max_mhz
    FROM devices ORDER BY since_wall_s DESC""",
}  # fmt: skip


def _readings_views() -> dict[str, str]:
    at = _TIME.format("(at_ns + (SELECT wall_offset_ns FROM segment)) / 1e9")

    def rows(lane: Lane) -> str:
        signals = ", ".join(f'{column.sql} AS "{column.signal}"' for column in LANE_COLUMNS[lane])
        return f"""SELECT {at} AS at_utc, stood_ms / 1e3 AS stood_s, gpus.uuid, {signals}, at_ns
            FROM {lane.value} JOIN gpus USING (gpu) ORDER BY at_ns"""

    return {
        "readings_view": rows(Lane.FAST),
        "pulse_readings_view": rows(Lane.PULSE),
        "slow_readings_view": rows(Lane.SLOW),
        "edge_readings_view": rows(Lane.EDGE),
        "processes_view": f"""SELECT {at} AS at_utc, stood_ms / 1e3 AS stood_s, gpus.uuid, pid, name, user,
            json_extract(seat.value, '$[1]') AS memory_bytes, json_extract(seat.value, '$[2]') AS utilization_ratio,
            listed, graphics, visibility, at_ns
            FROM census JOIN gpus USING (gpu) JOIN json_each(census.present) AS seat
            JOIN processes ON processes.process = json_extract(seat.value, '$[0]') ORDER BY at_ns""",
        "gaps_view": f"""SELECT {at.replace("at_ns", "begin_ns")} AS begin_utc,
            (end_ns - begin_ns) / 1e9 AS length_s, gpus.uuid, lane, begin_ns, end_ns FROM gaps JOIN gpus USING (gpu)
            ORDER BY begin_ns""",
    }
