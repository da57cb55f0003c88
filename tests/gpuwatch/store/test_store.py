"""Tests of the store's writer."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from annotate.evidence import Event, Lane, Process
from gpuwatch import clock as clocks
from gpuwatch.clock import VirtualClock
from gpuwatch.errors import StoreError
from gpuwatch.interfaces import Sweep
from gpuwatch.store import Reader, Store
from gpuwatch.store.committer import RETRIED_COUNT
from gpuwatch.store.row_writer import BAD_COUNT
from gpuwatch.store.writer import QUEUE_COUNT
from tests.gpuwatch.store.stored import NEVER, WALL_OFFSET_NS, a_run, feed, opened, rows_count, segments
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, DEVICE, UUID, fast, listing, stream
from tests.waiting import PATIENCE_S, wait_until

S = 1_000_000_000


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
        """Very many bad rows in one commit become gaps over their whole time."""
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

    def test_folder_gone_for_long_loses_the_oldest_events(self, tmp_path: Path) -> None:
        """While the folder cannot be created, the store holds ``RETRIED_COUNT`` events, and drops and counts older ones."""
        state = tmp_path / "state"
        store = opened(state)
        shutil.rmtree(state)
        state.write_text("a file stands in the folder's place")
        for i in range(RETRIED_COUNT + 100):
            event = Event(uuid=UUID, at_ns=BEGIN_NS + i, kind="xid", value=79, text="fell off the bus")
            store.take(Sweep(UUID, Lane.EVENTS, event.at_ns, 0, 0, event))
        assert not store.flush(PATIENCE_S)
        dropped_count = store.statistics()["dropped_count"]
        state.unlink()
        assert store.flush(PATIENCE_S)
        with Reader(state) as reader:
            kept = reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + S).events
        assert 100 <= dropped_count < 200
        assert (len(kept) <= RETRIED_COUNT, kept[-1].at_ns) == (True, BEGIN_NS + RETRIED_COUNT + 99)
        store.close()


def test_store_closes_twice_next_to_another_store(tmp_path: Path) -> None:
    """A store closes twice, and stores in two folders keep their own devices."""
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
