"""Tests of the rows of a stored run."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import Device, Host
from gpuwatch.fleet import parquet
from gpuwatch.fleet.columns import COLUMNS, ExportColumn
from gpuwatch.fleet.rows import hostname, partition, plain, rows
from tests.examples import share_of
from tests.gpuwatch.fleet.warehouse import judged
from tests.gpuwatch.store.stored import a_run, verdict
from tests.gpuwatch.store.streams import DEVICE, UUID

NAMES = {column.name for column in COLUMNS}


def test_fleet_columns_cover_device_and_host() -> None:
    assert {f"gpu_{field.name}" for field in fields(Device)} - NAMES == {"gpu_simulated"}  # a column of the window
    assert {f"host_{field.name}" for field in fields(Host)} - NAMES == {"host_boot_id", "host_hostname"}  # without the prefix


def test_verdict_row_has_all_columns_and_its_reasons() -> None:
    """A row has all columns and all findings of the verdict; ``found`` has rules exactly if flagged or rejected."""
    statuses = set()
    for scene in ("steady-copy", "from-idle", "neighbour", "thermal"):
        run = judged(scene)
        (row,) = rows(run, {}, "node7")
        assert set(row) == NAMES
        assert row["status"] == row["window_status"] == run.status
        kept = run.verdicts[0]["findings"]
        assert len(row["hazards"]) + len(row["clear"]) + len(row["unobserved"]) == len(kept)
        assert set(row["found"]) <= {each["rule"] for each in row["hazards"]}
        assert bool(row["found"]) == (run.status in ("flagged", "rejected"))
        statuses.add(run.status)
    assert {"valid", "rejected"} <= statuses


def test_window_gives_a_row_per_gpu_and_one_without_gpus() -> None:
    two = a_run(uuids=("GPU-a", UUID), verdicts=(verdict("rejected", UUID), verdict("valid", "GPU-a", ())), status="rejected")
    found = rows(two, {UUID: DEVICE}, "n")
    assert [(row["gpu_uuid"], row["status"], row["window_status"], row["found"]) for row in found] == [
        (UUID, "rejected", "rejected", ["power-limited"]),
        ("GPU-a", "valid", "rejected", []),
    ]
    assert [row["gpu_name"] for row in found] == [DEVICE.name, None]
    (none,) = rows(a_run(uuids=(), status="unproven", why="no driver"), {}, "n")
    assert (none["gpu_uuid"], none["gpus_count"], none["why"]) == (None, 0, "no driver")


def test_unjudged_window_has_null_not_an_empty_list() -> None:
    (row,) = rows(a_run(status="unproven", why="the daemon ended", host=None), {}, "n")
    assert (row["found"], row["clear"], row["hazards"], row["unobserved"]) == (None, None, None, None)
    assert row["host_cpu_s"] is None


def test_row_found_excludes_notes_and_accepted_hazards() -> None:
    """Notes and accepted hazards are in ``hazards`` and not in ``found``."""
    note = {**verdict()["findings"][0], "rule": "idle-start", "severity": "note"}
    accepted = {**verdict()["findings"][0], "rule": "power-limited", "severity": "reject", "accepted": True}
    (row,) = rows(a_run(verdicts=({**verdict(), "findings": [accepted, note]},)), {}, "n")
    assert row["found"] == []
    assert [each["rule"] for each in row["hazards"]] == ["idle-start", "power-limited"]


def test_partition_depends_only_on_date_and_host() -> None:
    assert partition(1_790_000_000.0, "a") == "date=2026-09-21/host=a"
    assert partition(1_790_000_000.0, "../a b=c%") == "date=2026-09-21/host=..%2Fa%20b%3Dc%25"
    assert hostname("0123456789", None, None) == "boot-01234567"
    assert hostname("0123456789", "node7", None) == "node7"
    assert hostname("0123456789", "node7", "rack3-node7") == "rack3-node7"


@pytest.mark.parametrize("name", [".", ".."])
def test_partition_of_a_host_named_dot_is_one_folder(name: str) -> None:
    assert partition(0.0, name) == f"date=1970-01-01/host={name}"  # one path component, which is not the parent folder


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@settings(max_examples=share_of(60))
@given(declared=st.dictionaries(st.text(), VALUES), label=st.none() | st.text())
def test_row_of_any_declared_facts_is_valid_arrow_and_json(
    declared: dict[str, str | int | float | bool | None], label: str
) -> None:
    (row,) = rows(a_run(declared=declared, label=label, status="valid"), {}, "n\udc80")
    assert parquet.table([row]).num_rows == 1
    json.dumps(plain(row), allow_nan=False).encode()


def test_row_of_a_verdict_of_another_version_has_known_fields() -> None:
    odd = {"status": "flagged", "device": {"uuid": UUID}, "findings": [{"rule": "new", "answered": "found", "severity": "odd"}]}
    (row,) = rows(replace(a_run(), verdicts=(odd,)), {}, "n")
    assert (row["hazards"][0]["severity"], row["found"], row["judge_version"]) == ("note", [], None)


def test_fleet_column_unit_is_the_last_word_of_its_name() -> None:
    units = {column.name: column.unit for column in COLUMNS}
    assert units["length_s"] == "seconds"
    assert units["gpu_power_limit_w"] == "watts"
    assert units["gpu_persistence_mode"] is None

    def amounts(columns: tuple[ExportColumn, ...]) -> list[ExportColumn]:
        return [one for column in columns for one in (column, *amounts(column.inner)) if one.kind.value.endswith("number")]

    without = {column.name for column in amounts(COLUMNS) if column.unit is None and not column.kind.value.startswith("map")}
    assert without == {"pid", "uid", "value"}
