"""Fixtures of the command line, and of source files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.gpuwatch.cli.conftest import gpuwatch, home

__all__ = ["gpuwatch", "home"]

WriteSource: TypeAlias = Callable[..., Path]


@pytest.fixture
def source(home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> WriteSource:
    """Return a function that writes a file into the current folder, which is otherwise empty.

    Each test has the same folder, because cubins contain the folder's path: a known cubin is not disassembled again.
    """
    folder = tmp_path_factory.getbasetemp() / "diff-sources"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    monkeypatch.chdir(folder)

    def write(name: str, text: str) -> Path:
        path = folder / name
        path.write_text(text)
        return path

    return write
