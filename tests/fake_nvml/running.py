"""Programs on the mock driver, each in a separate process.

The mock driver replaces the real driver through LD_LIBRARY_PATH.  The loader reads that variable only when a process starts,
so a forked process loads the library by path before its program runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuwatch.client.connection import Client, connect
from tests.fake_nvml.scene import Scene
from tests.gpuwatch import forked, live
from tests.gpuwatch.live import Live
from tests.waiting import PATIENCE_S, wait_until


def output_of(scene: Scene, library: Path, module: str, *arguments: str) -> Any:
    """Return the JSON output of a module of this folder on the mock driver."""
    environment = {**os.environ, **scene.environment(library)}
    done = forked.run(
        [sys.executable, "-m", f"tests.fake_nvml.{module}", *arguments], environment=environment, timeout_s=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Watch:
    """A daemon that watches the mock driver's GPUs."""

    live: Live
    scene: Scene
    library: Path

    def command(self, *arguments: str, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """Run a gpuwatch command with this daemon's settings and driver."""
        return command(self.scene, self.library, *self.live.settings.flags(), *arguments, timeout_s=timeout_s)

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        with connect(self.live.settings, start=False) as client:
            yield client

    def status(self) -> dict[str, Any]:
        with self.client() as client:
            return client.status()

    def gpu(self, index: int) -> dict[str, Any]:
        uuid = self.scene.gpus[index].uuid
        return next(gpu for gpu in self.status()["gpus"] if gpu["uuid"] == uuid)

    def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the status once it fulfils the condition."""
        status: dict[str, Any] = {}

        def is_met() -> bool:
            status.clear()
            status.update(self.status())
            return condition(status)

        wait_until(is_met, what=lambda: f"{json.dumps(status, indent=1)}\n{self.live.log.read_text()}", every_s=0.02)
        return status


@contextlib.contextmanager
def watching(folder: Path, scene: Scene, library: Path, environment: Mapping[str, str] | None = None) -> Iterator[Watch]:
    """Run a daemon on the mock driver."""
    with live.running(folder, "nvml", environment={**scene.environment(library), **(environment or {})}) as found:
        yield Watch(found, scene, library)


def command(scene: Scene, library: Path, *arguments: str, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "160", **scene.environment(library)}
    return forked.run([sys.executable, "-m", "gpuwatch", *arguments], environment=environment, timeout_s=timeout_s)
