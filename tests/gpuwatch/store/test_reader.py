"""Tests of the store's reader and views."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from gpuwatch.errors import StoreError
from gpuwatch.store import Reader, Store
from gpuwatch.store.run import DIED, UNJUDGED
from tests.gpuwatch.store.stored import a_run, feed, opened, verdict
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, DEVICE, UUID, stream

S = 1_000_000_000


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return the folder of a store with five runs, a minute apart."""
    store = opened(tmp_path)
    store.put_device(DEVICE)
    statuses = ["valid", "rejected", "flagged", "open", "unproven"]
    for i, status in enumerate(statuses):
        verdicts = (verdict(status, rules=("power-limited", "regime-change")),) if status in ("rejected", "flagged") else ()
        store.put_run(
            a_run(id=f"{i:04x}abcd", begun_wall_s=1000.0 + 60 * i, label=f"gemm-{i % 2}", status=status, verdicts=verdicts)
        )
    assert store.flush()
    store.close()
    return tmp_path


def ids(state: Path, **query: object) -> list[str]:
    with Reader(state) as reader:
        return [run.id[:4] for run in reader.runs(**query)]  # type: ignore[arg-type]  # any of its keywords


class _Overtaken(Reader):
    """A reader that stores the run's verdict after each query of runs, as a writer may during a read."""

    def __init__(self, state: Path, store: Store) -> None:
        super().__init__(state)
        self._store = store

    def _dicts(self, sql: str, values: Iterable[Any] = ()) -> list[dict[str, Any]]:
        rows = super()._dicts(sql, values)
        self._store.put_run(a_run(status="flagged", verdicts=(verdict("flagged"),)))
        assert self._store.flush()
        return rows


def test_run_is_read_with_its_verdicts_at_once(tmp_path: Path) -> None:
    """A run that is judged during a read has either no verdicts or its final status."""
    store = opened(tmp_path)
    store.put_run(a_run(status="judging"))
    assert store.flush()
    with _Overtaken(tmp_path, store) as reader:
        found = [reader.run(a_run().id) for _ in range(2)]
    store.close()
    assert [(run.status, len(run.verdicts)) for run in found] == [("judging", 0), ("flagged", 1)]


def test_runs_are_sorted_newest_first(state: Path) -> None:
    assert ids(state) == ["0004", "0003", "0002", "0001", "0000"]


def test_runs_are_filtered_by_time_label_and_status(state: Path) -> None:
    assert ids(state, since_wall_s=1060, until_wall_s=1120) == ["0002", "0001"]
    assert ids(state, label="gemm-1") == ["0003", "0001"]
    assert ids(state, status=["valid", "rejected"]) == ["0001", "0000"]
    assert ids(state, limit=2) == ["0004", "0003"]
    assert ids(state, limit=0) == []


def test_runs_worst_first_are_sorted_by_status(state: Path) -> None:
    assert ids(state, worst_first=True) == ["0001", "0002", "0004", "0000", "0003"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_runs_worst_first_keep_their_order_when_filtered(state: Path, count: int) -> None:
    with Reader(state) as reader:
        every = [(run.id[:4], run.status) for run in reader.runs(worst_first=True)]
    for some in combinations(sorted({status for _, status in every}), count):
        assert ids(state, worst_first=True, status=some) == [run_id for run_id, status in every if status in some]


@pytest.mark.parametrize(("status", "why"), [("open", DIED), ("judging", UNJUDGED)])
def test_unfinished_run_of_an_ended_daemon_says_so(tmp_path: Path, status: str, why: str) -> None:
    """Before the next daemon stores it, a reader gives the reason why a window will get no verdict."""
    store = opened(tmp_path)
    store.put_run(a_run(id="aaaa", status=status, verdicts=()))
    store.flush()
    with Reader(tmp_path) as reader:
        assert (reader.run("aaaa").status, reader.run("aaaa").why) == (status, "")
        store.close()
        assert (reader.run("aaaa").status, reader.run("aaaa").why) == (status, why)


def test_run_is_found_by_the_prefix_of_its_id(state: Path) -> None:
    with Reader(state) as reader:
        assert reader.run("0002").status == "flagged"
        assert reader.run("0002abcd").verdicts == (verdict("flagged", rules=("power-limited", "regime-change")),)
        with pytest.raises(StoreError, match=r"expected a run in .* found none"):
            reader.run("ffff")
        with pytest.raises(StoreError, match="a label or at least 4 characters of an id"):
            reader.run("000")


def test_run_refuses_an_ambiguous_id_prefix(tmp_path: Path) -> None:
    """A prefix of several ids is refused, unless the prefix equals one of the ids."""
    store = opened(tmp_path)
    for run_id in ("aaaa", "aaaab", "aaaac"):
        store.put_run(a_run(id=run_id))
    store.close()
    with Reader(tmp_path) as reader:
        assert reader.run("aaaa").id == "aaaa"
        assert reader.run("aaaab").id == "aaaab"
    store = opened(tmp_path)
    store.put_run(a_run(id="aaaabb"))
    store.put_run(a_run(id="bbbb1"))
    store.put_run(a_run(id="bbbb2"))
    store.close()
    with Reader(tmp_path) as reader:
        assert reader.run("aaaab").id == "aaaab"
        with pytest.raises(StoreError, match="expected the prefix of one id, found 2 ids: bbbb1, bbbb2"):
            reader.run("bbbb")


def test_run_put_again_replaces_its_verdicts_and_findings(tmp_path: Path) -> None:
    store = opened(tmp_path)
    run = a_run(status="judging")
    store.put_run(run)
    store.put_run(a_run(status="flagged", verdicts=(verdict("flagged"), verdict("valid", "GPU-2", rules=()))))
    store.put_run(a_run(status="rejected", verdicts=(verdict("rejected", rules=("regime-change",)),)))
    store.close()
    with Reader(tmp_path) as reader:
        (kept,) = reader.runs()
    assert (kept.status, [each["status"] for each in kept.verdicts]) == ("rejected", ["rejected"])
    assert [row["rule"] for row in Database(tmp_path / "gpuwatch.db")["findings"].rows] == ["regime-change"]


def test_stored_run_keeps_every_field(tmp_path: Path) -> None:
    store = opened(tmp_path)
    whole = a_run(parent="cafe0000", why="because", simulated=True, verdicts=(verdict(), verdict("valid", "GPU-2", rules=())))
    bare = a_run(
        id="bare0000", label=None, end_ns=None, user=None, process=None, uuids=(), pids=frozenset(), declared={}, host=None
    )
    for run in (whole, bare):
        store.put_run(run)
    store.close()
    with Reader(tmp_path) as reader:
        assert reader.run(whole.id) == whole
        assert reader.run(bare.id) == bare


class TestMissingStore:
    def test_reader_refuses_a_folder_without_a_store(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match=r"gpuwatch.db: expected a gpuwatch database, found none"):
            Reader(tmp_path)

    @pytest.mark.parametrize("data", [b"garbage" * 1000, b"SQLite format 3\0" + bytes(2000)])
    def test_reader_refuses_garbage_in_one_line(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "gpuwatch.db").write_bytes(data)
        with pytest.raises(StoreError, match="expected a") as refused:
            Reader(tmp_path)
        assert "\n" not in str(refused.value)

    def test_reader_refuses_another_database(self, tmp_path: Path) -> None:
        Database(tmp_path / "gpuwatch.db").table("dogs").insert({"name": "Cleo"})
        with pytest.raises(StoreError, match="found another database"):
            Reader(tmp_path)

    def test_unknown_gpu_and_empty_clocks_are_refused(self, tmp_path: Path) -> None:
        opened(tmp_path).close()
        with Reader(tmp_path) as reader, pytest.raises(StoreError, match="found only: none"):
            reader.device("GPU-9")
        connection = sqlite3.connect(tmp_path / "gpuwatch.db")
        connection.execute("DELETE FROM clocks")
        connection.commit()
        connection.close()
        with Reader(tmp_path) as reader, pytest.raises(StoreError, match="found an empty one"):
            reader.to_monotonic(1.0)


READ = """
import os, sys, urllib.parse
from pathlib import Path
from gpuwatch.store import Reader, Store
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, UUID
os.setgroups([]); os.setgid(65534); os.setuid(65534)  # after the imports, because the user nobody cannot always read the checkout
assert not os.access(sys.argv[1], os.W_OK)
with Reader(Path(sys.argv[1])) as reader:
    print(len(reader.runs()), reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 5 * 10**9).observes("power_w"))
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """Yield the path of a new state folder in a folder that all users can read; pytest's own folders are private."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "state"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can switch to a user without write permission")
def test_reader_needs_no_write_permission(public: Path) -> None:
    """A reader without write permission reads a store with a living writer and a closed store."""

    def read() -> str:
        ran = subprocess.run([sys.executable, "-c", READ, str(public)], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    store = opened(public, mode=0o644)
    feed(store, stream(5.0, loaded=True))
    store.put_run(a_run())
    store.flush()
    assert read() == "1 True"
    store.close()
    assert read() == "1 True"


def test_reader_sees_each_commit_of_the_writer(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with Reader(tmp_path) as reader:
        for i in range(5):
            feed(store, stream(1.0, loaded=True, begin_ns=BEGIN_NS + i * S, seed=i))
            store.put_run(a_run(id=f"run{i:05d}"))
            assert store.flush()
            assert len(reader.runs()) == i + 1
            last_ns = reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 60 * S).column("power_w").at_ns[-1]
            assert last_ns > BEGIN_NS + i * S
    store.close()


def test_segment_dropped_during_reading_is_left_out(tmp_path: Path) -> None:
    store = opened(tmp_path)
    feed(store, stream(2.0, loaded=True))
    store.close()
    with Reader(tmp_path) as reader:
        assert reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + S).columns
        next(tmp_path.glob("readings-*.db")).unlink()
        assert not reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + S).columns


def test_ledger_views_are_readable_in_sqlite_utils(state: Path) -> None:
    command = [sys.executable, "-m", "sqlite_utils", "rows", str(state / "gpuwatch.db")]
    windows = subprocess.run([*command, "windows", "--csv"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert windows[0] == "begun_utc,length_s,status,label,gpu,hazards,claim,process,user,why,simulated,id"
    assert windows[3].startswith(
        '1970-01-01 00:18:40.000,4.0,flagged,gemm-0,NVIDIA H200,"power-limited, regime-change",sustained,'
    )
    hazards = list(Database(state / "gpuwatch.db").query("SELECT * FROM hazards"))
    assert [(row["rule"], row["gpu"], row["run"]) for row in hazards][:2] == [
        ("power-limited", "NVIDIA H200", "0002abcd"),
        ("regime-change", "NVIDIA H200", "0002abcd"),
    ]
    assert [row["name"] for row in Database(state / "gpuwatch.db").query("SELECT * FROM gpus")] == ["NVIDIA H200"]


def test_segment_views_use_the_units_of_readings(tmp_path: Path) -> None:
    store = opened(tmp_path)
    feed(store, stream(3.0, loaded=True))
    store.close()
    db = Database(next(tmp_path.glob("readings-*.db")))
    row = next(db.query("SELECT * FROM readings_view"))
    assert (row["at_utc"], row["uuid"]) == ("2023-11-14 22:30:00.000", UUID)
    assert 500 < row["power_w"] < 600
    assert (row["utilization_ratio"], row["memory_used_bytes"]) == (0.97, 3_000_000_512)
    busy = [each for each in db.query("SELECT * FROM processes_view") if each["utilization_ratio"] is not None]
    assert (busy[0]["pid"], busy[0]["name"], busy[0]["utilization_ratio"], busy[0]["memory_bytes"]) == (
        4242,
        "python",
        0.97,
        2_355_000_000,
    )
    for view in db.view_names():
        assert isinstance(list(db.query(f"SELECT * FROM {view}")), list)
