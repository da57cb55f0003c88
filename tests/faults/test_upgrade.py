"""Tests of a daemon that another version replaces while windows are open."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gpuwatch
from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DaemonError
from gpuwatch.store import Reader
from gpuwatch.wire.messages import OLDEST_PROTOCOL, PROTOCOL
from tests.faults import stores
from tests.gpuwatch import live
from tests.waiting import PATIENCE_S, sample_for, wait_until

ROOT = Path(__file__).resolve().parents[2]

# A later version, which supports the given range of protocols.
LATER = """
import sys
from gpuwatch.wire import messages as wire
from gpuwatch.cli import main
wire.OLDEST_PROTOCOL, wire.PROTOCOL = (int(each) for each in sys.argv[1:3])
sys.exit(main(sys.argv[3:]))
"""


@contextmanager
def later_version(settings: Settings, oldest: int, newest: int) -> Iterator[None]:
    """Run a daemon of a later version until the end of the block."""
    command = [sys.executable, "-c", LATER, str(oldest), str(newest), *settings.flags(), "daemon"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        wait_until(lambda: _answers(settings, process), what="the later version answers", every_s=0.05)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _answers(settings: Settings, process: subprocess.Popen[bytes]) -> bool:
    try:
        connect(settings, start=False).close()
    except DaemonError as error:
        assert process.poll() is None
        return error.code == "protocol"
    return True


def test_windows_open_across_an_upgrade_end_unproven(tmp_path: Path) -> None:
    """Windows open during an upgrade end unproven, closed ones keep their verdicts, and later ones are judged or refused."""
    with live.running(tmp_path) as old:
        settings = old.settings
        with gpuwatch.window("judged before", settings=settings) as before:
            sample_for(0.3)
        assert before.verdict.findings
        closed = gpuwatch.window("closed before", settings=settings).__enter__()
        closed.__exit__(None, None, None)  # the verdict is not requested yet
        with gpuwatch.window("across", settings=settings) as across:
            old.process.terminate()
            assert old.process.wait(PATIENCE_S) == 0
            with later_version(settings, OLDEST_PROTOCOL, PROTOCOL + 1):  # still serves this client
                with gpuwatch.window("after", settings=settings) as after:
                    sample_for(0.3)
                assert after.verdict.findings
                assert closed.verdict.findings, "the later daemon finds an earlier daemon's verdict"
    assert across.verdict.status == "unproven"
    assert "went away" in across.verdict.why
    with later_version(settings, PROTOCOL + 1, PROTOCOL + 2):  # too new for this client
        with gpuwatch.window("too old", settings=settings) as w:
            ran = True
        assert ran
        assert w.verdict.status == "unproven"
        assert w.verdict.why == f"expected protocol {PROTOCOL + 1} or newer, found {PROTOCOL}; upgrade the client"
    stores.check_files(settings.state)
    stores.check_rows(settings.state)
    with Reader(settings.state) as reader:
        said = {run.label: (run.status, run.declared.get("abandoned")) for run in reader.runs()}
    assert said["across"][1] == "the daemon stopped while the window was open"
    assert set(said) == {"judged before", "closed before", "across", "after"}


def test_store_of_a_later_version_stays_unchanged(tmp_path: Path) -> None:
    """A window on a store of a later version is unproven with a remedy, and the store stays unchanged."""
    with live.running(tmp_path) as old:
        settings = old.settings
    path = settings.state / "gpuwatch.db"
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('gpuwatch', '999', '')")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with gpuwatch.window("downgraded", settings=settings) as w:
        ran = True
    assert ran
    assert w.verdict.status == "unproven"
    assert "found 999; use a newer gpuwatch, or another folder with --state" in w.verdict.why
    assert path.read_bytes() == before
