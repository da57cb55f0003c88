"""Tests of the store with damaged files, a full disk and a killed writer."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.clock import VirtualClock
from gpuwatch.store import Reader, Store
from tests.faults.stores import committed_ns, last_ns
from tests.gpuwatch.forked import ForkedPopen
from tests.gpuwatch.store.stored import NEVER, a_run, execute, feed, integrity, opened, segments, verdict
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, UUID, stream
from tests.waiting import PATIENCE_S, let_pass

S = 1_000_000_000


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
        feed(store, stream(500.0, loaded=True, pulses=False), clock=clock, flush_ns=10 * S)
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
        writer = ForkedPopen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
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
