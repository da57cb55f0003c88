"""Tests of sides from revisions: HEAD, another revision, another repository, and removed worktrees."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from gpuwatch.comparing import checkouts
from gpuwatch.diff.sides import Side, read_sides
from gpuwatch.errors import UsageError
from tests.gpuwatch.cli.conftest import Gpuwatch
from tests.gpuwatch.diff.conftest import WriteSource

FIRST, SECOND = "// first\n", "// second\n"


def git(*arguments: str) -> str:
    named = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    return subprocess.run(["git", *named, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with two revisions, made once and copied by each test."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "k.cu").write_text(FIRST)
    (folder / "gone.cu").write_text(FIRST)
    git("-C", str(folder), "init", "-q", "-b", "main")
    git("-C", str(folder), "add", ".")
    git("-C", str(folder), "commit", "-q", "-m", "one")
    git("-C", str(folder), "tag", "v1")
    (folder / "k.cu").write_text(SECOND)
    (folder / "gone.cu").unlink()
    git("-C", str(folder), "commit", "-q", "-am", "two")
    return folder


@pytest.fixture
def repository(prepared: Path, source: WriteSource) -> Path:
    folder = source("k.cu", SECOND).parent
    shutil.copytree(prepared, folder, dirs_exist_ok=True)
    return folder


def worktrees(repository: Path) -> list[str]:
    """Return the worktrees that git has registered, without the repository's main worktree."""
    folder = repository / ".git" / "worktrees"
    return sorted(each.name for each in folder.iterdir()) if folder.exists() else []


def texts(sides: tuple[Side, Side]) -> list[str]:
    return [side.path.read_text() for side in sides]


def test_two_files_are_two_sides(repository: Path) -> None:
    a, b = read_sides(("k.cu", "./k.cu:name<float, 3>"), None)
    assert (a.path, a.kernel, a.language) == (Path("k.cu"), "", "cuda")
    assert (b.kernel, b.revision) == ("name<float, 3>", None)


def test_kernel_in_a_namespace_keeps_its_colons(repository: Path) -> None:
    assert read_sides(("k.cu:lib::k", "k.cu"), None)[0].kernel == "lib::k"


def test_single_file_is_compared_with_head(repository: Path, source: WriteSource) -> None:
    source("k.cu", "// edited\n")
    with checkouts.cleaned_up():
        assert texts(read_sides(("k.cu",), None)) == [SECOND, "// edited\n"]
    assert worktrees(repository) == []


def test_single_file_is_compared_with_a_revision(repository: Path) -> None:
    with checkouts.cleaned_up():
        sides = read_sides(("k.cu:k",), "v1")
        assert texts(sides) == [FIRST, SECOND]
        assert sides[0].shown == "k.cu:k@v1"
        place = sides[0].path
    assert not place.exists()


def test_folder_at_a_revision_names_any_file(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The file need not be in the working tree, and the folder may be another repository."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("own.cu").write_text("// own\n")
    with checkouts.cleaned_up():
        sides = read_sides((f"{repository}@v1:gone.cu:k", "own.cu"), None)
        assert texts(sides) == [FIRST, "// own\n"]
        assert (sides[0].kernel, sides[0].revision) == ("k", "v1")


def test_address_at_a_revision_is_cloned_and_removed(repository: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    with checkouts.cleaned_up():
        sides = read_sides((f"file://{repository}@v1:gone.cu:k", "k.cu"), None)
        assert texts(sides) == [FIRST, SECOND]
        assert list(home.glob("gpuwatch-clone-*"))
    assert not list(home.glob("gpuwatch-*"))
    assert worktrees(repository) == []


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("https://host/lib.git@v1:src/k.cu", "https://host/lib.git"),
        ("git@host.org:lib.git@main:k.cu:scan", "git@host.org:lib.git"),
        ("ssh://git@host/lib@v1.2:a@2/k.cu", "ssh://git@host/lib"),
    ],
)
def test_at_sign_of_the_revision_ends_an_address(
    repository: Path, source: WriteSource, monkeypatch: pytest.MonkeyPatch, text: str, address: str
) -> None:
    asked = source("git", '#!/bin/sh\necho "$@" > asked\nexit 1\n').parent / "asked"
    (repository / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(repository), prepend=":")
    with checkouts.cleaned_up(), pytest.raises(UsageError, match="that git can clone without asking for a password"):
        read_sides((text, "k.cu"), None)
    assert asked.read_text().endswith(f"-- {address} tree\n")


def test_revision_may_be_an_earlier_state_of_a_name(repository: Path) -> None:
    with checkouts.cleaned_up():
        assert texts(read_sides((".@HEAD@{1}:k.cu", "k.cu"), None)) == [FIRST, SECOND]


@pytest.mark.parametrize("address", ["ext::sh -c touch% x", "--upload-pack=x", "https://127.0.0.1:9/x"])
def test_address_runs_no_command(repository: Path, address: str) -> None:
    with checkouts.cleaned_up(), pytest.raises(UsageError):
        read_sides((f"{address}@v1:k.cu", "k.cu"), None)
    assert not Path("x").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (".@v9:k.cu", "expected a revision of the repository of ., found 'v9'"),
        (".@--output=x:k.cu", "found '--output=x'"),
        (".@v1:no.cu", "expected no.cu in revision v1, found none there"),
        (".@v1:../../../../etc/x.cu", "found none there"),
    ],
)
def test_revision_without_the_file_is_refused(repository: Path, text: str, words: str) -> None:
    with checkouts.cleaned_up(), pytest.raises(UsageError) as refused:
        read_sides((text, "k.cu"), None)
    assert words in str(refused.value)
    assert worktrees(repository) == []
    assert not Path("x").exists()


def test_unknown_revision_is_refused(repository: Path) -> None:
    with pytest.raises(UsageError, match="--at: expected a revision"):
        read_sides(("k.cu",), "--upload-pack=x")


def test_failing_git_is_named_with_the_users_text(repository: Path) -> None:
    (repository / ".git" / "worktrees").write_text("")  # git cannot make a worktree
    for sides, at, shown in (((".@v1:k.cu", "k.cu"), None, ".@v1:k.cu"), (("k.cu",), "v1", "--at")):
        with (
            checkouts.cleaned_up(),
            pytest.raises(UsageError, match=rf"^{re.escape(shown)}: expected git to add a worktree of "),
        ):
            read_sides(sides, at)


def test_missing_git_names_no_option(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository))
    with checkouts.cleaned_up(), pytest.raises(UsageError, match=r"^expected the command git, found none; install git$"):
        read_sides((".@v1:k.cu", "k.cu"), None)


def test_revision_is_compiled_with_the_revisions_headers(repository: Path, gpuwatch: Gpuwatch, source: WriteSource) -> None:
    """An include folder that a flag names in the working tree is mapped to the revision, too."""
    (repository / "include").mkdir()
    source("include/amount.cuh", "#define AMOUNT 1.0f\n")
    source("k.cu", "#include <amount.cuh>\n__global__ void k(float* x) { x[0] = x[0] * x[1] + AMOUNT; }\n")
    git("add", ".")
    git("commit", "-q", "-m", "three")
    source("include/amount.cuh", "#define AMOUNT x[2] / 3.0f\n")
    found = gpuwatch("diff", "k.cu", "--json", "-", "--", "-I", "include").data
    assert found["sides"][0]["flags"] == found["sides"][1]["flags"] == ["-arch=sm_90", "-I", "include"]
    assert not found["kernels"][0]["same_code"]
    assert worktrees(repository) == []
    source("include/amount.cuh", "#define AMOUNT 1.0f\n")
    assert gpuwatch("diff", "k.cu", "--json", "-", "--", "-I", "include").data["kernels"][0]["same_code"]
