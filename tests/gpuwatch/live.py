"""Daemons for tests, each in a separate process, with socket and store in a folder of the test."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.client.connection import connect
from gpuwatch.config.settings import Settings, load
from gpuwatch.errors import DaemonError
from gpuwatch.interfaces import Run
from gpuwatch.store import Reader
from gpuwatch.store.run import UNFINISHED
from tests.gpuwatch.forked import ForkedPopen
from tests.waiting import PATIENCE_S, wait_until

# The environment in which units and windows start daemons: numpy then starts no threads.
AS_STARTED = {"OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Live:
    """A running daemon, and the settings that find it."""

    settings: Settings
    process: subprocess.Popen[bytes]
    log: Path


def settings(folder: Path, source: str = "simulated:steady-copy") -> Settings:
    """Return settings with store and socket in this folder."""
    return load({"source": source, "state": str(folder / "state"), "socket": str(folder / "s")}, environment={"HOME": "/"})


@contextlib.contextmanager
def running(
    folder: Path, source: str = "simulated:steady-copy", *, environment: Mapping[str, str] | None = None
) -> Iterator[Live]:
    """Run a daemon until the end of the block, and yield the daemon once it answers."""
    found = settings(folder, source)
    log = folder / "log"
    with log.open("ab") as file:
        process = ForkedPopen(
            [sys.executable, "-m", "gpuwatch", *found.flags(), "daemon"],
            stderr=file,
            env={**os.environ, **AS_STARTED, **(environment or {})},
        )
    try:
        wait_for(found, process, log)
        yield Live(found, process, log)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(PATIENCE_S)


def wait_for(found: Settings, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until this daemon answers.  Raises AssertionError: with the log, when the daemon ends or stays silent."""

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            connect(found, start=False).close()
        except DaemonError:
            return False
        return True

    wait_until(answers, what=log.read_text, every_s=0.05)


def judged_run(state: Path, run_id: str) -> Run:
    """Return a run once the store has the verdict: the client gets a verdict before the store commits."""

    def found() -> Run | None:
        with Reader(state) as reader:
            run = reader.run(run_id)
        return None if run.status in UNFINISHED else run

    run = wait_until(found, what=f"the verdict of {run_id} is stored")
    assert run is not None
    return run


def ended(pid: int) -> bool:
    """Return True if a process is gone, or is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return True
