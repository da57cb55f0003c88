"""Tests that this version reads stores, capsules, reports, settings and records of an earlier one."""

from __future__ import annotations

import json
import sqlite3
import tomllib
from pathlib import Path
from typing import Any

import pytest

import gpuwatch as product
from annotate.claims import Claim
from annotate.rules import RETIRED
from gpuwatch.measuring import canary_record
from gpuwatch.report.record import as_json
from tests.compatibility import old_version
from tests.compatibility.write import SOURCE, shape
from tests.gpuwatch import live
from tests.gpuwatch.cli.conftest import Gpuwatch, daemon, gpuwatch, home
from tests.gpuwatch.report.conftest import Page
from tests.waiting import wait_until

__all__ = ["daemon", "gpuwatch", "home"]

STORED, LIVE = old_version.outputs("stored"), old_version.outputs("live")
# `doctor` observes for half a second, and the values that change in that time vary.
SEEN_CHANGING = ".checks[].facts.refresh_ms."
COPY = "GPU-51301a7e-0000-0000-0000-000000000000"


@pytest.fixture
def old(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Unpack the earlier version's files, set its source, state and socket, and return the folder."""
    folder = home / "old"
    old_version.unpack(folder)
    monkeypatch.setenv("GPUWATCH_SOURCE", SOURCE)
    monkeypatch.setenv("GPUWATCH_STATE", str(folder / "state"))
    monkeypatch.setenv("GPUWATCH_SOCKET", str(folder / "socket"))
    return folder


def name(output: dict[str, Any]) -> str:
    return " ".join(Path(each).name for each in output["arguments"])


def judges_again(output: dict[str, Any]) -> bool:
    return output["arguments"][0] in ("audit", "compare", "verify") and output["arguments"] != ["audit"]


@pytest.mark.parametrize("output", [each for each in STORED if not judges_again(each)], ids=name)
def test_command_output_loses_nothing(gpuwatch: Gpuwatch, old: Path, output: dict[str, Any]) -> None:
    """Commands on the earlier version's files show every stored verdict, finding and fact.

    Sentences, the schema and retired rules may change.
    """
    then, now = both(gpuwatch, old, output)
    retired = [f".rule.{key} was" for key in ("basis", "family", "limits", "needs", "sections")]
    changed = [each for each in old_version.lost(then, now) if not each.endswith(".schema was 1, is 2")]
    if output["arguments"][0] == "explain" and now.get("rule", {}).get("family") == "retired":
        changed = [each for each in changed if not each.startswith((*retired, ".rule.limits.", ".rule.sections."))]
    assert changed == []


@pytest.mark.parametrize("output", [each for each in STORED if judges_again(each)], ids=name)
def test_rejudged_output_keeps_its_keys(gpuwatch: Gpuwatch, old: Path, output: dict[str, Any]) -> None:
    """When the current rules rejudge the earlier files, answers may change; only retired rules and facts may be missing."""
    then, now = both(gpuwatch, old, output)
    gone = [each.removesuffix(" is gone") for each in old_version.lost(then, now) if each.endswith(" is gone")]
    gone = [each for each in gone if ".facts." not in each]
    assert [each for each in gone if each.rpartition("[")[2].rstrip("]") not in RETIRED] == []


def both(gpuwatch: Gpuwatch, old: Path, output: dict[str, Any]) -> tuple[Any, Any]:
    """Return a command's earlier output and its current output."""
    text = (
        json.dumps(output["json"])
        .replace("equal arms", "equal variants")
        .replace("FOLDER", str(old))
        .replace(str(old.parent.joinpath("work", "socket")), f"{old}/socket")
    )
    ended = gpuwatch(*(each.replace("FOLDER", str(old)) for each in output["arguments"]), "--json")
    is_judged_otherwise = output["arguments"] == ["verify", "FOLDER/unsigned.html"]
    assert ended.code == (1 if is_judged_otherwise else output["code"]), ended.err
    return json.loads(text), json.loads(ended.out or ended.err)


def test_rejudge_compares_an_old_store(gpuwatch: Gpuwatch, old: Path) -> None:
    """`audit --rejudge` shows stored and new status and the changes, and leaves the stored statuses unchanged."""
    of_record = {run: status for run, (_, status) in _windows(old / "state").items()}
    again = gpuwatch("audit", "--rejudge", "--json").data
    assert {each["run"]: each["recorded_status"] for each in again["runs"]} == of_record
    changed = [each for each in again["runs"] if each["status"] != each["recorded_status"]]
    said = gpuwatch("audit", "--rejudge").err
    assert f"judged again: {len(changed)} of {len(of_record)} statuses differ from the stored ones" in said
    assert all(f"from {each['recorded_status']} to {each['status']}" in said for each in changed)
    assert {run: status for run, (_, status) in _windows(old / "state").items()} == of_record


def test_verify_accepts_a_signed_old_report(gpuwatch: Gpuwatch, old: Path) -> None:
    """With a trusted signature, different words and severities of an earlier judge are accepted."""
    ended = gpuwatch("verify", str(old / "signed.html"), "--trust", str(old / "signer.pub"))
    assert ended.code == 0, ended.out
    assert "verdict and evidence agree: REJECTED" in ended.out
    assert "judged by an earlier version (0.1)" in ended.out


def test_verify_compares_the_status_of_an_unsigned_report(gpuwatch: Gpuwatch, old: Path) -> None:
    """For an unsigned page of an earlier judge only the status is compared, because anybody may have written the page."""
    ended = gpuwatch("verify", str(old / "unsigned.html"), "--json")
    (window,) = ended.data["windows"]
    assert (ended.code, window["differs"]) == (1, ["status: the report shows 'flagged', the evidence 'unproven'"])
    assert "judged by an earlier version (0.1)" in gpuwatch("verify", str(old / "unsigned.html")).out


def test_verify_finds_forged_answers_in_an_old_report(gpuwatch: Gpuwatch, old: Path) -> None:
    """Findings of existing rules are compared with the evidence, because a signature does not cover findings."""
    path = old / "signed.html"
    html = path.read_text()
    read = Page(html).blocks["gpuwatch-record"]
    for change in ("answered", "rule", "facts"):
        data = json.loads(read)
        findings = data["windows"][0]["verdict"]["findings"]
        found = next(each for each in findings if each["rule"] == "contention-process")
        match change:
            case "answered":
                found["answered"], found["severity"] = "clear", None
            case "rule":
                findings.remove(found)
            case _:
                found["facts"] = {
                    name: 7 * value if isinstance(value, float) else value for name, value in found["facts"].items()
                }
        path.write_text(html.replace(read, as_json(data)))
        ended = gpuwatch("verify", str(path), "--trust", str(old / "signer.pub"))
        assert ended.code == 1, change
        assert "contention-process" in ended.out, change


@pytest.mark.parametrize("output", LIVE, ids=name)
def test_live_output_keeps_its_keys(
    gpuwatch: Gpuwatch, home: Path, tmp_path_factory: pytest.TempPathFactory, output: dict[str, Any]
) -> None:
    """Commands that query a daemon keep every key, with the same kind of value."""
    with live.running(tmp_path_factory.mktemp("live"), SOURCE) as running:
        arguments = tuple(each.replace("FOLDER", str(home)) for each in output["arguments"])
        missing: list[str] = []

        def has_every_key() -> bool:  # a process list follows the first readings
            ended = gpuwatch(*running.settings.flags(), *arguments, "--json")
            assert ended.code == output["code"], ended.err
            missing[:] = sorted(
                key for key in set(output["json"]) - set(shape(ended.data)) if not key.startswith(SEEN_CHANGING)
            )
            return not missing

        wait_until(has_every_key, what=lambda: f"every key of the earlier version, missing {missing}")


def test_configuration_keeps_its_meaning(gpuwatch: Gpuwatch, home: Path) -> None:
    """Each line of the earlier version's configuration keeps its effect."""
    old_version.unpack(home)
    file = home / "configuration.toml"
    ended = gpuwatch("--config", str(file), "config", "show", "--json")
    written = tomllib.loads(file.read_text())
    tables = {f"{table}.{key}": value for table in written for key, value in _entries(written[table])}
    wanted = {name.removesuffix("."): value for name, value in tables.items()}
    assert {name: ended.data["settings"][name]["text"] for name in wanted} == wanted


def _entries(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else [("", value)]


def test_canaries_keep_their_medians(old: Path) -> None:
    """The facts of stored canaries are the medians and the count of the earlier version's canaries."""
    assert canary_record.facts(old / "state", COPY) == {
        "canary_record_clock_mhz": 1935.0,
        "canary_record_copy_bytes_count": 4.1e12,
        "canary_record_count": 3,
    }


def test_signing_key_survives_an_upgrade(gpuwatch: Gpuwatch, old: Path) -> None:
    """A store's signing key stays the same over an upgrade, so that trust in the key continues."""
    assert gpuwatch("verify", "--key").out == (old / "signer.pub").read_text()


def test_daemon_continues_an_old_store(tmp_path: Path) -> None:
    """A daemon takes over the earlier version's store, adds a window, and loses no window."""
    old_version.unpack(tmp_path)
    before = _windows(tmp_path / "state")
    with live.running(tmp_path) as running:
        with product.window("after", settings=running.settings, claim=Claim.BURST) as w:
            pass
        assert w.verdict.findings
    after = _windows(tmp_path / "state")
    assert {run: after.get(run) for run in before} == before
    assert len(after) == len(before) + 1


def _windows(state: Path) -> dict[str, tuple[str, str]]:
    with sqlite3.connect(state / "gpuwatch.db") as connection:
        return {run: (label, status) for run, label, status in connection.execute("SELECT id, label, status FROM runs")}
