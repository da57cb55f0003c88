"""Fixtures for commands in an empty home, run in this process like `gpuwatch`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gpuwatch.cli import main
from gpuwatch.config.settings import Settings
from tests.gpuwatch.forked import daemons_of_windows
from tests.gpuwatch.live import running


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


Gpuwatch: TypeAlias = Callable[..., Ended]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder as HOME and TMPDIR, without GPUWATCH_ and XDG_ variables, COLUMNS and colours."""
    for name in [name for name in os.environ if name.startswith(("GPUWATCH_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


@pytest.fixture
def gpuwatch(home: Path, capfd: pytest.CaptureFixture[str]) -> Gpuwatch:
    """Return a function that runs a command in this process."""

    def call(*arguments: str) -> Ended:
        capfd.readouterr()
        with daemons_of_windows():
            code = main(list(arguments))
        said = capfd.readouterr()
        return Ended(code, said.out, said.err)

    return call


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Run a real daemon on a simulated GPU that copies without end; yield the settings that find the daemon."""
    with running(tmp_path_factory.mktemp("daemon")) as live:
        yield live.settings
