"""Tests of the queries in docs/FLEET.md, on thousands of synthetic windows with known counts."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gpuwatch.fleet import fleet_questions
from tests.gpuwatch.fleet.warehouse import BEGIN_S, queries, run_queries, write_windows

COUNT = 6_000


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("warehouse")
    write_windows(folder, COUNT, parts_count=5)
    return folder


@pytest.fixture(scope="module")
def answers(warehouse: Path) -> dict[str, list[tuple[Any, ...]]]:
    return dict(zip(queries(), run_queries(warehouse, queries().values()), strict=True))


def test_fleet_queries_on_the_page_answer(answers: dict[str, list[tuple[Any, ...]]]) -> None:
    """Every query of the page returns rows, except the one that creates the view."""
    assert len(answers) >= 4
    assert {name for name, rows in answers.items() if not rows} == {"the windows of real GPUs"}


def findings(folder: Path, count: int) -> list[tuple[Any, ...]]:
    """Return the first ``count`` rows of `gpuwatch fleet findings` over 40 days."""
    begin_s, end_s = BEGIN_S, BEGIN_S + 40 * 86_400.0
    answer = fleet_questions.ask(
        fleet_questions.question("findings"),
        fleet_questions.list_parts([str(folder)]),
        since_wall_s=begin_s,
        until_wall_s=end_s,
        most_count=count,
    )
    return list(answer.rows)


def test_fleet_findings_equal_a_count_in_python(warehouse: Path) -> None:
    columns = ["hostname", "found", "gpu_driver_version", "status"]
    counted: Counter[tuple[str, ...]] = Counter()
    for path in warehouse.rglob("part-*.parquet"):
        for row in pq.ParquetFile(path).read(columns=columns).to_pylist():
            counted.update((row["hostname"], rule, row["gpu_driver_version"], row["status"]) for rule in row["found"])
    found = findings(warehouse, 50)
    assert len(found) == 50
    assert [row[-1] for row in found] == sorted(counted.values(), reverse=True)[:50]
    assert all(counted[row[:-1]] == row[-1] for row in found)


def test_fleet_page_query_merges_a_month_into_one_file(warehouse: Path, answers: dict[str, list[tuple[Any, ...]]]) -> None:
    assert pq.ParquetFile(warehouse / "2026-10.parquet").metadata.num_rows == COUNT


@pytest.mark.slow
def test_fleet_query_of_a_million_windows_takes_two_seconds(tmp_path: Path) -> None:
    write_windows(tmp_path, 1_000_000)
    begun_s = time.perf_counter()
    rows = findings(tmp_path, 50)
    assert time.perf_counter() - begun_s < 2.0
    assert len(rows) == 50
