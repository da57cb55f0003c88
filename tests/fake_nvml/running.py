"""Programs that run on the double: each in its own process, where it loads the library as it would a driver's."""

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


def told(scene: Scene, library: Path, module: str, *arguments: str) -> Any:
    """What a module of ours prints as JSON when run on the double."""
    environment = {**os.environ, **scene.environment(library)}
    done = forked.run(
        [sys.executable, "-m", f"tests.fake_nvml.{module}", *arguments], environment=environment, timeout_s=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Watch:
    """A daemon that watches the double's GPUs."""

    live: Live
    scene: Scene
    library: Path

    def command(self, *arguments: str, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """Any command of gpuwatch, beside this daemon and in front of the same driver."""
        return command(self.scene, self.library, *self.live.settings.flags(), *arguments, timeout_s=timeout_s)

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        with connect(self.live.settings, start=False) as client:
            yield client

    def status(self) -> dict[str, Any]:
        with self.client() as client:
            return client.status()

    def gpu(self, index: int) -> dict[str, Any]:
        """What the daemon's status says of one GPU."""
        uuid = self.scene.gpus[index].uuid
        return next(gpu for gpu in self.status()["gpus"] if gpu["uuid"] == uuid)

    def until(self, said: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The status as soon as it says so."""
        status: dict[str, Any] = {}

        def is_said() -> bool:
            status.clear()
            status.update(self.status())
            return said(status)

        wait_until(is_said, what=lambda: f"{json.dumps(status, indent=1)}\n{self.live.log.read_text()}", every_s=0.02)
        return status


@contextlib.contextmanager
def watching(folder: Path, scene: Scene, library: Path, environment: Mapping[str, str] | None = None) -> Iterator[Watch]:
    """A real daemon on the double."""
    with live.running(folder, "nvml", environment={**scene.environment(library), **(environment or {})}) as found:
        yield Watch(found, scene, library)


def command(scene: Scene, library: Path, *arguments: str, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "160", **scene.environment(library)}
    return forked.run([sys.executable, "-m", "gpuwatch", *arguments], environment=environment, timeout_s=timeout_s)
