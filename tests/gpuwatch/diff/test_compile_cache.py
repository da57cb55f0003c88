"""Tests of the cache of compiled kernels, and of a source's include files and folders."""

from __future__ import annotations

import os
from pathlib import Path

from gpuwatch.diff.compiled import FOLDER, CompileCache, Compiled, digest
from gpuwatch.diff.include_files import included_files, map_includes


def test_cache_returns_stored_code(tmp_path: Path) -> None:
    made = Compiled(compiler="NVRTC", flags=("-G",), cubin=b"\x7fELF", ptx="// é", parameters=(("n", "i32"),))
    CompileCache(tmp_path).store("key", made)
    assert CompileCache(tmp_path).read("key") == made
    assert CompileCache(tmp_path).read("other") is None


def test_cache_drops_the_least_recently_used(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path, most_bytes=3500)
    for age, name in enumerate(("old", "used", "new")):
        cache.store(name, Compiled(compiler=name, cubin=bytes(1000)))
        os.utime(tmp_path / FOLDER / name, (age + 1, age + 1))
    assert cache.read("old") is not None  # the read makes "old" the most recently used
    cache.store("last", Compiled(compiler="last", cubin=bytes(1000)))
    assert {each.name for each in (tmp_path / FOLDER).iterdir()} == {"old", "new", "last"}


def test_damaged_cache_file_is_ignored(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path)
    cache.store("key", Compiled(compiler="NVRTC"))
    (tmp_path / FOLDER / "key").write_bytes(b"\xc1damaged")
    assert cache.read("key") is None


def test_unwritable_folder_disables_the_cache(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    cache = CompileCache(tmp_path / "state")
    cache.store("key", Compiled(compiler="NVRTC"))
    assert cache.read("key") is None


def test_digest_depends_on_part_boundaries() -> None:
    assert digest([b"ab", b"c"]) != digest([b"a", b"bc"])


def test_includes_are_followed_through_folders(tmp_path: Path) -> None:
    (tmp_path / "inc").mkdir()
    (tmp_path / "a.cu").write_text('#include "b.cuh"\n# include <c.cuh>\n#include <cuda_fp16.h>\n')
    (tmp_path / "b.cuh").write_text('#include "a.cu"\n')
    (tmp_path / "inc" / "c.cuh").write_text("")
    found = included_files(tmp_path / "a.cu", [tmp_path / "inc"])
    assert found is not None
    assert {each.name for each in found} == {"a.cu", "b.cuh", "c.cuh"}


def test_include_by_a_macro_is_uncertain(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text("#include HEADER\n")
    assert included_files(tmp_path / "a.cu", []) is None


def test_include_flags_are_mapped_in_each_form() -> None:
    flags = ["-I", "a", "-Ib", "--include-path=c", "--include-path", "d", "-O3", "-I"]
    found, folders = map_includes(flags, lambda folder: f"at/{folder}")
    assert [str(each) for each in folders] == ["at/a", "at/b", "at/c", "at/d"]
    assert found == ["-I", "at/a", "-Iat/b", "--include-path=at/c", "--include-path", "at/d", "-O3", "-I"]
