"""Functions from files: as they stand and as committed, byte for byte, whatever the environment says of other repositories."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.comparing import load
from gpuwatch.errors import UsageError


def git(folder: Path, *arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@x", *arguments], check=True, env=environment
    )


@pytest.fixture
def committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose committed function returns 1, and 2 as it stands."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "work" / "variant.py"
    path.parent.mkdir()
    git(path.parent, "init", "-q")
    path.write_text("def f():\n    return 1\n")
    git(path.parent, "add", "variant.py")
    git(path.parent, "commit", "-q", "-m", "first")
    path.write_text("def f():\n    return 2\n")
    return path


def test_a_function_is_loaded_as_it_stands_and_as_committed(committed: Path) -> None:
    assert (load(f"{committed}:f").call(), load(f"{committed}:f", at="HEAD").call()) == (2, 1)


@pytest.mark.parametrize("name", ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"])
def test_a_repository_that_the_environment_names_is_not_asked(
    committed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    assert load(f"{committed}:f", at="HEAD").call() == 1


def test_load_ignores_textconv_of_git(committed: Path) -> None:
    """A file that git is configured to show in another form is loaded as it was committed."""
    (committed.parent / ".gitattributes").write_text("*.py diff=loud\n")
    git(committed.parent, "config", "diff.loud.textconv", "tr a-z A-Z <")
    assert load(f"{committed}:f", at="HEAD").call() == 1


@pytest.mark.parametrize("code", ["0", "1", "'over'", ""])
def test_a_file_that_ends_the_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "script.py").write_text(f"import sys\ndef f(): ...\nsys.exit({code})\n")
    with pytest.raises(UsageError, match=r"script\.py: expected a file that can be imported, found one that calls sys\.exit"):
        load(f"{tmp_path / 'script.py'}:f")
    assert not [name for name in sys.modules if name.startswith("_gpuwatch_variant") and name.endswith("script")]


def test_what_a_file_raises_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "wrong.py").write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        load(f"{tmp_path / 'wrong.py'}:f")
