"""Fixtures of the command line, and of source files."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import TypeAlias

import pytest

from gpuwatch.diff import toolchain
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


@pytest.fixture(scope="module", autouse=True)
def disassembled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Share nvdisasm's outputs among all workers: several modules compare the same kernels, and a start takes 0.2 s."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "disassembled"
    folder.mkdir(exist_ok=True)
    real = toolchain.run_tool

    def run_tool(command: Sequence[str]) -> CompletedProcess[str]:
        if command[1:2] != ["-json"]:
            return real(command)
        known = folder / hashlib.sha256(Path(command[2]).read_bytes()).hexdigest()
        if known.exists():
            return CompletedProcess(command, 0, known.read_text(encoding="utf-8"), "")
        done = real(command)
        if (done.returncode, done.stderr) == (0, ""):  # a complaint names the temporary file
            part = known.with_suffix(f".{os.getpid()}")
            part.write_text(done.stdout, encoding="utf-8")
            part.rename(known)
        return done

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(toolchain, "run_tool", run_tool)
        yield
