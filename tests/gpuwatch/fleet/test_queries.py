"""The queries of the fleet's page run, on windows made up by the thousand, and count what is there."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.gpuwatch.fleet.warehouse import asked, made_up, queries

COUNT = 20_000


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("warehouse")
    made_up(folder, COUNT, parts_count=5)
    return folder


@pytest.fixture(scope="module")
def answers(warehouse: Path) -> dict[str, list[tuple[Any, ...]]]:
    return dict(zip(queries(), asked(warehouse, queries().values()), strict=True))


def test_fleet_queries_answer_but_the_one_for_duplicates(answers: dict[str, list[tuple[Any, ...]]]) -> None:
    """Every query answers, but the one that looks for what went out twice."""
    empty = {name for name, rows in answers.items() if not rows}
    assert len(answers) >= 7
    assert {name.split()[0] + " " + name.split()[1] for name in empty} == {"rows that", "the windows"}  # and the view itself


def test_verdicts_by_host_rule_and_driver_are_what_the_rows_say(
    warehouse: Path, answers: dict[str, list[tuple[Any, ...]]]
) -> None:
    columns = ["hostname", "found", "gpu_driver_version", "status"]
    counted: Counter[tuple[str, ...]] = Counter()
    for path in warehouse.rglob("part-*.parquet"):
        for row in pq.ParquetFile(path).read(columns=columns).to_pylist():
            counted.update((row["hostname"], rule, row["gpu_driver_version"], row["status"]) for rule in row["found"])
    found = answers["verdicts by host, rule and driver"]
    assert len(found) == 50
    assert [row[-1] for row in found] == sorted(counted.values(), reverse=True)[:50]
    assert all(counted[row[:-1]] == row[-1] for row in found)


def test_a_month_as_one_file_holds_every_row(warehouse: Path, answers: dict[str, list[tuple[Any, ...]]]) -> None:
    assert pq.ParquetFile(warehouse / "2026-10.parquet").metadata.num_rows == COUNT


@pytest.mark.slow
def test_fleet_query_of_a_million_windows_takes_two_seconds(tmp_path: Path) -> None:
    """Of a million windows, verdicts by host, rule and driver come within two seconds."""
    made_up(tmp_path, 1_000_000)
    view, verdicts = (queries()[name] for name in ("the windows of real GPUs", "verdicts by host, rule and driver"))
    begun_s = time.perf_counter()
    _, rows = asked(tmp_path, (view, verdicts))
    assert time.perf_counter() - begun_s < 2.0
    assert len(rows) == 50
