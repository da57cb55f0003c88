"""Tests of a store's segments."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import TypeAlias

import pytest

from gpuwatch import clock as clocks
from gpuwatch.clock import VirtualClock
from gpuwatch.store import Reader, Store, files
from tests.gpuwatch.store.stored import NEVER, a_run, feed, opened, rows_count, segments
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, UUID, stream
from tests.waiting import PATIENCE_S

S = 1_000_000_000
Fill: TypeAlias = Callable[[Store, VirtualClock, float], None]


@pytest.fixture(scope="module")
def fill() -> Fill:
    """Return a function that stores the first ``seconds`` of one series of readings without pulses, made once per module."""
    sweeps = tuple(stream(1200.0, loaded=True, pulses=False))

    def stored(store: Store, clock: VirtualClock, seconds: float) -> None:
        first = takewhile(lambda sweep: sweep.due_ns < BEGIN_NS + seconds * S, sweeps)
        feed(store, first, clock=clock, flush_ns=10 * S)

    return stored


class TestRetention:
    def test_segments_rotate_and_the_oldest_are_dropped(self, tmp_path: Path, fill: Fill) -> None:
        """Segments rotate, and the oldest are dropped because of the budget; reading across segments shows no gap."""
        clock = VirtualClock(BEGIN_NS)
        store = opened(tmp_path, clock=clock, budget_bytes=800_000, segment_bytes=1)
        fill(store, clock, 1200.0)  # 1 MB
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

    def test_many_windows_leave_half_the_budget_to_readings(self, tmp_path: Path, fill: Fill) -> None:
        """Readings keep 0.4 to 1.1 MB of a budget of 1.4 MB, even if windows alone exceed the budget."""
        clock = VirtualClock(BEGIN_NS)
        store = opened(tmp_path, clock=clock, budget_bytes=1_400_000, segment_bytes=1)
        for i in range(300):
            store.put_run(a_run(id=f"run{i:05d}", declared={"note": "x" * 6000}))
        assert store.flush(PATIENCE_S)
        fill(store, clock, 1200.0)  # 1 MB
        statistics = store.statistics()
        assert statistics["ledger_bytes"] > 1_400_000
        assert 400_000 < statistics["readings_bytes"] < 1_100_000
        store.close()

    def test_old_segments_are_dropped(self, tmp_path: Path, fill: Fill) -> None:
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

    def test_smaller_budget_makes_segments_smaller(self, tmp_path: Path, fill: Fill) -> None:
        """A smaller budget ends the live segment, which retention never drops, at a smaller size."""
        clock = VirtualClock(BEGIN_NS)
        store = opened(tmp_path, clock=clock)
        fill(store, clock, 300.0)
        assert len(segments(tmp_path)) == 1
        store.set_budget(1_000_000, 3600.0)
        fill(store, clock, 300.0)
        assert len(segments(tmp_path)) > 1
        store.close()

    def test_closed_segments_are_plain_files(self, tmp_path: Path, fill: Fill) -> None:
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


def test_reader_delays_a_segments_plain_file(tmp_path: Path, fill: Fill) -> None:
    """A reader that holds a segment open only delays the segment's conversion to a plain file."""
    clock = VirtualClock(BEGIN_NS)
    store = opened(tmp_path, clock=clock, segment_bytes=1)
    held = sqlite3.connect(segments(tmp_path)[0])
    held.execute("BEGIN")
    held.execute("SELECT count(*) FROM fast").fetchone()
    fill(store, clock, 900.0)
    assert len(segments(tmp_path)) > 1
    assert files.needs_settling(segments(tmp_path)[0])
    held.close()
    clock.wait_until(clock.now_ns() + 61 * S, NEVER)
    store.flush()
    assert not files.needs_settling(segments(tmp_path)[0])
    store.close()
