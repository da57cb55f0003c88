"""Tests of records of works in a store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from annotate.evidence import RecordedWindow
from gpuwatch.interfaces import Run
from gpuwatch.store import Reader, Store
from gpuwatch.store.work_records import RECORDS_COUNT, WINDOWS_COUNT
from tests.gpuwatch.store.stored import a_run, opened

WORK = "a" * 32
NEXT = a_run(id="0ca7f00e00")


def earlier(number: int, **changes: object) -> Run:
    return replace(NEXT, id=f"0ca7f00d{number:02d}", **changes)  # type: ignore[arg-type]  # the fields' own types


def put(store: Store, *runs: Run, work: str = WORK) -> None:
    for run in runs:
        store.put_recorded(run, {work: RecordedWindow(mean_s=1e-3 + int(run.id[-2:], 16) * 1e-6, clock_mhz=1500.0)})
    assert store.flush(10.0)


def recorded(folder: Path, run: Run = NEXT, work: str = WORK) -> list[RecordedWindow]:
    with Reader(folder) as reader:
        return reader.recorded(run, work)


def test_recorded_windows_are_read_newest_last(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, earlier(2), earlier(1), earlier(3))
    store.close()
    found = recorded(tmp_path)
    assert [round((each.mean_s or 0.0) * 1e6) for each in found] == [1001, 1002, 1003]
    assert {each.clock_mhz for each in found} == {1500.0}


def test_record_of_a_run_holds_only_earlier_windows(tmp_path: Path) -> None:
    """A rejudged run is compared with the record at its first judging, and not with itself."""
    store = opened(tmp_path)
    put(store, *map(earlier, range(6)))
    store.close()
    assert len(recorded(tmp_path, earlier(4))) == 4


@pytest.mark.parametrize("other", [replace(NEXT, uid=1001), replace(NEXT, uid=0), replace(NEXT, source="simulated:bursty")])
def test_record_belongs_to_one_user_and_source(tmp_path: Path, other: Run) -> None:
    """A record holds no window of another user, source or work."""
    store = opened(tmp_path)
    put(store, *map(earlier, range(5)))
    store.close()
    assert recorded(tmp_path, other) == []
    assert recorded(tmp_path, work="b" * 32) == []
    assert len(recorded(tmp_path)) == 5


def test_record_keeps_the_newest_windows(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, *(replace(NEXT, id=f"0ca7f00d{number:02x}") for number in range(WINDOWS_COUNT + 3)))
    store.close()
    found = recorded(tmp_path)
    assert len(found) == WINDOWS_COUNT
    assert found[0].mean_s == pytest.approx(1.003e-3)


def test_run_recorded_twice_counts_once(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, earlier(1), earlier(1))
    store.close()
    assert len(recorded(tmp_path)) == 1


def test_user_with_most_records_loses_the_oldest(tmp_path: Path) -> None:
    """With too many records in the store, the user with most records loses the oldest, and another user's record stays."""
    store = opened(tmp_path)
    put(store, earlier(0))
    for number in range(RECORDS_COUNT + 1):
        run = replace(NEXT, uid=1001, id=f"0ca7f00d1{number:05d}")
        store.put_recorded(run, {f"{number:032x}": RecordedWindow(mean_s=1e-3)})
    assert store.flush(60.0)
    store.close()
    mine, theirs = recorded(tmp_path), replace(NEXT, uid=1001)
    assert len(mine) == 1
    with Reader(tmp_path) as reader:
        kept = [bool(reader.recorded(theirs, f"{number:032x}")) for number in range(RECORDS_COUNT + 1)]
    assert kept == [False, False] + [True] * (RECORDS_COUNT - 1)


def test_run_without_a_program_has_no_record(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put_run(NEXT)
    put(store, *map(earlier, range(5)))
    store.close()
    with Reader(tmp_path) as reader:
        assert reader.evidence(reader.run(NEXT.id), NEXT.uuids[0]).record is None
