"""Tests of a full or read-only disk: a running daemon still serves and stores windows, and a start fails in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch.client.connection import connect
from gpuwatch.config import settings as config
from gpuwatch.store import Reader
from tests.busy_machine import BUSY_MACHINE
from tests.faults import stores
from tests.gpuwatch import forked
from tests.gpuwatch.live import Live, running
from tests.waiting import PATIENCE_S, sample_for, wait_until

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="mounting a small file system needs root")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 3 MiB as the state folder."""
    folder = tmp_path / "state"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "gw-faults", str(folder)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def window(live: Live, label: str) -> gpuwatch.Window:
    """Measure a window of 0.4 s."""
    with gpuwatch.window(label, settings=live.settings, policy=BUSY_MACHINE) as w:
        sample_for(0.4)
    return w


def store_of(live: Live) -> dict[str, object]:
    with connect(live.settings) as client:
        found: dict[str, object] = client.status()["store"]
        return found


def test_daemon_serves_windows_while_the_disk_is_full(disk: Path, tmp_path: Path) -> None:
    """The log names the start and end of the shortage, and every window is stored."""
    with running(tmp_path) as live:
        assert window(live, "before").verdict.findings
        full = disk / "somebody's"
        with full.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(4096))
        wait_until(lambda: store_of(live)["disk_full"], what="the disk is full")
        w = window(live, "meanwhile")
        assert w.run_id is not None, "windows are served"
        assert w.verdict.why or w.verdict.findings
        full.unlink()
        wait_until(lambda: not store_of(live)["disk_full"], what="the disk has room again")
        assert window(live, "after").verdict.findings
        log = live.log.read_text()
        assert log.count("the disk is full") == 2  # start and end of the shortage
        assert "Traceback" not in log
    with Reader(disk) as reader:
        assert {run.label for run in reader.runs()} == {"before", "meanwhile", "after"}
    stores.check_files(disk)


def test_daemon_start_on_a_full_disk_is_a_one_line_error(disk: Path, tmp_path: Path) -> None:
    with (disk / "somebody's").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    done = start(tmp_path)
    assert done.returncode != 0
    assert done.stderr.strip().count("\n") == 0, done.stderr
    assert str(disk) in done.stderr
    (disk / "somebody's").unlink()
    with running(tmp_path) as live:
        assert window(live, "then").verdict.findings


def test_read_only_disk_is_a_one_line_error(disk: Path, tmp_path: Path) -> None:
    """A read-only disk is a one-line error of the daemon, and the reason of an unproven window."""
    remount(disk, "ro")
    done = start(tmp_path)
    assert done.returncode != 0
    assert done.stderr.strip().count("\n") == 0, done.stderr
    assert "Read-only file system" in done.stderr
    settings = config.load(
        {"source": "simulated:steady-copy", "state": str(disk), "socket": str(tmp_path / "s")}, environment={"HOME": "/"}
    )
    with forked.daemons_of_windows(), gpuwatch.window("nowhere to keep it", settings=settings) as w:
        ran = True
    assert ran
    assert w.verdict.status == "unproven"
    assert "\n" not in w.verdict.why


def start(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run a daemon to its end."""
    places = [f"--state={tmp_path / 'state'}", f"--socket={tmp_path / 's'}", "--source=simulated:steady-copy"]
    return forked.run([sys.executable, "-m", "gpuwatch", *places, "daemon"], timeout_s=PATIENCE_S)
