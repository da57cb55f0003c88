"""The tables: what the permanent database and the segments hold, and how older ones become this version's.

A new signal in ``Reading`` is a new nullable column of the next segment; everything else is a numbered migration here.
"""

from __future__ import annotations

from dataclasses import fields

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from annotate.evidence import Device
from gpuwatch.store.columns import TABLES, key_sql, stored_name

VERSION = 1  # PRAGMA user_version of both kinds of file; the number of the last migration below

migrations = Migrations("gpuwatch")

_SQL_TYPES = {"str": "TEXT", "int": "INTEGER", "float": "REAL", "bool": "INTEGER"}
_DEVICE_COLUMNS = ",\n  ".join(
    f"{field.name} {_SQL_TYPES[str(field.type).split(' ')[0]]}" for field in fields(Device) if field.name != "uuid"
)


@migrations()
def m001_initial(db: Database) -> None:
    """The first released schema."""
    db.executescript(f"""
CREATE TABLE clocks (  -- what turns monotonic times of a boot into wall time, for people
  boot_id TEXT NOT NULL, monotonic_ns INTEGER NOT NULL, wall_ns INTEGER NOT NULL
) STRICT;
CREATE TABLE devices (  -- a row whenever anything about a GPU changed
  uuid TEXT NOT NULL, boot_id TEXT NOT NULL, at_ns INTEGER NOT NULL,
  {_DEVICE_COLUMNS}
) STRICT;
CREATE TABLE refresh (  -- how often each signal changes on each GPU, as measured last
  uuid TEXT NOT NULL, signal TEXT NOT NULL, refresh_ns INTEGER NOT NULL, PRIMARY KEY (uuid, signal)
) STRICT;
CREATE TABLE runs (
  id TEXT PRIMARY KEY, label TEXT, claim TEXT NOT NULL, policy TEXT NOT NULL, boot_id TEXT NOT NULL,
  begin_ns INTEGER NOT NULL, end_ns INTEGER, begun_wall_s REAL NOT NULL, pid INTEGER NOT NULL, uid INTEGER NOT NULL,
  user TEXT, process TEXT, uuids TEXT NOT NULL, pids TEXT NOT NULL, told TEXT NOT NULL, host TEXT NOT NULL,
  status TEXT NOT NULL, why TEXT NOT NULL, parent TEXT, source TEXT NOT NULL, simulated INTEGER NOT NULL,
  verdicts TEXT NOT NULL
) STRICT;
CREATE INDEX runs_by_time ON runs (begun_wall_s);
CREATE TABLE findings (  -- the hazards found, one a row; the whole verdicts are in runs
  run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE, uuid TEXT, rule TEXT NOT NULL, severity TEXT NOT NULL,
  says TEXT NOT NULL, remedy TEXT NOT NULL, effect_ratio REAL, accepted INTEGER NOT NULL
) STRICT;
CREATE INDEX findings_by_run ON findings (run);
CREATE TABLE evidence (
  run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE, uuid TEXT NOT NULL, capsule BLOB NOT NULL, PRIMARY KEY (run, uuid)
) STRICT;
CREATE TABLE events (
  uuid TEXT NOT NULL, boot_id TEXT NOT NULL, at_ns INTEGER NOT NULL, kind TEXT NOT NULL, value INTEGER, text TEXT
) STRICT;
CREATE VIEW windows AS
  SELECT id, datetime(begun_wall_s, 'unixepoch', 'localtime') AS began, label, upper(status) AS status,
    round((end_ns - begin_ns) / 1e9, 3) AS length_s, claim,
    (SELECT group_concat(DISTINCT rule) FROM findings WHERE run = id AND NOT accepted) AS hazards,
    why, user, process, CASE simulated WHEN 1 THEN 'SIMULATED' ELSE '' END AS simulated
  FROM runs ORDER BY begun_wall_s DESC;
CREATE VIEW hazards AS
  SELECT datetime(begun_wall_s, 'unixepoch', 'localtime') AS began, label, rule, severity, says, remedy,
    round(100 * effect_ratio, 1) AS effect_percent, run, uuid
  FROM findings JOIN runs ON runs.id = findings.run ORDER BY begun_wall_s DESC;
""")


def create_segment(db: Database, boot_id: str) -> None:
    """The tables of a new segment, one a lane, keyed by time and GPU."""
    tables = "".join(
        f"CREATE TABLE {lane.value} (key INTEGER PRIMARY KEY, took_us INTEGER, "
        f"{', '.join(f'{stored_name(name)} INTEGER' for name in names)}) STRICT;\n"
        for lane, names in TABLES.items()
    )
    db.executescript(f"""
CREATE TABLE segment (boot_id TEXT NOT NULL, monotonic_ns INTEGER NOT NULL, wall_ns INTEGER NOT NULL) STRICT;
CREATE TABLE gpus (gpu INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE) STRICT;
{tables}
CREATE TABLE process_lists (id INTEGER PRIMARY KEY, processes TEXT NOT NULL) STRICT;
CREATE TABLE censuses (key INTEGER PRIMARY KEY, took_us INTEGER, list INTEGER NOT NULL, visibility TEXT NOT NULL) STRICT;
CREATE TABLE power (key INTEGER PRIMARY KEY, record BLOB NOT NULL) STRICT;
CREATE TABLE gaps (gpu INTEGER NOT NULL, lane TEXT NOT NULL, begin_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL) STRICT;
CREATE VIEW readings AS
  SELECT datetime((({key_sql()}) - monotonic_ns + wall_ns) / 1e9, 'unixepoch', 'localtime') AS at, uuid,
    sm_clock_mhz, mem_clock_mhz, power_mw / 1000.0 AS power_w, temperature_c,
    printf('0x%x', event_reasons_mask) AS event_reasons, utilization_permille / 10.0 AS utilization_percent,
    memory_used_bytes, power_cap_ns
  FROM fast JOIN gpus ON gpu = {key_sql(gpu=True)} CROSS JOIN segment ORDER BY key;
PRAGMA user_version = {VERSION};
""")
    with db.atomic():
        db.execute("INSERT INTO segment VALUES (?, 0, 0)", [boot_id])


def add_columns(db: Database) -> None:
    """Give an older segment the signals that came since; their rows stay NULL, which means not observed."""
    for lane, names in TABLES.items():
        there = set(db[lane.value].columns_dict)
        for name in map(stored_name, names):
            if name not in there:
                db.execute(f"ALTER TABLE {lane.value} ADD COLUMN {name} INTEGER")
