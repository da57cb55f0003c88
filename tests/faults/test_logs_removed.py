"""Tests of a running writer whose write-ahead log, or its index, is removed or replaced."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from gpuwatch.clock import VirtualClock
from gpuwatch.store import Reader, Store
from tests.faults import stores
from tests.faults.test_removed import daemon_of
from tests.gpuwatch.store.stored import a_run, feed, opened
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, DEVICE, UUID, stream
from tests.waiting import PATIENCE_S, wait_until

S = 1_000_000_000


def written(folder: Path) -> Store:
    """Return a store with one window, a device and two seconds of readings; most rows are only in the logs."""
    store = opened(folder, clock=VirtualClock(BEGIN_NS))
    store.put_device(DEVICE)
    store.put_run(a_run(id="aaaa0001"))
    feed(store, stream(2.0, loaded=True))
    return store


def damage(folder: Path, suffixes: tuple[str, ...], how: str) -> None:
    """Remove, move or replace these files of both databases."""
    for database in ("gpuwatch.db", next(folder.glob("readings-*.db")).name):
        for suffix in suffixes:
            path = folder / f"{database}{suffix}"
            assert path.exists(), path
            if how == "removed":
                path.unlink()
            elif how == "moved":
                path.rename(folder / f"elsewhere-{path.name}")
            else:
                copy = folder / f"copy-{path.name}"
                shutil.copy(path, copy)
                copy.replace(path)


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
@pytest.mark.parametrize("suffixes", [("-wal",), ("-shm",), ("-wal", "-shm")], ids=["wal", "shm", "both"])
def test_lost_log_loses_no_committed_row(tmp_path: Path, suffixes: tuple[str, ...], how: str) -> None:
    store = written(tmp_path)
    damage(tmp_path, suffixes, how)
    store.put_run(a_run(id="aaaa0002"))
    feed(store, stream(2.0, loaded=True, begin_ns=BEGIN_NS + 2 * S))
    with Reader(tmp_path) as reader:
        assert {run.id for run in reader.runs()} == {"aaaa0001", "aaaa0002"}
        assert reader.device(UUID) == DEVICE
        trace = reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 4 * S)
    assert len(trace.column("power_w")) > 70
    assert not trace.gaps
    assert (tmp_path / "gpuwatch.db-wal").exists()
    assert store.statistics()["dropped_count"] == 0
    store.close()
    stores.check_files(tmp_path)
    with Reader(tmp_path) as reader:
        assert len(reader.runs()) == 2


def test_lost_log_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = written(tmp_path)
    (tmp_path / "gpuwatch.db-wal").unlink()
    for number in range(3):
        store.put_run(a_run(id=f"bbbb000{number}"))
        assert store.flush(PATIENCE_S)
    said = [record.getMessage() for record in caplog.records]
    assert [line for line in said if "removed" in line] == [
        f"{tmp_path}/gpuwatch.db: the write-ahead log (-wal, -shm) was removed or replaced; saved its rows, began a new log"
    ]
    store.close()


def test_store_survives_an_older_log_in_place_of_its_own(tmp_path: Path) -> None:
    """An older log in place of the current one would overwrite saved rows; all windows stay readable."""
    store = written(tmp_path)
    old = tmp_path / "old"
    shutil.copy(tmp_path / "gpuwatch.db-wal", old)
    for number in range(40):
        store.put_run(a_run(id=f"cccc{number:04d}"), {UUID: bytes(30_000)})
    assert store.flush(PATIENCE_S)
    old.replace(tmp_path / "gpuwatch.db-wal")
    store.put_run(a_run(id="dddd0000"))
    assert store.flush(PATIENCE_S)
    store.close()
    stores.check_files(tmp_path)
    with Reader(tmp_path) as reader:
        assert len(reader.runs()) == 42


def test_lost_log_held_by_a_reader_is_saved_afterwards(tmp_path: Path) -> None:
    """A log deleted under a reader stays in use until the reader leaves; no window is lost."""
    store = written(tmp_path)
    holder = sqlite3.connect(f"file:{tmp_path}/gpuwatch.db?mode=ro", uri=True, isolation_level=None)
    holder.execute("BEGIN")
    assert holder.execute("SELECT count(*) FROM runs").fetchone()[0] == 1
    store.put_run(a_run(id="aaaa0002"))
    assert store.flush(PATIENCE_S)
    (tmp_path / "gpuwatch.db-wal").unlink()
    store.put_run(a_run(id="aaaa0003"))
    assert store.flush(PATIENCE_S)
    assert store.statistics()["refused"] is None
    holder.close()
    store.put_run(a_run(id="aaaa0004"))
    assert store.flush(PATIENCE_S)
    with Reader(tmp_path) as reader:
        assert len(reader.runs()) == 4
    store.close()
    stores.check_files(tmp_path)


def test_daemon_notices_lost_logs(tmp_path: Path) -> None:
    with daemon_of(tmp_path) as (settings, path):
        (segment,) = settings.state.glob("readings-*.db")
        logs = [Path(f"{each}-wal") for each in (settings.state / "gpuwatch.db", segment)]
        for log in logs:
            log.unlink()
        wait_until(lambda: path.read_text().count("was removed or replaced") == 2)
        assert path.read_text().count("ERROR") == 0
    stores.check_files(settings.state)
