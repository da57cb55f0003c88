"""Tests of the frozen contract of columns, because exported parts must stay readable for years."""

from __future__ import annotations

import json
from pathlib import Path

from gpuwatch.fleet import parquet
from tests.gpuwatch.fleet.page import written
from tests.gpuwatch.fleet.warehouse import PAGE

FROZEN = Path(__file__).with_name("schema-1.json")


def types() -> dict[str, str]:
    schema = parquet.arrow_schema()
    return {field.name: f"{field.type}{'' if field.nullable else ' not null'}" for field in schema}


def test_fleet_columns_stay_under_this_schema() -> None:
    """No column is renamed, retyped or removed under schema number 1."""
    frozen: dict[str, str] = json.loads(FROZEN.read_text())
    now = types()
    assert {name: now.get(name) for name in frozen} == frozen


def test_new_fleet_column_is_in_the_frozen_file() -> None:
    """``schema-1.json`` contains every column with its type."""
    frozen: dict[str, str] = json.loads(FROZEN.read_text())
    assert types() == frozen, "add new columns to schema-1.json, as nullable ones: older parts lack them"


def test_fleet_page_shows_the_contract() -> None:
    text = PAGE.read_text()
    assert "`canary_copy_bytes_count` | number | bytes per second" in written(text)
    assert written(text) == text, "python -m tests.gpuwatch.fleet.page"
