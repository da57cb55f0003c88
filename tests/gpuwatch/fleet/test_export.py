"""Tests of `gpuwatch export`."""

from __future__ import annotations

import fcntl
import functools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from annotate.capsule.pack import pack
from annotate.judge import judge
from gpuwatch.cli.export import turn_s
from gpuwatch.client.window import window
from gpuwatch.config.settings import Settings
from gpuwatch.errors import ExportError
from gpuwatch.fleet import export, parquet
from gpuwatch.fleet.columns import COLUMNS
from gpuwatch.fleet.rows import rows
from gpuwatch.sources.simulated import simulate
from gpuwatch.store import Reader
from gpuwatch.store.export_mark import read_mark_wall_s
from tests.gpuwatch.cli.conftest import Gpuwatch, gpuwatch, home  # noqa: F401 - fixtures
from tests.gpuwatch.cli.test_schemas import check
from tests.gpuwatch.fleet.warehouse import judged
from tests.gpuwatch.store.stored import a_run, opened, verdict
from tests.gpuwatch.store.streams import BOOT, DEVICE, UUID
from tests.waiting import PATIENCE_S, sample_for, wait_until

WALL_S = 1_790_000_000.0  # 2026-09-21 14:13:20 UTC
SCENES = ("steady-copy", "from-idle", "neighbour")


def filled(folder: Path, count: int = 6, *, first: int = 0) -> Path:
    """Write ``count`` judged windows, some hours apart, and one open window to a store; return its folder."""
    store = opened(folder)
    store.put_device(DEVICE)
    for i in range(first, first + count):
        run = a_run(
            id=f"{i:010d}", begun_wall_s=WALL_S + i * 20_000, label=f"w{i}", verdicts=(verdict("flagged"),), status="flagged",
        )  # fmt: skip
        store.put_run(run, {})
    store.put_run(a_run(id="ffffffffff", begun_wall_s=WALL_S, status="open"), {})
    assert store.flush(PATIENCE_S)
    store.close()
    return folder


def exported(store: Path, folder: Path, **options: Any) -> export.Exported:
    with Reader(store) as reader:
        return export.to_parquet(reader, folder, **options)


def held(folder: Path) -> list[tuple[Any, ...]]:
    """Return run, date and host of every row, read with DuckDB."""
    pattern = f"{folder}/windows/schema=1/*/*/*.parquet"
    sql = f"SELECT run, date, host FROM read_parquet('{pattern}', hive_partitioning=true) ORDER BY run"
    return duckdb.execute(sql).fetchall()


def test_export_survives_a_round_trip(tmp_path: Path) -> None:
    """Rows read from an exported part equal the rows of the judged windows."""
    store = opened(tmp_path / "state")
    runs = {run.id: run for i, scene in enumerate(SCENES) for run in [judged(scene, id=f"{i:010d}", begun_wall_s=WALL_S + i)]}
    for run in runs.values():
        store.put_run(run, {})
    assert store.flush(PATIENCE_S)
    store.close()
    assert exported(tmp_path / "state", tmp_path / "out").windows_count == 3
    (part,) = (tmp_path / "out").rglob("*.parquet")
    back = pq.ParquetFile(part).read()  # only the file, without the columns in the path
    assert back.schema.equals(parquet.arrow_schema())
    for row in back.to_pylist(maps_as_pydicts="strict"):
        (sent,) = rows(runs[row["run"]], {}, row["hostname"])
        assert row == sent
    assert len(set(back.column("status").to_pylist())) > 1
    assert any(hazard["numbers"] for hazards in back.column("hazards").to_pylist() for hazard in hazards)


def test_export_schema_has_units_meanings_and_nullability(tmp_path: Path) -> None:
    exported(filled(tmp_path / "state", 1), tmp_path / "out")
    (part,) = (tmp_path / "out").rglob("*.parquet")
    found = pq.read_schema(part)
    assert [field.name for field in found] == [column.name for column in COLUMNS]
    assert found.field("gpu_power_limit_w").metadata[b"unit"] == b"watts"
    for column in COLUMNS:
        assert found.field(column.name).nullable == (not column.always)
        assert found.field(column.name).metadata[b"meaning"].decode() == column.meaning
    assert found.metadata[b"gpuwatch.schema"] == b"1"
    only = pq.ParquetFile(part).read().to_pylist()[0]
    assert (only["gpu_name"], only["gpu_uuid"], only["boot_id"]) == (DEVICE.name, UUID, BOOT)


def test_export_again_adds_only_new_windows(tmp_path: Path) -> None:
    store, out = filled(tmp_path / "state"), tmp_path / "out"
    first = exported(store, out)
    assert (first.windows_count, first.there_count) == (6, 0)
    assert {str(day) for _, day, _ in held(out)} == {"2026-09-21", "2026-09-22"}
    before = {path: path.read_bytes() for path in out.rglob("*.parquet")}
    assert exported(store, out) == export.Exported(there_count=6)
    filled(store, 2, first=6)
    later = exported(store, out)
    assert (later.windows_count, later.there_count) == (2, 6)
    assert {path: path.read_bytes() for path in before} == before  # the existing parts are unchanged
    assert [row[0] for row in held(out)] == [f"{i:010d}" for i in range(8)]


def test_export_adds_a_window_after_its_end(tmp_path: Path) -> None:
    store, out = filled(tmp_path / "state", 1), tmp_path / "out"
    exported(store, out)
    later = opened(store)  # opening the store ends the open window, as at a daemon's restart
    assert later.flush(PATIENCE_S)
    later.close()
    assert exported(store, out).windows_count == 1
    assert [row[0] for row in held(out)] == ["0000000000", "ffffffffff"]


def test_export_since_selects_and_host_names(tmp_path: Path) -> None:
    store, out = filled(tmp_path / "state"), tmp_path / "out"
    assert exported(store, out, since_wall_s=WALL_S + 50_000, host="rack 3/node").windows_count == 3
    assert {row[2] for row in held(out)} == {"rack 3/node"}
    assert exported(store, out, host="rack 3/node").windows_count == 3


def test_export_stops_at_an_unreadable_part(tmp_path: Path) -> None:
    """An unreadable part stops the export, because the part's runs could be exported twice."""
    store, out = filled(tmp_path / "state", 1), tmp_path / "out"
    exported(store, out)
    (part,) = out.rglob("*.parquet")
    part.write_bytes(part.read_bytes()[:200])
    with pytest.raises(ExportError, match="move this file to another folder and export again"):
        exported(store, out)
    part.unlink()
    assert exported(store, out).windows_count == 1


def test_export_removes_files_of_an_interrupted_export(tmp_path: Path) -> None:
    """A temporary file of an interrupted export does not count as a part, and the next export removes this file."""
    store, out = filled(tmp_path / "state", 1), tmp_path / "out"
    exported(store, out)
    (part,) = out.rglob("*.parquet")
    part.rename(torn := part.with_name(f".{part.name}.tmp"))
    assert exported(store, out).windows_count == 1
    assert not torn.exists()
    assert len(held(out)) == 1


def test_export_keeps_the_temporary_file_of_another_store(tmp_path: Path) -> None:
    store, out = filled(tmp_path / "state", 1), tmp_path / "out"
    exported(store, out)
    (part,) = out.rglob("*.parquet")
    part.unlink()
    with part.with_name(".part-other.parquet.tmp").open("xb") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        assert exported(store, out).windows_count == 1
        assert Path(theirs.name).exists()


def test_export_host_name_too_long_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="File name too long"):
        exported(filled(tmp_path / "state", 1), tmp_path / "out", host="n" * 300)


def test_export_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def breaking() -> Any:
        yield rows(a_run(), {}, "n")
        raise OSError(28, "No space left on device")

    with pytest.raises(ExportError, match="No space left on device; earlier parts are kept"):
        parquet.write_part(tmp_path / "date=x", ["0ca7f00d01"], breaking())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def _has_parts(out: Path, process: subprocess.Popen[bytes], count: int) -> bool:
    return len(list(out.rglob("*.parquet"))) > count or process.poll() is not None


def test_killed_export_loses_and_duplicates_no_window(tmp_path: Path) -> None:
    """After three killed exports, every part is readable, and a further export completes the folder without duplicates."""
    store, out = filled(tmp_path / "state", 60), tmp_path / "out"
    command = [sys.executable, "-m", "gpuwatch", "--state", str(store), "export", "--parquet", str(out)]
    for i in range(3):
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            amid = functools.partial(_has_parts, out, process, 4 * i)
            wait_until(amid, what="the export has written some of its fifteen parts", every_s=0.005)
            process.kill()
        for part in out.rglob("*.parquet"):
            assert pq.ParquetFile(part).read(columns=["run"]).num_rows > 0
    exported(store, out)
    assert [row[0] for row in held(out)] == [f"{i:010d}" for i in range(60)]


def test_export_of_a_locked_store_is_an_error(tmp_path: Path) -> None:
    store = filled(tmp_path / "state", 1)
    with Reader(store) as reader, export._alone(store), pytest.raises(ExportError, match="another export of this store"):
        export.to_parquet(reader, tmp_path / "out")


def test_export_command_output_follows_its_schema(gpuwatch: Gpuwatch, tmp_path: Path) -> None:  # noqa: F811
    call = ("--state", str(filled(tmp_path / "state", 2)), "export", "--parquet", str(tmp_path / "out"))
    ended = gpuwatch(*call, "--json")
    check(ended.data, "urn:gpuwatch:cli:1#/$defs/export")
    assert (ended.code, ended.data["windows_count"], len(ended.data["parts"])) == (0, 2, 1)
    assert "0 windows added as 0 rows in 0 parts; 2 were there already" in gpuwatch(*call).err


def without_pyarrow(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; sys.modules['pyarrow'] = None\nfrom gpuwatch.cli import main\nsys.exit(main(sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_export_ndjson_needs_no_pyarrow(tmp_path: Path) -> None:
    ended = without_pyarrow("--state", str(filled(tmp_path / "state", 2)), "export", "--ndjson", "--host", "node7")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [list(line) for line in lines] == [["schema", *(column.name for column in COLUMNS)]] * 2
    first = lines[0]
    assert (first["hostname"], first["begun_utc"], first["found"]) == ("node7", "2026-09-21T14:13:20+00:00", ["power-limited"])


def test_export_without_pyarrow_names_the_package(tmp_path: Path) -> None:
    call = ("--state", str(filled(tmp_path / "state", 1)), "export", "--parquet", str(tmp_path / "out"))
    ended = without_pyarrow(*call)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.splitlines() == [
        "gpuwatch: --parquet: expected the optional package pyarrow, found none; run: pip install 'gpuwatch-validity[fleet]'"
    ]


@pytest.mark.parametrize(
    "options", [(), ("--parquet", "x", "--ndjson"), ("--ndjson", "--json"), ("--parquet", "x", "--host", " ")]
)
def test_export_rejects_contradictory_options(gpuwatch: Gpuwatch, options: tuple[str, ...]) -> None:  # noqa: F811
    assert gpuwatch("export", *options).code == 2


def test_export_to_a_file_is_a_usage_error(gpuwatch: Gpuwatch, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "file").write_text("")
    ended = gpuwatch("--state", str(filled(tmp_path / "state", 1)), "export", "--parquet", str(tmp_path / "file"))
    assert ended.code == 2
    assert "--parquet: expected a folder, found" in ended.err


def test_export_reads_the_store_of_a_running_daemon(copying: Settings, tmp_path: Path) -> None:
    with window("alive", sync=False, settings=copying) as watched:
        sample_for(0.2)
    assert watched.verdicts

    def mine() -> list[dict[str, Any]]:
        exported(copying.state, tmp_path)
        rows_there = [row for part in tmp_path.rglob("*.parquet") for row in pq.ParquetFile(part).read().to_pylist()]
        return [row for row in rows_there if row["run"] == watched.run_id]

    # The verdict is available before the stored row.
    (row,) = wait_until(mine, what="the window's row is stored", every_s=0.05)
    assert (row["status"], row["simulated"], row["label"]) == (watched.verdict.status.value, True, "alive")
    assert row["gpu_driver_version"]
    assert row["hostname"]


def test_export_rows_have_the_physics_of_the_evidence(tmp_path: Path) -> None:
    """Power, energy and times agree with the evidence, and means lie between extremes; torn evidence gives NULL."""
    evidence = simulate("steady-gemm", seed=3)[0]
    assert evidence.device is not None
    found = judge(evidence)
    store = opened(tmp_path / "state")
    run = a_run(
        begin_ns=evidence.window.begin_ns, end_ns=evidence.window.end_ns, uuids=(evidence.device.uuid, "GPU-gone"),
        verdicts=(found.to_dict(),), status=found.status.value, tags={"team": "vision"},
    )  # fmt: skip
    store.put_run(run, {evidence.device.uuid: pack([evidence]), "GPU-gone": b"torn"})
    assert store.flush(PATIENCE_S)
    store.close()
    with Reader(tmp_path / "state") as reader:
        rows_found = {row["gpu_uuid"]: row for row in export.all_rows(reader)}
    row, torn = rows_found[evidence.device.uuid], rows_found["GPU-gone"]
    assert (row["tags"], torn["power_mean_w"]) == ({"team": "vision"}, None)
    power = evidence.within("power_w").values
    assert row["power_mean_w"] == pytest.approx(power.mean(), rel=0.01)
    assert row["power_min_w"] <= row["power_mean_w"] <= row["power_max_w"] == power.max()
    assert row["energy_j"] == pytest.approx(row["power_mean_w"] * evidence.window.length_s, rel=0.03)
    assert row["sm_clock_min_mhz"] <= row["sm_clock_mean_mhz"] <= row["sm_clock_max_mhz"]
    assert row["temperature_min_c"] <= row["temperature_mean_c"] <= row["temperature_max_c"]
    assert 0.9 < row["busy_ratio"] <= 1.0
    assert evidence.timings is not None
    assert row["times_count"] == len(evidence.timings.at_ns)
    assert row["time_median_s"] == pytest.approx(float(np.median(evidence.timings.took_s)))
    assert row["time_low_s"] < row["time_median_s"] < row["time_high_s"]
    assert row["time_at_clock_s"] > 0
    assert row["time_clock_mhz"] > 0


def test_export_jitter_spreads_a_fleet() -> None:
    """Of 250 nodes within half an hour, at most three share a second and 20 a minute; each node's delay is constant."""
    names = [f"node{number}.cluster" for number in range(250)]
    turns = [turn_s(name, 1800.0) for name in names]
    assert turns == [turn_s(name, 1800.0) for name in names]
    assert all(0 <= each < 1800 for each in turns)
    assert max(Counter(int(each) for each in turns).values()) <= 3
    assert (
        max(Counter(int(each // 60) for each in turns).values()) <= 20
    )  # 250 nodes over 30 minutes: 8.3 per minute on average


def test_export_stores_its_time_for_the_daemon(gpuwatch: Gpuwatch, tmp_path: Path) -> None:  # noqa: F811
    """The daemon's store reads the time of a successful export; a message reports a time that cannot be stored."""
    state = filled(tmp_path / "state", 1)
    assert read_mark_wall_s(state) is None
    call = ("--state", str(state), "export", "--parquet", str(tmp_path / "out"), "--jitter", "1ms")
    assert gpuwatch(*call).code == 0
    noted_s = read_mark_wall_s(state)
    assert noted_s is not None
    store = opened(state)
    assert store.flush(PATIENCE_S)
    assert store.statistics()["exported_wall_s"] == noted_s
    store.close()
    (state / "last-export").unlink()
    (state / "last-export").mkdir()
    ended = gpuwatch(*call)
    assert ended.code == 0
    assert "the daemon's metric of the last export could not be updated" in ended.err
    assert gpuwatch("export", "--parquet", "x", "--jitter", "soon").code == 2
    assert gpuwatch("--state", str(state), "export", "--ndjson", "--jitter", "0.001m").code == 0  # minutes, as in the samples


@pytest.mark.parametrize("text", ["", "nan", "-5", "soon", "1e999"])
def test_export_mark_with_invalid_time_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "last-export").write_text(text)
    assert read_mark_wall_s(tmp_path) is None
