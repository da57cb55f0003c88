"""Stores, capsules, reports, settings and records of an earlier version, read by this one."""

from __future__ import annotations

import json
import sqlite3
import tomllib
from pathlib import Path
from typing import Any

import pytest

import gpuwatch as product
from annotate.claims import Claim
from gpuwatch.measuring import canary_record
from tests.compatibility import old_version
from tests.compatibility.write import SOURCE, shape
from tests.gpuwatch import live
from tests.gpuwatch.cli.conftest import Gpuwatch, daemon, gpuwatch, home
from tests.waiting import wait_until

__all__ = ["daemon", "gpuwatch", "home"]

STORED, LIVE = old_version.outputs("stored"), old_version.outputs("live")
COPY = "GPU-51301a7e-0000-0000-0000-000000000000"


@pytest.fixture
def old(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the earlier version's files, with its settings in force."""
    folder = home / "old"
    old_version.unpack(folder)
    monkeypatch.setenv("GPUWATCH_SOURCE", SOURCE)
    monkeypatch.setenv("GPUWATCH_STATE", str(folder / "state"))
    monkeypatch.setenv("GPUWATCH_SOCKET", str(folder / "socket"))
    return folder


def name(output: dict[str, Any]) -> str:
    return " ".join(Path(each).name for each in output["arguments"])


@pytest.mark.parametrize("output", STORED, ids=name)
def test_command_output_loses_nothing(gpuwatch: Gpuwatch, old: Path, output: dict[str, Any]) -> None:
    """Every verdict, finding and fact of the earlier version is found in its files, read or judged again today."""
    if output["arguments"][0] == "verify":
        del output["json"]["page_as_written"]  # only the version that made a page can tell
    text = (
        json.dumps(output["json"])
        .replace("equal arms", "equal variants")
        .replace("FOLDER", str(old))
        .replace(f"{old.parent}/work/socket", f"{old}/socket")
    )
    ended = gpuwatch(*(each.replace("FOLDER", str(old)) for each in output["arguments"]), "--json")
    assert ended.code == output["code"], ended.err
    assert list(old_version.lost(json.loads(text), json.loads(ended.out or ended.err))) == []


@pytest.mark.parametrize("output", LIVE, ids=name)
def test_live_output_keeps_its_keys(
    gpuwatch: Gpuwatch, home: Path, tmp_path_factory: pytest.TempPathFactory, output: dict[str, Any]
) -> None:
    """What commands say beside a daemon has every key it had, with the same kind of value."""
    with live.running(tmp_path_factory.mktemp("live"), SOURCE) as running:
        arguments = tuple(each.replace("FOLDER", str(home)) for each in output["arguments"])
        missing: list[str] = []

        def has_every_key() -> bool:  # a process list comes a moment after the first readings
            ended = gpuwatch(*running.settings.flags(), *arguments, "--json")
            assert ended.code == output["code"], ended.err
            missing[:] = sorted(set(output["json"]) - set(shape(ended.data)))
            return not missing

        wait_until(has_every_key, what=lambda: f"every key of then, missing {missing}")


def test_configuration_keeps_its_meaning(gpuwatch: Gpuwatch, home: Path) -> None:
    """Each line of the earlier version's configuration is in force as it was written."""
    old_version.unpack(home)
    file = home / "configuration.toml"
    ended = gpuwatch("--config", str(file), "config", "show", "--json")
    written = tomllib.loads(file.read_text())
    tables = {f"{table}.{key}": value for table in written for key, value in _entries(written[table])}
    assert {name: each["text"] for name, each in ended.data["settings"].items()} == {
        name.removesuffix("."): value for name, value in tables.items()
    }


def _entries(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else [("", value)]


def test_canaries_keep_their_medians(old: Path) -> None:
    """Canaries on record are what later windows are compared with."""
    assert canary_record.facts(old / "state", COPY) == {
        "canary_record_clock_mhz": 1935.0,
        "canary_record_copy_bytes_count": 4.1e12,
        "canary_record_count": 3,
    }


def test_signing_key_stays_the_daemons(gpuwatch: Gpuwatch, old: Path) -> None:
    """Whoever trusts this machine's key goes on trusting it after an upgrade."""
    assert gpuwatch("verify", "--key").out == (old / "signer.pub").read_text()


def test_daemon_continues_an_old_store(tmp_path: Path) -> None:
    """A daemon takes over the earlier version's store, adds a window, and loses none."""
    old_version.unpack(tmp_path)
    before = _windows(tmp_path / "state")
    with live.running(tmp_path) as running, product.window("after", settings=running.settings, claim=Claim.BURST) as w:
        pass
    assert w.verdict.findings
    after = _windows(tmp_path / "state")
    assert {run: after.get(run) for run in before} == before
    assert len(after) == len(before) + 1


def _windows(state: Path) -> dict[str, tuple[str, str]]:
    with sqlite3.connect(state / "gpuwatch.db") as connection:
        return {run: (label, status) for run, label, status in connection.execute("SELECT id, label, status FROM runs")}
