"""Fixtures of the command line, and kernels written for a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.gpuwatch.cli.conftest import gpuwatch, home

__all__ = ["gpuwatch", "home"]

WriteSource: TypeAlias = Callable[..., Path]


@pytest.fixture
def source(home: Path, monkeypatch: pytest.MonkeyPatch) -> WriteSource:
    """Return a function that writes a file into the current folder, which is otherwise empty."""
    folder = home / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def write(name: str, text: str) -> Path:
        path = folder / name
        path.write_text(text)
        return path

    return write
