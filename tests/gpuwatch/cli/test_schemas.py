"""Tests that the commands' --json output follows the schemas in docs/schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

import annotate
from gpuwatch.client.window import window
from gpuwatch.config.settings import Settings
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.waiting import sample_for

DOCS = Path(__file__).parents[3] / "docs" / "schemas"
TRACES = Path(__file__).parents[2] / "traces"
FILES = (Path(annotate.__file__).parent / "verdict.schema.json", *sorted(DOCS.glob("*.json")))
SCHEMAS = [json.loads(file.read_text()) for file in FILES]
REGISTRY: Registry[Any] = Registry().with_resources([(schema["$id"], Resource.from_contents(schema)) for schema in SCHEMAS])


def check(data: object, reference: str) -> None:
    jsonschema.Draft202012Validator({"$ref": reference}, registry=REGISTRY).validate(data)


@pytest.mark.parametrize("schema", SCHEMAS, ids=[file.name for file in FILES])
def test_schema_files_are_valid_schemas(schema: dict[str, object]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["explain"], "rules"),
        (["explain", "dark-time"], "explained_rule"),
        (["explain", "sampler-gap"], "explained_rule"),
        (["explain", "0x1004"], "explained_mask"),
        (["explain", "0x0"], "explained_mask"),
        (["explain", "unproven"], "explained_status"),
        (["scenes"], "scenes"),
        (["config", "show"], "config_show"),
        (["config", "validate"], "config_validate"),
        (["config", "path"], "config_path"),
        (["db", "path"], "db_path"),
        (["daemon", "status"], "daemon_status"),
        (["doctor"], "doctor"),
        (["show"], "show"),
        (["audit"], "audit"),
        (["top", "--once"], "top"),
        (["audit", "--from", "3s", "--to", "2s"], "judged"),
        (["record", "-o", "some.gpuwatch", "--seconds", "0.2"], "record"),
        (["show", "ffffffff"], "error"),
        (["show", "--bogus"], "error"),
        (["config", "validate", "none.toml"], "error"),
    ],
)
def test_command_output_follows_its_schema(
    gpuwatch: Gpuwatch, daemon: Settings, home: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], name: str
) -> None:
    monkeypatch.chdir(home)
    if name in ("show", "audit", "top"):
        with window("for the schema", sync=False, settings=daemon) as watched:
            sample_for(0.05)
        assert watched.verdicts
    check(gpuwatch(*daemon.flags(), *arguments, "--json").data, f"urn:gpuwatch:cli:1#/$defs/{name}")


def test_window_json_follows_its_schema(daemon: Settings, gpuwatch: Gpuwatch, home: Path) -> None:
    with window("one", sync=False, settings=daemon) as watched:
        sample_for(0.05)
    check(watched.to_dict(), "urn:gpuwatch:window:1")
    assert gpuwatch(*daemon.flags(), "run", "--json", str(home / "run.json"), "--", "true").code == 0
    check(json.loads((home / "run.json").read_text()), "urn:gpuwatch:window:1")


def test_mark_json_follows_its_schema(daemon: Settings, gpuwatch: Gpuwatch) -> None:
    assert gpuwatch(*daemon.flags(), "mark", "begin", "one").code == 0
    check(gpuwatch(*daemon.flags(), "mark", "end", "one", "--json").data, "urn:gpuwatch:cli:1#/$defs/mark_end")


def test_top_of_a_recording_follows_its_schema(gpuwatch: Gpuwatch) -> None:
    shown = gpuwatch("top", "--once", "--trace", str(TRACES / "h200-windows.capsule"), "--json").data
    check(shown, "urn:gpuwatch:cli:1#/$defs/top")
    assert any(window["hazards"] for window in shown["windows"])
