"""Tests of functions from files, in the working tree and at a revision."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.comparing import checkouts, load
from gpuwatch.errors import UsageError


def git(folder: Path, *arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@x", *arguments], check=True, env=environment
    )


@pytest.fixture
def committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a file whose committed function returns 1, and whose working copy returns 2."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "work" / "variant.py"
    path.parent.mkdir()
    git(path.parent, "init", "-q")
    path.write_text("def f():\n    return 1\n")
    git(path.parent, "add", "variant.py")
    git(path.parent, "commit", "-q", "-m", "first")
    path.write_text("def f():\n    return 2\n")
    return path


def test_load_takes_the_working_copy_or_a_revision(committed: Path) -> None:
    assert (load(f"{committed}:f").call(), load(f"{committed}:f", at="HEAD").call()) == (2, 1)


@pytest.mark.parametrize("name", ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"])
def test_load_ignores_repositories_of_the_environment(
    committed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    assert load(f"{committed}:f", at="HEAD").call() == 1


def test_load_ignores_textconv_of_git(committed: Path) -> None:
    (committed.parent / ".gitattributes").write_text("*.py diff=loud\n")
    git(committed.parent, "config", "diff.loud.textconv", "tr a-z A-Z <")
    assert load(f"{committed}:f", at="HEAD").call() == 1


@pytest.mark.parametrize("code", ["0", "1", "'over'", ""])
def test_file_that_calls_sys_exit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "script.py").write_text(f"import sys\ndef f(): ...\nsys.exit({code})\n")
    with pytest.raises(UsageError, match=r"script\.py: expected a file that can be imported, found one that calls sys\.exit"):
        load(f"{tmp_path / 'script.py'}:f")
    assert not [name for name in sys.modules if name.startswith("_gpuwatch_variant") and name.endswith("script")]


def test_exception_of_a_loaded_file_propagates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "wrong.py").write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        load(f"{tmp_path / 'wrong.py'}:f")


class TestTrees:
    """Tests of a revision's whole tree next to the working tree's modules of the same names."""

    @pytest.fixture
    def changed(self, committed: Path) -> Path:
        """Commit a module with helpers, a kernel's file and a package; change values that the module reads."""
        folder = committed.parent
        (folder / "package").mkdir()
        files = {
            "variant.py": (
                "from pathlib import Path\nimport helper\nfrom package import part\n"
                "def f():\n    return helper.value\n"
                "def g():\n    import late\n    from package.later import value\n    return late.value + value\n"
                "def kernel():\n    return Path(__file__).with_name('kernel.cu').read_text()\n"
                "def h():\n    return part.value\n"
                "AT_IMPORT = Path('kernel.cu').read_text()\n"
                "def text():\n    return AT_IMPORT\n"
            ),
            "helper.py": "import deeper\nvalue = deeper.value\n",
            "deeper.py": "value = 'old'\n",
            "late.py": "value = 'old'\n",
            "kernel.cu": "old",
            "package/__init__.py": "",
            "package/part.py": "from package import later\nvalue = later.value\n",
            "package/later.py": "value = 'old'\n",
        }
        for name, text in files.items():
            (folder / name).write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", "second")
        for name in ("deeper.py", "late.py", "kernel.cu", "package/later.py"):
            (folder / name).write_text((folder / name).read_text().replace("old", "new"))
        return committed

    @pytest.fixture
    def here(self, changed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        monkeypatch.chdir(changed.parent)
        yield changed
        for name in ("helper", "deeper", "late", "package", "package.part", "package.later"):
            sys.modules.pop(name, None)

    @pytest.mark.parametrize(
        ("function", "old"), [("f", "old"), ("g", "oldold"), ("kernel", "old"), ("h", "old"), ("text", "old")]
    )
    def test_revision_tree_runs_next_to_the_working_tree(self, here: Path, function: str, old: str) -> None:
        """Helpers, imports inside functions, packages and files next to the module come from the revision."""
        with checkouts.cleaned_up():
            before, today = load(f"{here}:{function}", at="HEAD"), load(f"{here}:{function}")
            for _ in range(2):
                assert (before.call(), today.call()) == (old, old.replace("old", "new"))

    def test_loading_order_does_not_matter(self, here: Path) -> None:
        with checkouts.cleaned_up():
            today, before = load(f"{here}:g"), load(f"{here}:g", at="HEAD")
            assert (today.call(), before.call(), today.call()) == ("newnew", "oldold", "newnew")

    def test_installed_modules_are_shared(self, here: Path) -> None:
        here.write_text("import json, numpy\ndef f():\n    return json, numpy\n")
        git(here.parent, "commit", "-q", "-a", "-m", "third")
        with checkouts.cleaned_up():
            assert load(f"{here}:f", at="HEAD").call() == load(f"{here}:f").call()

    def test_worktree_is_removed_after_use(self, here: Path) -> None:
        with checkouts.cleaned_up():
            place = Path(load(f"{here}:f", at="HEAD").call.__code__.co_filename)
            assert place.is_file()
            assert len(worktrees(here.parent)) == 2
        assert not place.parent.parent.exists()
        assert len(worktrees(here.parent)) == 1

    @pytest.mark.parametrize("text", ["1 / 0\n", "raise KeyboardInterrupt\n", "import absent\n", "import sys\nsys.exit(3)\n"])
    def test_worktree_is_removed_after_a_failure(self, here: Path, text: str) -> None:
        here.write_text(text)
        git(here.parent, "commit", "-q", "-a", "-m", "broken")
        with pytest.raises(BaseException), checkouts.cleaned_up():  # noqa: B017, PT011 - whatever the file raises
            load(f"{here}:f", at="HEAD")
        assert len(worktrees(here.parent)) == 1

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
    def test_worktree_of_a_killed_process_is_removed(self, here: Path, number: signal.Signals) -> None:
        """A process that gets SIGTERM removes its worktree; after SIGKILL the next use removes the worktree."""
        script = (
            "import os, sys\nfrom gpuwatch.comparing import checkouts, load\n"
            f"with checkouts.cleaned_up():\n    load({str(here)!r} + ':f', at='HEAD')\n    os.kill(os.getpid(), {int(number)})\n"
        )
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
        assert ended.returncode != 0
        assert len(worktrees(here.parent)) == (1 if number is signal.SIGTERM else 2)
        with checkouts.cleaned_up():
            load(f"{here}:f", at="HEAD")
            assert len(worktrees(here.parent)) == 2
        assert len(worktrees(here.parent)) == 1

    def test_worktree_in_use_is_left_alone(self, here: Path) -> None:
        with checkouts.cleaned_up():
            first = load(f"{here}:kernel", at="HEAD")
            load(f"{here}:f", at="HEAD")
            assert first.call() == "old"

    def test_hooks_of_the_repository_do_not_run(self, here: Path) -> None:
        hook = here.parent / ".git" / "hooks" / "post-checkout"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {here.parent}/ran\n")
        hook.chmod(0o755)
        with checkouts.cleaned_up():
            load(f"{here}:f", at="HEAD")
        assert not (here.parent / "ran").exists()


def worktrees(folder: Path) -> list[str]:
    listed = subprocess.run(["git", "-C", str(folder), "worktree", "list"], capture_output=True, check=True, text=True)
    return listed.stdout.splitlines()
