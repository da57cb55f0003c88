"""Tests of `gpuwatch fleet` on a synthetic fleet."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpuwatch.errors import UsageError
from gpuwatch.fleet import fleet_questions, parquet
from gpuwatch.fleet.rows import rows
from tests.gpuwatch.cli.conftest import Gpuwatch, gpuwatch, home  # noqa: F401 - fixtures
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.fleet.made_up_fleet import NODES, NOW, write_fleet
from tests.gpuwatch.fleet.warehouse import PAGE
from tests.gpuwatch.store.stored import a_run, verdict

DAY_S = 86_400.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    write_fleet(folder)
    return folder


def asked(folder: Path, name: str, *, since_days: float = 7.0, simulated: bool = False) -> list[dict[str, Any]]:
    until_s = NOW.timestamp()
    answer = fleet_questions.ask(
        fleet_questions.question(name),
        fleet_questions.list_parts([str(folder)]),
        since_wall_s=until_s - since_days * DAY_S,
        until_wall_s=until_s,
        most_count=1000,
        with_simulated=simulated,
    )
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def test_slow_nodes_lists_only_the_slow_node(fleet: Path) -> None:
    """A lower cap, another model, another size, an idle night, a neighbour or one slow GPU does not make a node slow."""
    (row,) = asked(fleet, "slow-nodes")
    assert (row["hostname"], row["works_count"]) == ("h-slow", 2)
    assert row["slower_ratio"] == pytest.approx(0.04, abs=0.006)
    assert row["clock_change_ratio"] == pytest.approx(1 / 1.04 - 1, abs=0.006)


def test_slow_gpus_lists_only_the_slow_gpu(fleet: Path) -> None:
    (row,) = asked(fleet, "slow-gpus")
    assert (row["hostname"], row["gpu_uuid"]) == ("h03", "GPU-h03-1")
    assert row["slower_ratio"] == pytest.approx(0.05, abs=0.006)


def test_degraded_gpus_ignores_a_faster_driver(fleet: Path) -> None:
    """A degraded GPU is found although the whole fleet became faster; a lowered cap does not count."""
    (row,) = asked(fleet, "degraded-gpus", since_days=63)
    assert row["gpu_uuid"] == "GPU-h03-1"
    assert row["slower_ratio"] == pytest.approx(0.05, abs=0.01)
    assert row["warmer_c"] > 15


def test_invalid_windows_are_counted_by_team(fleet: Path) -> None:
    """Windows without a team tag count by their account; teams without invalid windows are not listed."""
    by_team = {row["team"]: row for row in asked(fleet, "invalid-by-team", since_days=1)}
    assert set(by_team) == {"vision", "language", "physics"}
    assert (by_team["physics"]["unproven_count"], by_team["physics"]["windows_count"]) == (2, 4)
    for team in ("vision", "language"):
        row = by_team[team]
        assert row["invalid_count"] == row["rejected_count"] + row["flagged_count"]
        assert row["flagged_count"] == 2
        assert "idle-stretch 2" in row["found"]


def test_odd_settings_lists_gpus_that_differ(fleet: Path) -> None:
    assert {row["gpu_uuid"] for row in asked(fleet, "capped-gpus")} == {
        *(f"GPU-{node.name}-{gpu}" for node in NODES if node.limit_w == 500.0 for gpu in range(2)),
        "GPU-h04-0",
    }
    (odd,) = asked(fleet, "odd-settings")
    assert (odd["gpu_uuid"], odd["setting"], odd["found"], odd["usual"]) == ("GPU-h02-1", "ecc", "false", "true")
    (hot,) = asked(fleet, "hot-gpus")
    assert hot["gpu_uuid"] == "GPU-h03-1"


def test_odd_nodes_and_findings_list_nodes_and_rules(fleet: Path) -> None:
    """A node without a finding counts as zero for the usual share."""
    odd = asked(fleet, "odd-nodes")
    assert [(row["hostname"], row["rule"], row["usual_ratio"]) for row in odd] == [
        ("h-crowded", "contention-process", 0.0),
        ("a2", "bimodal", 4 / 28),  # the middle of 0, 4 and 12 of 28 windows
        ("h05", "idle-stretch", 0.0),
    ]
    assert {(row["hostname"], row["rule"]) for row in asked(fleet, "findings")} == {
        ("h-crowded", "contention-process"),
        ("a1", "bimodal"),
        ("a2", "bimodal"),
        ("h05", "idle-stretch"),
    }


def test_silent_nodes_ignores_an_idle_night(fleet: Path) -> None:
    assert asked(fleet, "silent-nodes", since_days=3) == []
    assert [row["hostname"] for row in asked(fleet, "silent-nodes", since_days=1)] == ["h-idle"]


def test_energy_is_summed_by_team(fleet: Path) -> None:
    found = {row["team"]: row for row in asked(fleet, "energy-by-team", since_days=7)}
    robots = found["robots"]
    assert robots["energy_kwh"] == pytest.approx(robots["windows_count"] * 6.0 * 700 * 0.97 / 3.6e6)
    assert robots["at_most_idle_kwh"] == pytest.approx(0.02 * robots["energy_kwh"])


def test_simulated_windows_count_only_on_request(fleet: Path) -> None:
    counted = [sum(row["windows_count"] for row in asked(fleet, "valid-by-driver", simulated=each)) for each in (False, True)]
    assert counted[1] == counted[0] + 5


def test_duplicates_lists_rows_of_merged_folders(fleet: Path, tmp_path: Path) -> None:
    assert asked(fleet, "duplicates", since_days=100) == []
    part = next(fleet.rglob("part-h01.parquet"))
    for name in ("a.parquet", "b.parquet"):
        (tmp_path / name).write_bytes(part.read_bytes())
    found = asked(tmp_path, "duplicates", since_days=100)
    assert found
    assert {row["times"] for row in found} == {2}


def test_missing_evidence_is_counted_by_proof(tmp_path: Path) -> None:
    proofs = [
        {"proof": "books", "state": "unproven", "says": "", "missing": ["energy"]},
        {"proof": "work-seen", "state": "shown"},
    ]
    given = {**verdict("unproven"), "proofs": proofs, "budget": {"numbers": []}}
    run = a_run(verdicts=(given,), status="unproven", begun_wall_s=NOW.timestamp() - 60)
    pq.write_table(parquet.table(rows(run, {}, "n7")), tmp_path / "one.parquet")
    assert asked(tmp_path, "missing-evidence") == [
        {"hostname": "n7", "proof": "books", "missing": "energy", "windows_count": 1}
    ]


def test_questions_accept_parts_of_an_older_version(fleet: Path, tmp_path: Path) -> None:
    """Columns that a part lacks are NULL, and no question fails."""
    part = next(fleet.rglob("part-h01.parquet"))
    table = pq.ParquetFile(part).read()
    older = table.drop_columns(["tags", "time_median_s", "sm_clock_mean_mhz", "busy_ratio"])
    pq.write_table(older, tmp_path / "part-older.parquet")
    for name in fleet_questions.questions():
        asked(tmp_path, name)
    assert [row["team"] for row in asked(tmp_path, "energy-by-team")] == ["ann"]


def test_fleet_page_lists_every_question(fleet: Path) -> None:
    page = PAGE.read_text()
    for name, each in fleet_questions.questions().items():
        assert each.asks.endswith("?"), name
        assert re.fullmatch(r"\d+[dh]", each.since), name
        assert f"| `{name}` | {each.since} | {each.asks} |" in page, name


def test_fleet_command_output_follows_its_schema(gpuwatch: Gpuwatch, fleet: Path) -> None:  # noqa: F811
    listed = gpuwatch("fleet", "--json")
    check(listed.data, "urn:gpuwatch:cli:1#/$defs/fleet")
    assert {each["name"] for each in listed.data["questions"]} == set(fleet_questions.questions())
    call = ("fleet", "slow-nodes", str(fleet), "--until", NOW.isoformat())
    found = gpuwatch(*call, "--json")
    check(found.data, "urn:gpuwatch:cli:1#/$defs/fleet")
    assert [row["hostname"] for row in found.data["rows"]] == ["h-slow"]
    text = gpuwatch(*call)
    assert "+4.0 %" in text.out or "+3.9 %" in text.out
    assert "Which node is slow?" in text.err
    capped = gpuwatch("fleet", "capped-gpus", str(fleet), "--until", NOW.isoformat(), "-n", "2", "--json")
    assert (len(capped.data["rows"]), capped.data["is_cut"]) == (2, True)
    json.dumps(capped.data)
    assert gpuwatch("fleet", "slow-nodes", "--sql").out.startswith("-- Which node is slow?\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("slow",), "expected one of capped-gpus"),
        (("slow-nodes",), "expected folders or files"),
        (("slow-nodes", "/nowhere"), "found no such file or folder"),
        (("slow-nodes", __file__), "expected a Parquet file that `gpuwatch export` wrote, found another kind of file"),
        (("slow-nodes", "/", "--since", "1h", "--until", "2h"), "--since, --until: expected a time before"),
    ],
)
def test_fleet_command_errors_are_one_line(gpuwatch: Gpuwatch, arguments: tuple[str, ...], says: str) -> None:  # noqa: F811
    ended = gpuwatch("fleet", *arguments)
    assert ended.code == 2
    assert says in ended.err
    assert len(ended.err.strip().splitlines()) == 1


def test_fleet_rejects_other_parquet_files(tmp_path: Path) -> None:
    pq.write_table(pa.table({"tags": [1]}), tmp_path / "other.parquet")
    with pytest.raises(UsageError, match="expected windows"):
        asked(tmp_path, "findings")
    with pytest.raises(UsageError, match="a folder without such a file"):
        (tmp_path / "empty").mkdir()
        fleet_questions.list_parts([str(tmp_path / "empty")])
    (tmp_path / "notes.txt").write_text("PAR")
    with pytest.raises(UsageError, match=r"notes.txt: expected a Parquet file .*, found another kind of file"):
        fleet_questions.list_parts([str(tmp_path / "notes.txt")])


def test_fleet_view_sql_escapes_file_names(tmp_path: Path) -> None:
    sql = fleet_questions.view_sql(["x'), 1; DROP TABLE contract; --"])
    assert "'x''), 1; DROP TABLE contract; --'" in sql
    with duckdb.connect() as db:
        assert len(db.extract_statements(sql)) == 1
