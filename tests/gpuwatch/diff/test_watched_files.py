"""Tests of the wait for changed files: a change of a source or of an included file ends the wait."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuwatch.diff.include_files import read_stamps, wait_for_change


class ChangesAt:
    """A stop signal that changes the file at the third poll, and ends an unsuccessful wait at the tenth."""

    def __init__(self, file: Path) -> None:
        self.file, self.looks_count = file, 0

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float | None = None) -> bool:
        self.looks_count += 1
        if self.looks_count == 3:
            os.utime(self.file, ns=(1, 1))
        return self.looks_count >= 10


@pytest.mark.parametrize("changed", ["a.cu", "part.cuh"])
def test_change_ends_the_wait(tmp_path: Path, changed: str) -> None:
    (tmp_path / "a.cu").write_text('#include "part.cuh"\n')
    (tmp_path / "part.cuh").write_text("\n")
    signal = ChangesAt(tmp_path / changed)
    wait_for_change([tmp_path / "a.cu"], signal)
    assert signal.looks_count == 3


def test_missing_file_has_no_modification_time(tmp_path: Path) -> None:
    assert read_stamps([tmp_path / "none.cu"]) == {tmp_path / "none.cu": None}
