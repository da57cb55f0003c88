"""Tests of a store's start: after a stop, another boot, an interrupted window or a newer gpuwatch."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from pathlib import Path

import pytest

from gpuwatch.clock import VirtualClock
from gpuwatch.errors import StoreError
from gpuwatch.store import Reader, files
from gpuwatch.wire.store_owner import LOCK
from tests.gpuwatch.store.stored import WALL_OFFSET_NS, a_run, execute, feed, opened, segments
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, UUID, fast, stream

S = 1_000_000_000


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


def test_lock_of_a_writer_without_its_pid_names_no_process(tmp_path: Path) -> None:
    """A writer locks the file before it writes its PID, so the file can be empty: then no process can be stopped."""
    held = os.open(tmp_path / LOCK, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="found another gpuwatch daemon writing it; try again in a second") as refused:
            files.lock(tmp_path, mode=0o600)
        assert "kill" not in str(refused.value)
        os.pwrite(held, b"4242\n", 0)
        with pytest.raises(StoreError, match="daemon of pid 4242 writing it; stop it with: kill 4242"):
            files.lock(tmp_path, mode=0o600)
    finally:
        os.close(held)
