"""Tests of a store with unreadable JSON."""

from __future__ import annotations

import sqlite3
import time
import zlib
from pathlib import Path

import pytest

from annotate.verdict import Status, Verdict
from gpuwatch.store import Reader
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.store.stored import a_run, feed, opened
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, UUID, stream
from tests.waiting import PATIENCE_S

DEEP = "[" * 100_000
COLUMNS = ["policy", "uuids", "pids", "told", "host", "verdict"]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return the folder of a store of two windows with verdicts; ``spoil`` damages the later one."""
    folder = tmp_path / "state"
    store = opened(folder)
    for name, begun_s in (("aaaa0001", time.time() - 60), ("bbbb0002", time.time())):
        verdict = Verdict(status=Status.VALID, findings=(), claim="sustained", label=name).to_dict()
        store.put_run(a_run(id=name, label=name, begun_wall_s=begun_s, verdicts=(verdict,), uuids=()))
    assert store.flush(PATIENCE_S)
    store.close()
    return folder


def spoil(state: Path, column: str, value: str = DEEP) -> None:
    """Replace the text in a column of the later window."""
    connection = sqlite3.connect(state / "gpuwatch.db")
    if column == "verdict":
        connection.execute("UPDATE verdicts SET verdict = ? WHERE run = 'bbbb0002'", (zlib.compress(value.encode()),))
    else:
        connection.execute(f"UPDATE runs SET {column} = ? WHERE id = 'bbbb0002'", (value,))
    connection.commit()
    connection.close()


@pytest.mark.parametrize("column", COLUMNS)
def test_show_of_deep_json_is_one_line(gpuwatch: Gpuwatch, state: Path, column: str) -> None:
    spoil(state, column)
    for arguments in (("bbbb0002",), ("--last",), ("bbbb0002", "--json")):
        ended = gpuwatch("show", *arguments, "--state", str(state))
        assert ended.code == 1, ended
        assert "bbbb0002" in ended.err
        assert "Traceback" not in ended.err
        assert len([line for line in ended.err.splitlines() if line.startswith("gpuwatch: ")]) == 1
    assert "aaaa0001" in gpuwatch("show", "aaaa0001", "--state", str(state)).out


@pytest.mark.parametrize("column", COLUMNS)
def test_audit_lists_the_other_windows_and_fails(gpuwatch: Gpuwatch, state: Path, column: str) -> None:
    """`audit` lists the other windows and fails, because a gate must not skip an unreadable window."""
    assert gpuwatch("audit", "--state", str(state)).code == 0
    spoil(state, column)
    for arguments in ((), ("--json",), ("--rejudge",)):
        ended = gpuwatch("audit", *arguments, "--state", str(state))
        assert ended.code == 1, ended
        assert "aaaa0001" in ended.out
        assert "Traceback" not in ended.err
        assert "bbbb0002" in ended.err


def test_report_refuses_and_export_omits_deep_json(gpuwatch: Gpuwatch, state: Path) -> None:
    spoil(state, "host")
    ended = gpuwatch("report", "bbbb0002", "--markdown", "--state", str(state))
    assert (ended.code, ended.out) == (1, "")
    assert "Traceback" not in ended.err
    assert gpuwatch("report", "aaaa0001", "--markdown", "--state", str(state)).code == 0
    ended = gpuwatch("export", "--ndjson", "--state", str(state))
    assert "aaaa0001" in ended.out, ended
    assert (ended.code, "bbbb0002" in ended.err) == (0, True)


@pytest.mark.parametrize("depth", range(200, 1000, 50))
def test_json_near_the_depth_limit_causes_no_traceback(gpuwatch: Gpuwatch, state: Path, depth: int) -> None:
    """At these depths one step may accept the JSON that the next step refuses."""
    spoil(state, "verdict", '{"facts":' * depth + "1" + "}" * depth)
    spoil(state, "told", '{"facts":' * depth + "1" + "}" * depth)
    for arguments in (("show", "bbbb0002"), ("show", "bbbb0002", "--json"), ("audit", "--json"), ("audit", "--rejudge")):
        ended = gpuwatch(*arguments, "--state", str(state))
        assert "Traceback" not in ended.err


def test_show_of_deep_process_lists_fails_without_traceback(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    store = opened(tmp_path / "state")
    store.put_run(a_run())
    feed(store, stream(10.0, loaded=True))
    store.close()
    (segment,) = (tmp_path / "state").glob("readings-*.db")
    connection = sqlite3.connect(segment)
    connection.execute("UPDATE census SET present = ?", (DEEP,))
    connection.commit()
    connection.close()
    ended = gpuwatch("show", a_run().id, "--claim", "burst", "--state", str(tmp_path / "state"))
    assert ended.code == 1
    assert "expected readings, found" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("told", [DEEP, "{", "[1]"])
def test_store_accepts_writes_despite_an_unreadable_window(state: Path, told: str) -> None:
    """A store with an unreadable open window still accepts readings, and ends the other open window."""
    connection = sqlite3.connect(state / "gpuwatch.db")
    connection.execute("UPDATE runs SET status = 'open', end_ns = NULL, told = ? WHERE id = 'bbbb0002'", (told,))
    connection.execute("UPDATE runs SET status = 'open', end_ns = NULL WHERE id = 'aaaa0001'")
    connection.commit()
    connection.close()
    store = opened(state)
    feed(store, stream(1.0, loaded=True))
    store.close()
    with Reader(state) as reader:
        run = reader.run("aaaa0001")
        assert (run.status, run.declared["abandoned"]) == ("unproven", True)
        assert len(reader.trace(UUID, BOOT, BEGIN_NS, BEGIN_NS + 10**9).column("power_w"))
