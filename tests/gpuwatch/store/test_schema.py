"""Tests of migrations."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlite_utils import Database

from annotate.evidence import Lane, Timings
from gpuwatch.store import Reader, migrate, schema
from gpuwatch.store.database import Database as PlainDatabase
from gpuwatch.store.signal_columns import LANE_COLUMNS
from tests.examples import share_of
from tests.gpuwatch import forked
from tests.gpuwatch.store.stored import a_run, feed, opened, verdict
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, DEVICE, UUID, stream

# One pair of files per released version, written with ``python -m tests.gpuwatch.store.test_schema``.
FIXTURES = Path(__file__).parent / "schemas"
RELEASED = sorted(FIXTURES.glob("ledger-*.sql"))
S = 1_000_000_000


@pytest.fixture(autouse=True)
def forked_migrations() -> Iterator[None]:
    with forked.daemons_of_windows():
        yield


def restored(folder: Path, released: Path) -> None:
    version = released.stem.removeprefix("ledger-")
    for name, target in ((f"ledger-{version}.sql", "gpuwatch.db"), (f"readings-{version}.sql", "readings-20231114T223000.db")):
        connection = sqlite3.connect(folder / target)
        connection.executescript((FIXTURES / name).read_text())
        connection.close()


@pytest.mark.parametrize("released", RELEASED, ids=lambda path: path.stem)
def test_released_store_is_read_migrated_and_written(released: Path, tmp_path: Path) -> None:
    """A store of each released version is read before and after a writer's migration."""
    restored(tmp_path, released)
    at_ns, took_s = BEGIN_NS + S // 10 * np.arange(3), np.array([0.1, 0.1, 0.3])
    with Reader(tmp_path) as reader:  # before a writer migrates the store
        assert reader.run("0ca7").label == "gemm"
        signed = {} if released.stem < "ledger-003" else {0: bytes(96)}
        assert reader.signatures(reader.run("0ca7")) == signed
        assert reader.packed(reader.run("0ca7"), UUID) == b"evidence"
    connection = sqlite3.connect(tmp_path / "gpuwatch.db")
    row = ("0ca7f00d01", 3, at_ns.astype("<i8").tobytes(), took_s.tobytes())
    connection.execute("INSERT INTO timings (run, count, at_ns, took_s) VALUES (?, ?, ?, ?)", row)
    connection.execute("DELETE FROM evidence")  # so that the reader assembles the evidence from readings
    connection.commit()
    connection.close()
    check_old_times(tmp_path, Timings(at_ns, took_s))
    store = opened(tmp_path)
    feed(store, stream(2.0, loaded=True, begin_ns=BEGIN_NS + 20 * S))
    store.put_run(a_run(id="after001"))
    store.put_timings("after001", Timings(at_ns, took_s, np.array([1500.0, np.nan, 1980.0]), 7))
    assert store.flush()
    assert store.statistics()["set_aside_count"] == 0
    store.close()
    check_old_times(tmp_path, Timings(at_ns, took_s))
    with Reader(tmp_path) as reader:
        assert {run.id for run in reader.runs()} == {"0ca7f00d01", "after001"}
        assert reader.run("0ca7").verdicts == (verdict(),)
        assert reader.device(UUID) == DEVICE
        assert reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 2 * S).observes("power_w")
        assert reader.trace(UUID, BOOT, BEGIN_NS + 20 * S, BEGIN_NS + 22 * S).observes("power_w")
        after = reader.evidence(reader.run("after001"), UUID).timings
    assert after is not None
    assert after.calls_count == 7
    assert after.sm_clock_mhz is not None
    np.testing.assert_array_equal(after.sm_clock_mhz, [1500.0, np.nan, 1980.0])
    assert len(list(tmp_path.glob("readings-*.db"))) == 1


def check_old_times(folder: Path, stored: Timings) -> None:
    """Check that the released version's times are read, without clocks and with one call per time."""
    with Reader(folder) as reader:
        timings = reader.evidence(reader.run("0ca7"), UUID).timings
    assert timings is not None
    assert (timings.at_ns == stored.at_ns).all()
    assert (timings.took_s == stored.took_s).all()
    assert timings.sm_clock_mhz is None
    assert timings.calls_count == 1


def test_newest_schema_has_a_fixture() -> None:
    newest = max(schema.LEDGER.steps)
    assert [path.stem for path in RELEASED][-1] == f"ledger-{newest}"


def test_newest_fixture_has_the_schema_of_a_new_store(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    restored(tmp_path / "old", RELEASED[-1])
    opened(tmp_path / "old").close()
    opened(tmp_path / "new").close()
    for name in ("gpuwatch.db", "readings-*.db"):
        old, new = (Database(next((tmp_path / which).glob(name))) for which in ("old", "new"))
        assert {table.name: table.columns_dict for table in old.tables} == {
            table.name: table.columns_dict for table in new.tables
        }
        assert {view.name for view in old.views} == {view.name for view in new.views}


ROW = st.tuples(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.none(), st.floats(allow_nan=False)),
    st.binary(max_size=20),
)


@settings(max_examples=share_of(20))
@given(st.lists(ROW, max_size=20))
def test_failed_migration_leaves_the_file_unchanged(rows: list[tuple[Any, ...]]) -> None:
    """A migration that fails changes nothing, and a repeated migration keeps all rows."""
    steps = migrate.MigrationSet("artificial")

    @steps(name="000")
    def _000(db: migrate.Executes) -> None:
        db.execute("CREATE TABLE things (label TEXT, count INTEGER, power_w REAL, packed BLOB) STRICT")

    db = Database(memory=True)
    migrate.for_sqlite_utils(steps).apply(db)
    with db.atomic():
        db.conn.executemany("INSERT INTO things VALUES (?, ?, ?, ?)", rows)

    fails = True

    @steps(name="001")
    def _001(db: migrate.Executes) -> None:
        db.execute("ALTER TABLE things ADD COLUMN doubled REAL")
        db.execute("UPDATE things SET doubled = power_w * 2")
        if fails:
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        migrate.for_sqlite_utils(steps).apply(db)
    assert "doubled" not in db["things"].columns_dict
    assert not migrate.is_newer(PlainDatabase(db.conn), steps)
    fails = False
    migrate.for_sqlite_utils(steps).apply(db)
    migrate.for_sqlite_utils(steps).apply(db)
    kept = list(db.execute("SELECT label, count, power_w, packed FROM things ORDER BY rowid"))
    assert kept == rows
    assert db.execute("SELECT count(*) FROM things WHERE doubled IS NOT power_w * 2").fetchone() == (0,)
    older = migrate.MigrationSet("artificial")
    older(name="000")(_000)
    assert migrate.is_newer(PlainDatabase(db.conn), older)


@pytest.mark.parametrize("migrations", [schema.LEDGER, schema.READINGS], ids=lambda each: each.name)
def test_new_file_equals_one_made_by_sqlite_utils(migrations: migrate.MigrationSet, tmp_path: Path) -> None:
    """A new file holds the schema and the record of migrations that sqlite-utils makes."""
    by_library, plain = Database(memory=True), PlainDatabase(sqlite3.connect(":memory:"))
    migrate.for_sqlite_utils(migrations).apply(by_library)
    migrate.bring_up(plain, tmp_path / "new.db", migrations)
    for sql in (
        "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name",
        "SELECT id, migration_set, name FROM _sqlite_migrations",
    ):
        assert plain.execute(sql).fetchall() == by_library.execute(sql).fetchall()


def test_new_file_with_a_failed_migration_is_empty(tmp_path: Path) -> None:
    steps = migrate.MigrationSet("artificial")

    @steps(name="000")
    def _000(db: migrate.Executes) -> None:
        db.execute("CREATE TABLE things (label TEXT) STRICT")

    @steps(name="001")
    def _001(db: migrate.Executes) -> None:
        db.execute("ALTER TABLE missing ADD COLUMN label TEXT")

    db = PlainDatabase(sqlite3.connect(":memory:"))
    with pytest.raises(sqlite3.OperationalError, match="no such table: missing"):
        migrate.bring_up(db, tmp_path / "new.db", steps)
    assert db.table_names() == []


def test_migration_in_a_child_raises_sqlites_error(tmp_path: Path) -> None:
    """SQLite's error in the migrating process is raised here, with its code."""
    path = tmp_path / "gpuwatch.db"
    path.write_bytes(b"no database at all, and long enough to be looked at" * 10)
    with pytest.raises(sqlite3.OperationalError) as refused:
        migrate.in_child(path, schema.LEDGER.name)
    assert refused.value.sqlite_errorcode == sqlite3.SQLITE_NOTADB


def test_new_signal_becomes_a_column_unobserved_in_old_rows(tmp_path: Path) -> None:
    store = opened(tmp_path)
    feed(store, stream(2.0, loaded=True))
    store.close()
    path = next(tmp_path.glob("readings-*.db"))
    db = Database(path)
    for view in db.view_names():
        db[view].drop()
    db.execute("ALTER TABLE fast DROP COLUMN power_mw")
    db.close()
    with Reader(tmp_path) as reader:
        old = reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 2 * S)
    assert old.observes("sm_clock_mhz")
    assert not old.observes("power_w")
    store = opened(tmp_path)
    feed(store, stream(2.0, loaded=True, begin_ns=BEGIN_NS + 10 * S))
    store.close()
    with Reader(tmp_path) as reader:
        power = reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 12 * S).column("power_w")
        assert power.at_ns[~np.isnan(power.values)].min() >= BEGIN_NS + 10 * S
        assert len(list(tmp_path.glob("readings-*.db"))) == 1
    assert {column.name for column in LANE_COLUMNS[Lane.FAST]} <= set(Database(path)["fast"].columns_dict)


def write_fixtures(folder: Path) -> None:
    """Write the newest schema as SQL text, with rows in most tables."""
    store = opened(folder)
    store.put_device(DEVICE)
    store.put_refresh(UUID, {"power_w": 100_000_000})
    feed(store, stream(2.0, loaded=True))
    store.put_run(a_run(begun_wall_s=1.7e9, verdicts=(verdict(),)), {UUID: b"evidence"}, [bytes(96)])
    store.close()
    newest = max(schema.LEDGER.steps)
    FIXTURES.mkdir(exist_ok=True)
    for path in folder.glob("*.db"):
        kind = "ledger" if path.name == "gpuwatch.db" else "readings"
        connection = sqlite3.connect(path)
        (FIXTURES / f"{kind}-{newest}.sql").write_text("\n".join(connection.iterdump()) + "\n")
        connection.close()


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as made_in:
        write_fixtures(Path(made_in))
