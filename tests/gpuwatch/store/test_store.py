"""Tests of the writer: alone, bounded, and unharmed by crashes, damage and a full disk."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from annotate.evidence import Event, Lane, Process
from gpuwatch import clock as clocks
from gpuwatch.clock import VirtualClock
from gpuwatch.errors import StoreError
from gpuwatch.interfaces import Sweep
from gpuwatch.store import Reader, Store, files
from gpuwatch.store.row_writer import BAD_COUNT
from gpuwatch.store.writer import QUEUE_COUNT
from tests.faults.stores import committed_ns, last_ns
from tests.gpuwatch.store.stored import NEVER, WALL_OFFSET_NS, a_run, feed, opened, verdict
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, DEVICE, UUID, fast, listing, stream
from tests.waiting import PATIENCE_S, let_pass, wait_until

S = 1_000_000_000


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("readings-*.db"))


def rows_count(path: Path, table: str = "fast") -> int:
    connection = sqlite3.connect(path)
    try:
        count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return count
    finally:
        connection.close()


def noisy(count: int, begin_ns: int = BEGIN_NS) -> list[object]:
    return [fast(begin_ns + i * 50_000_000, sm_clock_mhz=1000 + i % 900, energy=None) for i in range(count)]


def fill(store: Store, clock: VirtualClock, seconds: float) -> None:
    """Store readings of this duration without pulses, for tests of the stored amount."""
    feed(store, stream(seconds, loaded=True, pulses=False), clock=clock, flush_ns=10 * S)


class TestOneWriter:
    def test_second_writer_is_refused_with_the_firsts_pid(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        with pytest.raises(StoreError, match=f"pid {os.getpid()} writing it"):
            opened(tmp_path)
        store.close()
        opened(tmp_path).close()

    def test_folder_that_cannot_be_created_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StoreError, match="folder that can be written"):
            opened(tmp_path / "file" / "state")

    def test_store_of_a_user_is_private(self, tmp_path: Path) -> None:
        store = opened(tmp_path / "state")
        feed(store, stream(2.0, loaded=True))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state").iterdir()}
        assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
        assert any(name.endswith("-wal") for name in modes)
        assert set(modes.values()) == {0o600}
        store.close()

    def test_store_of_the_system_daemon_is_readable(self, tmp_path: Path) -> None:
        store = opened(tmp_path / "state", mode=0o644)
        assert stat.S_IMODE((tmp_path / "state").stat().st_mode) & 0o055 == 0o055
        assert {stat.S_IMODE(path.stat().st_mode) for path in segments(tmp_path / "state")} == {0o644}
        store.close()


class TestTaking:
    def test_take_drops_and_counts_beyond_a_full_queue(self, tmp_path: Path) -> None:
        gate = threading.Event()
        gate.set()

        def wall_offset_ns() -> int:  # the writer's thread calls this at the end of each commit
            gate.wait(PATIENCE_S)
            return WALL_OFFSET_NS

        store = opened(tmp_path, wall_offset_ns=wall_offset_ns)
        assert store.flush(PATIENCE_S)
        gate.clear()
        store.put_run(a_run())
        wait_until(lambda: not store.statistics()["queued_count"], what="the writer took the run from the queue")
        sweep = fast(BEGIN_NS, power_w=1.0)
        for _ in range(QUEUE_COUNT + 7):
            store.take(sweep)
        assert store.statistics()["dropped_count"] == 7
        assert not store.flush(0.01)
        gate.set()
        assert store.flush(PATIENCE_S)
        store.close()

    def test_store_commits_without_a_flush(self, tmp_path: Path) -> None:
        store = Store(tmp_path, source="synthetic", boot_id=BOOT)
        store.take(fast(clocks.now_ns(), power_w=75.0))
        wait_until(lambda: store.statistics()["rows_count"], what="a row is committed")
        assert rows_count(segments(tmp_path)[0]) == 1
        store.close()

    def test_sweeps_of_many_threads_are_all_stored(self, tmp_path: Path) -> None:
        store = opened(tmp_path)

        def taking(gpu: int) -> None:
            for i in range(500):
                store.take(fast(BEGIN_NS + i * 50_000_000, uuid=f"GPU-{gpu}", sm_clock_mhz=i))

        threads = [threading.Thread(target=taking, args=(gpu,)) for gpu in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.flush(PATIENCE_S)
        assert rows_count(segments(tmp_path)[0]) == 4000
        store.close()

    def test_unwritable_fact_costs_only_its_own_run(self, tmp_path: Path) -> None:
        """A fact that cannot be written drops only its own run."""
        store = opened(tmp_path)
        store.put_run(a_run(id="bad00000", declared={"odd": object()}))
        store.put_run(a_run(id="good0000"))
        assert store.flush()
        assert store.statistics()["dropped_count"] == 1
        with Reader(tmp_path) as reader:
            assert [run.id for run in reader.runs()] == ["good0000"]
        store.close()

    def test_bad_rows_do_not_lose_good_rows(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """A name that is not UTF-8 and a number beyond 64 bits lose only their own rows of a commit."""
        store = opened(tmp_path)
        for sweep in stream(2.0, loaded=True):
            store.take(sweep)
        store.take(fast(BEGIN_NS + 2 * S, event_reasons_mask=1 << 64))
        store.take(listing(BEGIN_NS + 2 * S, Process(pid=7, name="entrainements_\udcc3")))
        for sweep in stream(2.0, loaded=True, begin_ns=BEGIN_NS + 2 * S + S // 10):
            store.take(sweep)
        assert store.flush(PATIENCE_S)
        assert store.statistics()["dropped_count"] == 2
        assert store.statistics()["refused"] is None
        with Reader(tmp_path) as reader:
            trace = reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 5 * S)
        at_ns = trace.column("power_w").at_ns
        assert (at_ns[0] - BEGIN_NS) / S < 0.1
        assert (at_ns[-1] - BEGIN_NS) / S > 4.0
        assert max(at_ns[1:] - at_ns[:-1]) / S < 0.2
        assert {process.name for process_list in trace.process_lists for process in process_list.processes} == {"python"}
        assert [(gap.begin_ns, gap.end_ns) for gap in trace.gaps] == [(BEGIN_NS + 2 * S, BEGIN_NS + 2 * S)]
        logged = [record.getMessage() for record in caplog.records if "not stored" in record.getMessage()]
        assert len(logged) == 2, logged
        store.close()

    def test_bad_rows_are_logged_once_and_always_counted(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        store = opened(tmp_path)
        for i in range(20):
            store.take(fast(BEGIN_NS + i * S, event_reasons_mask=1 << 64))
            assert store.flush(PATIENCE_S)
        assert store.statistics()["dropped_count"] >= 20
        assert len([record for record in caplog.records if "not stored" in record.getMessage()]) == 1
        store.close()

    def test_commit_of_bad_rows_becomes_a_gap(self, tmp_path: Path) -> None:
        """A commit of very many bad rows ends, and becomes a gap."""
        store = opened(tmp_path)
        for i in range(4 * BAD_COUNT):
            store.take(fast(BEGIN_NS + i * S // 10, event_reasons_mask=(1 << 64) + i % 2))
        assert store.flush(PATIENCE_S)
        assert store.statistics()["dropped_count"] == 4 * BAD_COUNT
        with Reader(tmp_path) as reader:
            gaps = reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 1000 * S).gaps
        assert (gaps[0].begin_ns, gaps[-1].end_ns) == (BEGIN_NS, BEGIN_NS + (4 * BAD_COUNT - 1) * S // 10)
        store.close()

    def test_unstorable_gpu_name_does_not_lose_other_gpus(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        store.take(fast(BEGIN_NS, uuid="GPU-\udcff", sm_clock_mhz=1))
        store.take(fast(BEGIN_NS, sm_clock_mhz=1))
        assert store.flush()
        with Reader(tmp_path) as reader:
            assert len(reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + S).column("sm_clock_mhz")) == 1
        store.close()

    def test_store_keeps_events_while_its_folder_is_gone(self, tmp_path: Path) -> None:
        """The store holds an event while its folder cannot be created, and stores the event afterwards."""
        state = tmp_path / "state"
        store = opened(state)
        shutil.rmtree(state)
        state.write_text("a file stands in the folder's place")
        event = Event(uuid=UUID, at_ns=BEGIN_NS, kind="xid", value=79, text="fell off the bus")
        store.take(Sweep(UUID, Lane.EVENTS, BEGIN_NS, 0, 0, event))
        assert not store.flush(PATIENCE_S)
        state.unlink()
        assert store.flush(PATIENCE_S)
        with Reader(state) as reader:
            assert reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS).events == (event,)
        store.close()


class TestRetention:
    def test_segments_rotate_and_the_oldest_are_dropped(self, tmp_path: Path) -> None:
        """Segments rotate, and the oldest are dropped because of the budget; reading across segments shows no gap."""
        clock = VirtualClock(BEGIN_NS)
        store = opened(tmp_path, clock=clock, budget_bytes=800_000, segment_bytes=1)
        fill(store, clock, 1200.0)  # 1.3 MB
        statistics = store.statistics()
        assert 2 < len(segments(tmp_path)) < 8
        assert statistics["dropped_segments_count"] > 0
        assert statistics["bytes"] < 1_150_000
        with Reader(tmp_path) as reader:
            across = reader.trace(UUID, BOOT, BEGIN_NS + 1000 * S, BEGIN_NS + 1200 * S)
            gone = reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 10 * S)
        assert not gone.columns
        assert (across.column("sm_clock_mhz").at_ns[1:] - across.column("sm_clock_mhz").at_ns[:-1]).max() < 200_000_000
        assert across.gaps == ()
        store.close()

    def test_many_windows_leave_half_the_budget_to_readings(self, tmp_path: Path) -> None:
        """Readings keep about half of the budget, even if windows alone exceed the budget."""
        clock = VirtualClock(BEGIN_NS)
        store = opened(tmp_path, clock=clock, budget_bytes=1_400_000, segment_bytes=1)
        for i in range(300):
            store.put_run(a_run(id=f"run{i:05d}", declared={"note": "x" * 6000}))
        assert store.flush(PATIENCE_S)
        fill(store, clock, 1200.0)  # 1.3 MB
        statistics = store.statistics()
        assert statistics["ledger_bytes"] > 1_400_000
        assert 400_000 < statistics["readings_bytes"] < 1_100_000
        store.close()

    def test_old_segments_are_dropped(self, tmp_path: Path) -> None:
        clock = VirtualClock(BEGIN_NS)
        wall = {"s": clocks.wall_s()}
        store = opened(tmp_path, clock=clock, segment_bytes=1, wall_offset_ns=lambda: int(wall["s"] * 1e9) - BEGIN_NS)
        fill(store, clock, 500.0)
        count = len(segments(tmp_path))
        assert count > 1
        store.set_budget(2 << 30, 3600.0)
        wall["s"] += 7200
        clock.wait_until(clock.now_ns() + 61 * S, NEVER)
        store.flush()
        assert len(segments(tmp_path)) == 1
        store.close()

    def test_smaller_budget_makes_segments_smaller(self, tmp_path: Path) -> None:
        """A smaller budget ends the live segment, which retention never drops, at a smaller size."""
        clock = VirtualClock(BEGIN_NS)
        store = opened(tmp_path, clock=clock)
        fill(store, clock, 300.0)
        assert len(segments(tmp_path)) == 1
        store.set_budget(1_000_000, 3600.0)
        fill(store, clock, 300.0)
        assert len(segments(tmp_path)) > 1
        store.close()

    def test_closed_segments_are_plain_files(self, tmp_path: Path) -> None:
        clock = VirtualClock(BEGIN_NS)
        store = opened(tmp_path, clock=clock, segment_bytes=1)
        fill(store, clock, 350.0)
        *closed, live = segments(tmp_path)
        assert closed
        assert not any(files.needs_settling(path) for path in closed)
        assert files.needs_settling(live)
        store.close()
        assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", *[".db"] * (len(closed) + 2)]

    def test_packed_evidence_is_bounded_and_runs_stay(self, tmp_path: Path) -> None:
        store = opened(tmp_path, budget_bytes=400_000)
        for i in range(10):
            store.put_run(a_run(id=f"run{i:05d}"), {UUID: bytes([i]) * 50_000})
        assert store.flush(PATIENCE_S)
        store.close()
        ledger = tmp_path / "gpuwatch.db"
        assert (rows_count(ledger, "runs"), rows_count(ledger, "evidence")) == (10, 4)


class TestStarting:
    def test_restart_resumes_the_segment_and_records_a_gap(self, tmp_path: Path) -> None:
        """A restart resumes the same segment and records the time without a writer as a gap."""
        store = opened(tmp_path)
        feed(store, stream(2.0, loaded=True))
        store.close()
        clock = VirtualClock(BEGIN_NS + 10 * S)
        store = opened(tmp_path, clock=clock)
        feed(store, stream(2.0, loaded=True, begin_ns=BEGIN_NS + 10 * S))
        assert len(segments(tmp_path)) == 1
        with Reader(tmp_path) as reader:
            trace = reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 20 * S)
        assert len(trace.column("power_w")) > 30
        (gap,) = trace.gaps
        assert (gap.begin_ns - BEGIN_NS) / S == pytest.approx(1.95, abs=0.01)
        assert gap.end_ns == BEGIN_NS + 10 * S
        store.close()

    def test_gpu_lost_at_daemon_death_is_a_gap_until_restart(self, tmp_path: Path) -> None:
        """The open gap of a GPU lost at the daemon's death ends at the next start."""
        store = opened(tmp_path)
        feed(store, [fast(BEGIN_NS)])
        execute(store, f"INSERT INTO gaps VALUES ({BEGIN_NS}, 0, 'fast', NULL)")
        store.close()
        opened(tmp_path, clock=VirtualClock(BEGIN_NS + 9 * S)).close()
        with Reader(tmp_path) as reader:
            (gap,) = reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 60 * S).gaps
        assert (gap.begin_ns, gap.end_ns) == (BEGIN_NS, BEGIN_NS + 9 * S)

    def test_another_boot_begins_a_segment(self, tmp_path: Path) -> None:
        opened(tmp_path).close()
        store = opened(tmp_path, boot_id="another", clock=VirtualClock(5 * S))
        assert len(segments(tmp_path)) == 2
        store.close()

    def test_segment_names_sort_by_time_despite_clock_steps(self, tmp_path: Path) -> None:
        for boot in range(12):
            opened(tmp_path, boot_id=f"boot {boot}", wall_offset_ns=lambda boot=boot: WALL_OFFSET_NS - boot * 3600 * S).close()
        boots = []
        for path in segments(tmp_path):
            connection = sqlite3.connect(path)
            boots.append(connection.execute("SELECT boot_id FROM segment").fetchone()[0])
            connection.close()
        assert boots == [f"boot {boot}" for boot in range(12)]

    def test_windows_of_a_dead_daemon_end_unproven(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        feed(store, stream(6.0, loaded=True))
        store.put_run(a_run(id="open0001", status="open", end_ns=None, begin_ns=BEGIN_NS + 2 * S))
        store.put_run(a_run(id="judging1", status="judging"))
        store.put_run(a_run(id="judged01", status="flagged"))
        store.close()
        opened(tmp_path).close()
        with Reader(tmp_path) as reader:
            left, closed, judged = reader.run("open0001"), reader.run("judging1"), reader.run("judged01")
        assert (left.status, closed.status, judged.status) == ("unproven", "unproven", "flagged")
        assert left.end_ns is not None
        assert BEGIN_NS + 5 * S < left.end_ns < BEGIN_NS + 6 * S
        assert left.declared["abandoned"] is True
        assert "the daemon ended while the window was open" in left.why
        assert "abandoned" not in closed.declared
        assert "audit --rejudge" in closed.why

    def test_newer_store_is_refused_unchanged(self, tmp_path: Path) -> None:
        opened(tmp_path).close()
        path = tmp_path / "gpuwatch.db"
        connection = sqlite3.connect(path)
        connection.execute("INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('gpuwatch', '999', '')")
        connection.commit()
        connection.close()
        before = path.read_bytes()
        with pytest.raises(StoreError, match="found 999; use a newer gpuwatch"):
            opened(tmp_path)
        with pytest.raises(StoreError, match="found 999; use a newer gpuwatch"):
            Reader(tmp_path)
        assert path.read_bytes() == before
        assert {other.name for other in tmp_path.iterdir()} == {"gpuwatch.db", "lock", segments(tmp_path)[0].name}

    def test_newer_segment_is_kept_and_another_begun(self, tmp_path: Path) -> None:
        opened(tmp_path).close()
        (path,) = segments(tmp_path)
        connection = sqlite3.connect(path)
        connection.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('gpuwatch-readings', '999', '')"
        )
        connection.commit()
        connection.close()
        store = opened(tmp_path)
        assert len(segments(tmp_path)) == 2
        store.close()


class TestDamage:
    @pytest.mark.parametrize("damage", ["garbage", "torn", "overwritten"])
    @pytest.mark.parametrize("which", ["gpuwatch.db", "readings-*.db"])
    def test_damaged_file_is_set_aside_and_replaced(self, tmp_path: Path, which: str, damage: str) -> None:
        store = opened(tmp_path)
        feed(store, stream(60.0, loaded=True))
        for i in range(30):
            store.put_run(a_run(id=f"run{i:05d}", verdicts=(verdict(),)), {UUID: os.urandom(5000)})
        store.close()
        (path,) = tmp_path.glob(which)
        data = path.read_bytes()
        if damage == "garbage":
            path.write_bytes(os.urandom(5000))
        elif damage == "torn":
            path.write_bytes(data[: len(data) // 2 - 100])
        else:
            path.write_bytes(data[:4096] + os.urandom(len(data) - 4096))
        store = opened(tmp_path)
        feed(store, stream(2.0, loaded=True, begin_ns=BEGIN_NS + 100 * S))
        store.put_run(a_run())
        assert store.flush()
        assert store.statistics()["set_aside_count"] == 1
        assert len(list(tmp_path.glob(f"{which}.corrupt-*"))) == 1
        with Reader(tmp_path) as reader:
            assert reader.run(a_run().id).label == "gemm"
            assert reader.trace(UUID, BOOT, BEGIN_NS + 100 * S, BEGIN_NS + 102 * S).observes("power_w")
        store.close()

    def test_segment_damaged_during_writing_is_replaced(self, tmp_path: Path) -> None:
        store = with_torn_segment(tmp_path)
        for i in range(5):
            for sweep in stream(2.0, loaded=True, begin_ns=BEGIN_NS + (40 + 3 * i) * S):
                store.take(sweep)
            store.flush(5.0)
        assert store.statistics()["set_aside_count"] == 1
        with Reader(tmp_path) as reader:
            assert reader.trace(UUID, BOOT, BEGIN_NS + 52 * S, BEGIN_NS + 54 * S).observes("power_w")
        store.close()

    def test_broken_segment_is_replaced_once_a_file_can_be_opened(self, tmp_path: Path) -> None:
        """A segment that breaks while no file can be opened is replaced; writing then continues."""
        store = with_torn_segment(tmp_path)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            for i in range(3):
                for sweep in stream(2.0, loaded=True, begin_ns=BEGIN_NS + (40 + 3 * i) * S):
                    store.take(sweep)
                store.flush(1.0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert store.statistics()["set_aside_count"] == 1
        for i in range(3):
            for sweep in stream(2.0, loaded=True, begin_ns=BEGIN_NS + (50 + 3 * i) * S):
                store.take(sweep)
            stored = store.flush(PATIENCE_S)
        assert stored
        with Reader(tmp_path) as reader:
            assert reader.trace(UUID, BOOT, BEGIN_NS + 56 * S, BEGIN_NS + 58 * S).observes("power_w")
        store.close()

    def test_empty_ledger_file_is_initialised(self, tmp_path: Path) -> None:
        tmp_path.joinpath("gpuwatch.db").write_bytes(b"")
        store = opened(tmp_path)
        assert store.statistics()["set_aside_count"] == 0
        store.close()


class TestFullDisk:
    def test_full_disk_stops_readings_until_there_is_room(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        feed(store, stream(5.0, loaded=True))
        limit(store, 1)
        for sweep in stream(60.0, loaded=True, begin_ns=BEGIN_NS + 10 * S):
            store.take(sweep)
        assert not store.flush(5.0)
        assert store.statistics()["disk_full"]
        assert store.statistics()["dropped_count"] > 0
        with Reader(tmp_path) as reader:
            assert reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 5 * S).observes("power_w")
        limit(store, 1 << 30)
        feed(store, stream(2.0, loaded=True, begin_ns=BEGIN_NS + 100 * S))
        assert not store.statistics()["disk_full"]
        store.close()

    def test_full_disk_drops_the_oldest_segments(self, tmp_path: Path) -> None:
        clock = VirtualClock(BEGIN_NS)
        store = opened(tmp_path, clock=clock, segment_bytes=1)
        fill(store, clock, 500.0)
        count = len(segments(tmp_path))
        assert count > 1
        limit(store, 1)
        for sweep in stream(60.0, loaded=True, begin_ns=BEGIN_NS + 1000 * S):
            store.take(sweep)
        store.flush(10.0)
        assert store.statistics()["dropped_segments_count"] >= count - 1
        store.close()

    def test_runs_wait_for_room_on_a_full_disk(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        store.flush()
        database = store.folder.ledger.database
        database.execute("PRAGMA max_page_count=1")
        store.put_run(a_run(), {UUID: os.urandom(100_000)})
        assert not store.flush()
        with Reader(tmp_path) as reader:
            assert reader.runs() == []
        database.execute("PRAGMA max_page_count=1000000")
        assert store.flush()
        with Reader(tmp_path) as reader:
            assert reader.runs() == [a_run(begun_wall_s=reader.runs()[0].begun_wall_s)]
        store.close()

    def test_store_survives_a_real_full_disk(self, tmp_path: Path) -> None:
        mount = ["mount", "-t", "tmpfs", "-o", "size=1050k", "gpuwatch-test", str(tmp_path)]
        mounted = subprocess.run(mount, capture_output=True, check=False)
        if mounted.returncode:
            pytest.skip(f"mounting a small tmpfs needs root: {mounted.stderr.decode().strip()}")
        try:
            clock = VirtualClock(BEGIN_NS)
            store = opened(tmp_path, clock=clock, segment_bytes=1)
            for minute in range(20):  # 1.3 MB
                for sweep in stream(60.0, loaded=True, begin_ns=BEGIN_NS + minute * 60 * S, pulses=False):
                    store.take(sweep)
                clock.wait_until(BEGIN_NS + (minute + 1) * 60 * S, NEVER)
                store.flush(20.0)
            statistics = store.statistics()
            assert statistics["dropped_segments_count"] > 0
            assert not statistics["disk_full"]
            with Reader(tmp_path) as reader:
                assert reader.trace(UUID, BOOT, BEGIN_NS + 1190 * S, BEGIN_NS + 1200 * S).observes("power_w")
            store.close()
            assert all(integrity(path) == "ok" for path in tmp_path.glob("*.db"))
        finally:
            subprocess.run(["umount", str(tmp_path)], check=True)


def limit(store: Store, pages_count: int) -> None:
    """Limit the live segment to this number of pages, but not below its present size, as on a full disk."""
    execute(store, f"PRAGMA max_page_count={pages_count}")


def with_torn_segment(folder: Path) -> Store:
    """Return a store whose live segment is overwritten after its first page."""
    store = opened(folder)
    feed(store, stream(30.0, loaded=True))
    execute(store, "PRAGMA wal_checkpoint(TRUNCATE)")
    with segments(folder)[0].open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(200_000))
    execute(store, "PRAGMA shrink_memory")
    return store


def execute(store: Store, sql: str) -> None:
    """Execute a statement on the live segment's connection, while the writer's thread waits."""
    store.flush(5.0)
    store.folder.segments.live.database.execute(sql)


def integrity(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        connection.close()


WRITER = """
import sys, time
from pathlib import Path
from gpuwatch.clock import now_ns
from gpuwatch.store import Store
from tests.gpuwatch.store.stored import a_run
from tests.gpuwatch.store.streams import fast
store = Store(Path(sys.argv[1]), source="synthetic", boot_id="boot")
store.put_run(a_run(id=f"run{now_ns():020d}", status="open", end_ns=None, boot_id="boot", begin_ns=now_ns()))
store.flush()
i = 0
while True:
    i += 1
    at_ns = now_ns()
    store.take(fast(at_ns, sm_clock_mhz=i % 1000))
    print(at_ns, flush=True)
    time.sleep(0.002)
"""


@pytest.mark.parametrize("most_lost_ns", [None, pytest.param(S, marks=pytest.mark.slow)], ids=["whole", "a second"])
def test_store_survives_kill_9_and_loses_a_second_at_most(tmp_path: Path, most_lost_ns: int | None) -> None:
    """After SIGKILL the last committed reading is still stored; the slow case loses less than 1 s of readings."""
    for after_s in (0.2, 0.9, 1.33):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        first_ns = int(writer.stdout.readline())
        let_pass(after_s, "the writer is killed at this time")
        before_ns = committed_ns(tmp_path).get(UUID, 0)
        writer.send_signal(signal.SIGKILL)
        printed_ns = int([line for line in writer.stdout.read().split("\n") if len(line) == len(str(first_ns))][-1])
        writer.wait()
        with Reader(tmp_path) as reader:  # while the dead writer's log still exists
            trace = reader.trace(UUID, "boot", first_ns, printed_ns + S)
        assert last_ns(tmp_path).get(UUID, 0) >= before_ns
        if after_s > 1 and most_lost_ns is not None:
            assert trace.observes("sm_clock_mhz")
            assert printed_ns - trace.column("sm_clock_mhz").at_ns[-1] < most_lost_ns
    assert all(integrity(path) == "ok" for path in tmp_path.glob("*.db"))
    Store(tmp_path, source="synthetic", boot_id="boot").close()
    with Reader(tmp_path) as reader:
        runs = reader.runs()
    assert len(runs) == 3
    assert {run.status for run in runs} == {"unproven"}
    assert not list(tmp_path.glob("*.corrupt-*"))


class TestNetworkFileSystem:
    MOUNTS = (
        "22 1 8:1 / / rw - ext4 /dev/sda rw\n"
        "30 22 0:50 / /home/a\\040b rw - nfs4 server:/x rw\n"
        "31 22 0:51 / /home rw - xfs /dev/sdb rw\n"
    )

    @pytest.mark.parametrize(
        ("path", "kind"), [("/home/a b/c", "nfs4"), ("/home/a b", "nfs4"), ("/home/other", "xfs"), ("/homely", "ext4")]
    )
    def test_file_system_is_that_of_the_longest_mount_point(self, tmp_path: Path, path: str, kind: str) -> None:
        mountinfo = tmp_path / "mountinfo"
        mountinfo.write_text(self.MOUNTS)
        assert files.file_system(Path(path), mountinfo=mountinfo) == kind

    def test_file_system_is_unknown_without_mounts(self, tmp_path: Path) -> None:
        assert files.file_system(tmp_path, mountinfo=tmp_path / "absent") is None

    def test_store_works_without_a_write_ahead_log(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "NETWORK_TYPES", frozenset({files.file_system(tmp_path)}))
        store = opened(tmp_path)
        feed(store, stream(5.0, loaded=True))
        store.put_run(a_run())
        assert store.flush()
        assert store.statistics()["journal"] == "delete"
        assert not list(tmp_path.glob("*-wal"))
        with Reader(tmp_path) as reader:
            assert reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 5 * S).observes("power_w")
        store.close()


def test_reader_delays_a_segments_plain_file(tmp_path: Path) -> None:
    """A reader that holds a segment open delays its conversion to a plain file, but does not prevent it."""
    clock = VirtualClock(BEGIN_NS)
    store = opened(tmp_path, clock=clock, segment_bytes=1)
    held = sqlite3.connect(segments(tmp_path)[0])
    held.execute("BEGIN")
    held.execute("SELECT count(*) FROM fast").fetchone()
    fill(store, clock, 900.0)
    assert len(segments(tmp_path)) > 1
    held.close()
    clock.wait_until(clock.now_ns() + 61 * S, NEVER)
    store.flush()
    assert not files.needs_settling(segments(tmp_path)[0])
    store.close()


def test_store_closes_twice_next_to_another_store(tmp_path: Path) -> None:
    """A second close, and a second store in another folder, disturb nothing."""
    one, two = opened(tmp_path / "one"), opened(tmp_path / "two")
    one.put_device(DEVICE)
    one.close()
    one.close()
    two.put_device(replace(DEVICE, name="another"))
    two.close()
    with Reader(tmp_path / "one") as first, Reader(tmp_path / "two") as second:
        assert (first.device(UUID).name, second.device(UUID).name) == ("NVIDIA H200", "another")


def test_step_of_the_wall_clock_begins_a_new_interval(tmp_path: Path) -> None:
    clock = VirtualClock(BEGIN_NS)
    offset = {"ns": WALL_OFFSET_NS}
    store = opened(tmp_path, clock=clock, wall_offset_ns=lambda: offset["ns"])
    store.flush()
    clock.wait_until(BEGIN_NS + 100 * S, NEVER)
    store.flush()
    offset["ns"] += 3600 * S
    clock.wait_until(BEGIN_NS + 101 * S, NEVER)
    store.flush()
    with Reader(tmp_path) as reader:
        wall_s = (WALL_OFFSET_NS + BEGIN_NS) / 1e9
        assert reader.to_monotonic(wall_s + 50)[1] == pytest.approx(BEGIN_NS + 50 * S, abs=1000)
        assert reader.to_monotonic(wall_s + 3600 + 102)[1] == pytest.approx(BEGIN_NS + 102 * S, abs=1000)
        assert reader.to_monotonic(wall_s - 1e6)[0] == BOOT
    store.close()
