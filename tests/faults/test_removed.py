"""Tests of files removed, broken, locked or replaced under a running daemon or store."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gpuwatch
from annotate.verdict import Status
from gpuwatch.client.connection import connect
from gpuwatch.clock import VirtualClock
from gpuwatch.config.settings import Settings, load
from gpuwatch.daemon.daemon import REACHABLE_S
from gpuwatch.errors import DaemonError
from gpuwatch.store import Reader, Store
from tests.busy_machine import BUSY_MACHINE
from tests.faults import stores
from tests.gpuwatch.forked import ForkedPopen
from tests.gpuwatch.live import running, wait_for
from tests.gpuwatch.store.stored import a_run, feed, opened
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, DEVICE, UUID, fast, stream
from tests.waiting import PATIENCE_S, let_pass, sample_for, wait_until

S = 1_000_000_000


def answers(settings: Settings) -> bool:
    try:
        connect(settings, start=False).close()
    except DaemonError:
        return False
    return True


@contextlib.contextmanager
def daemon_of(folder: Path) -> Iterator[tuple[Settings, Path]]:
    """Run a daemon whose socket has its own folder, as under XDG_RUNTIME_DIR; yield its settings and log."""
    places = {"source": "simulated:steady-copy", "state": str(folder / "state"), "socket": str(folder / "run" / "s")}
    found, log = load(places, environment={"HOME": "/"}), folder / "log"
    with log.open("ab") as file:
        process = ForkedPopen([sys.executable, "-m", "gpuwatch", *found.flags(), "daemon"], stderr=file)
    try:
        wait_for(found, process, log)
        yield found, log
    finally:
        process.terminate()
        process.wait()


def test_daemon_restores_its_removed_socket_and_store(tmp_path: Path) -> None:
    """A daemon whose socket and store were removed listens again, and stores later readings."""
    with daemon_of(tmp_path) as (settings, path):
        # This test is about dark time, which the policy of a busy machine would accept.
        with gpuwatch.window("open meanwhile", settings=settings) as w:
            sample_for(1.0)
            shutil.rmtree(settings.socket.parent)
            shutil.rmtree(settings.state)
            wait_until(lambda: answers(settings), what="the daemon is found again")
            wait_until((settings.state / "gpuwatch.db").exists, what="the store exists again")
            sample_for(0.6)
        # Earlier readings are lost, and the verdict reports the loss.
        assert w.verdict.finding("dark-time").answered != "clear", w.verdict
        assert w.verdict.status is not Status.VALID, w.verdict
        with gpuwatch.window("afterwards", settings=settings, policy=BUSY_MACHINE) as w:
            sample_for(0.6)
        assert w.verdict.findings
        assert settings.socket.parent.stat().st_mode & 0o777 == 0o700
        with Reader(settings.state) as reader:
            assert {run.label for run in reader.runs()} == {"open meanwhile", "afterwards"}
            assert reader.devices()[0].name == "SIMULATED NVIDIA H200"
        log = path.read_text()
        assert "the socket was removed; listening there again" in log
        assert "files of the store were removed while the daemon was running; created new ones" in log
        assert log.count("ERROR") == 1
    assert not settings.socket.exists()
    stores.check_files(settings.state)


def test_daemon_keeps_another_socket_in_place_of_its_own(tmp_path: Path) -> None:
    with running(tmp_path) as live:
        live.settings.socket.unlink()
        other = socket.socket(socket.AF_UNIX)
        other.bind(str(live.settings.socket))
        wait_until(
            lambda: "expected this daemon's socket, found another one" in live.log.read_text(), what="the other socket is named"
        )
        let_pass(REACHABLE_S + 0.5, "the daemon checks its socket again")
        assert live.log.read_text().count("found another one") == 1
    assert live.settings.socket.exists()
    other.close()


class TestTheStoreAlone:
    def test_store_marks_a_lost_row_as_a_gap(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        feed(store, stream(2.0, loaded=True))
        lost = [*stream(0.5, loaded=True, begin_ns=BEGIN_NS + 2 * S), fast(BEGIN_NS + 25 * S // 10, sm_clock_mhz=1 << 70)]
        for sweep in lost:
            store.take(sweep)
        assert store.flush(PATIENCE_S)
        feed(store, stream(2.0, loaded=True, begin_ns=BEGIN_NS + 26 * S // 10))
        with Reader(tmp_path) as reader:
            (gap,) = reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 5 * S).gaps
        assert (gap.begin_ns, gap.end_ns) == (BEGIN_NS + 25 * S // 10, BEGIN_NS + 25 * S // 10)
        assert store.statistics()["dropped_count"] == 1
        store.close()

    def test_removed_segment_loses_only_its_readings(self, tmp_path: Path) -> None:
        store = opened(tmp_path, clock=VirtualClock(BEGIN_NS))
        feed(store, stream(5.0, loaded=True))
        (live,) = tmp_path.glob("readings-*.db")
        live.unlink()
        feed(store, stream(5.0, loaded=True, begin_ns=BEGIN_NS + 10 * S))
        with Reader(tmp_path) as reader:
            assert not reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 5 * S).columns
            assert reader.trace(UUID, BOOT, BEGIN_NS + 10 * S, BEGIN_NS + 15 * S).observes("power_w")
        store.close()

    def test_devices_and_refresh_periods_are_stored_again(self, tmp_path: Path) -> None:
        store = opened(tmp_path / "state", clock=VirtualClock(BEGIN_NS))
        store.put_device(DEVICE)
        store.put_refresh(UUID, {"power_w": 100_000_000})
        assert store.flush()
        shutil.rmtree(tmp_path / "state")
        feed(store, stream(2.0, loaded=True))
        with Reader(tmp_path / "state") as reader:
            assert reader.device(UUID) == DEVICE
            assert reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 2 * S).refresh_ns == {"power_w": 100_000_000}
        store.close()

    def test_store_leaves_its_folder_to_another_writer(self, tmp_path: Path) -> None:
        store = opened(tmp_path / "state")
        shutil.rmtree(tmp_path / "state")
        other = opened(tmp_path / "state")
        other.put_run(a_run())
        store.put_run(a_run(id="ffffffffff"))
        assert not store.flush(PATIENCE_S)
        assert "expected a store without a writer" in store.statistics()["refused"]
        assert other.flush(PATIENCE_S)
        other.close()
        assert store.flush(PATIENCE_S)  # the store continues once the other writer has closed
        store.close()
        with Reader(tmp_path / "state") as reader:
            assert {run.id for run in reader.runs()} == {a_run().id, "ffffffffff"}


class TestBrokenWhileWritten:
    def test_broken_ledger_is_replaced(self, tmp_path: Path) -> None:
        """The writer replaces a ledger that breaks, and stores the rows that the old ledger refused."""
        store = opened(tmp_path)
        store.put_device(DEVICE)
        for i in range(200):
            store.put_run(a_run(id=f"{i:010d}"), {UUID: bytes(3000)})
        assert store.flush(PATIENCE_S)
        database = store.folder.ledger.database
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with (tmp_path / "gpuwatch.db").open("r+b") as file:
            file.seek(4096)
            file.write(os.urandom(500_000))
        database.execute("PRAGMA shrink_memory")
        for _ in range(3):
            store.put_run(a_run())
            store.flush(PATIENCE_S)
        assert store.flush(PATIENCE_S)
        assert store.statistics()["set_aside_count"] == 1
        with Reader(tmp_path) as reader:
            assert [run.id for run in reader.runs()] == [a_run().id]
            assert reader.device(UUID) == DEVICE
        store.close()
        assert len(list(tmp_path.glob("gpuwatch.db.corrupt-*"))) == 1


class TestHeldByAnother:
    """Tests of a database that another connection has locked for writing: new rows wait."""

    def test_readings_wait_for_a_locked_segment(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        feed(store, stream(2.0, loaded=True))
        (live,) = tmp_path.glob("readings-*.db")
        later = list(stream(2.0, loaded=True, begin_ns=BEGIN_NS + 2 * S))
        self.held(store, live, lambda: list(map(store.take, later)))
        assert store.statistics()["dropped_count"] == 0
        assert store.statistics()["refused"] is None
        with Reader(tmp_path) as reader:
            assert len(reader.trace(UUID, BOOT, BEGIN_NS + 2 * S, BEGIN_NS + 4 * S).column("power_w")) > 10
        store.close()

    def test_windows_wait_for_a_locked_ledger(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        assert store.flush()
        self.held(store, tmp_path / "gpuwatch.db", lambda: store.put_run(a_run()))
        with Reader(tmp_path) as reader:
            assert reader.run(a_run().id).label == "gemm"
        store.close()

    def held(self, store: Store, path: Path, meanwhile: Callable[[], object]) -> None:
        """Write while a database is locked, check that nothing is stored, and unlock the database."""
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        meanwhile()
        assert not store.flush(8.0)
        assert "locked" in store.statistics()["refused"]
        holder.execute("ROLLBACK")
        holder.close()
        assert store.flush(PATIENCE_S)
