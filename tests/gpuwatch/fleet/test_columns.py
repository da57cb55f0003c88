"""Tests of the frozen contract: exported parts are read for years."""

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
    """No column is renamed, retyped or removed under this schema."""
    frozen: dict[str, str] = json.loads(FROZEN.read_text())
    now = types()
    assert {name: now.get(name) for name in frozen} == frozen


def test_new_fleet_column_is_frozen_and_nullable() -> None:
    """A new column is frozen too, and nullable, because older parts lack it."""
    frozen: dict[str, str] = json.loads(FROZEN.read_text())
    assert types() == frozen, "add what is new to schema-1.json"


def test_the_page_shows_the_contract() -> None:
    text = PAGE.read_text()
    assert written(text) == text, "python -m tests.gpuwatch.fleet.page"
