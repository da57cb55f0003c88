"""Tests of atomic writing of files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gpuwatch import atomic_write


def test_replace_leaves_only_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        atomic_write.replace(path, b"new", is_synced=True)
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_replace_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / "a").symlink_to(tmp_path / "precious")
    atomic_write.replace(tmp_path / "a", b"new")
    assert (tmp_path / "precious").read_bytes() == b"mine"
    assert not (tmp_path / "a").is_symlink()


@pytest.mark.parametrize(("mode", "expected"), [(None, 0o640), (0o600, 0o600), (0o644, 0o644)])
def test_replace_sets_the_mode_or_applies_the_umask(tmp_path: Path, mode: int | None, expected: int) -> None:
    before = os.umask(0o027)
    try:
        atomic_write.replace(tmp_path / "a", b"new", mode=mode)
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == expected


def test_create_keeps_an_existing_file(tmp_path: Path) -> None:
    atomic_write.create(tmp_path / "a", b"first")
    with pytest.raises(FileExistsError):
        atomic_write.create(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_failed_replace_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="directory"):
        atomic_write.replace(tmp_path / "a", b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    with pytest.raises(FileNotFoundError):
        atomic_write.replace(tmp_path / "nowhere" / "a", b"new")
