"""Real daemons for tests: each in its own process, on its own socket and store."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.client import connect
from gpuwatch.config import Settings, load
from gpuwatch.errors import DaemonError

START_S = 30.0


@dataclass(frozen=True)
class Live:
    """A running daemon, and the settings that find it."""

    settings: Settings
    process: subprocess.Popen[bytes]
    log: Path


def settings(folder: Path, source: str = "simulated:steady-copy") -> Settings:
    return load({"source": source, "state": str(folder / "state"), "socket": str(folder / "s")}, environment={"HOME": "/"})


@contextlib.contextmanager
def running(
    folder: Path, source: str = "simulated:steady-copy", *, environment: Mapping[str, str] | None = None
) -> Iterator[Live]:
    """A daemon that answers, stopped cleanly afterwards if the test did not end it."""
    found = settings(folder, source)
    log = folder / "log"
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuwatch", *found.flags(), "daemon"], stderr=file, env={**os.environ, **(environment or {})}
        )
    try:
        wait_for(found, process, log)
        yield Live(found, process, log)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(20)


def wait_for(found: Settings, process: subprocess.Popen[bytes], log: Path) -> None:
    pause = threading.Event()
    for _ in range(int(START_S / 0.05)):
        try:
            connect(found, start=False).close()
        except DaemonError:
            assert process.poll() is None, log.read_text()
            pause.wait(0.05)
        else:
            return
    raise AssertionError(log.read_text())


def until(holds: Callable[[], bool], *, within_s: float = START_S) -> None:
    """Wait for a condition; a test fails where it does not come true in time."""
    pause = threading.Event()
    for _ in range(int(within_s / 0.02)):
        if holds():
            return
        pause.wait(0.02)
    raise AssertionError(f"the condition did not come true within {within_s:g} s")


def ended(pid: int) -> bool:
    """Return whether a process is gone, or waits only for its parent to ask how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return True
