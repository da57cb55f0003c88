"""Arms from files: ``file.py:function``, as it stands or as a revision has it."""

from __future__ import annotations

import atexit
import difflib
import importlib.util
import inspect
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from gpuwatch.errors import UsageError

ARM = "_gpuwatch_arm_"  # how the names of modules begin that hold an arm
_numbers = itertools.count()
# Git's hooks, and some editors, name a repository for every git below them.
_ELSEWHERE = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Loaded:
    """A function of a file, and the file's own ``inputs``, if it has such a function."""

    name: str
    call: Callable[..., object]
    inputs: Callable[[], tuple[Any, ...]] | None


def names_function(text: str) -> bool:
    """Whether an argument means a function of a file, and not a run."""
    return ".py" in text or ":" in text


def load(text: str, *, at: str | None = None) -> Loaded:
    """The function that ``file.py:function`` names, of revision ``at`` if one is named.  Raises UsageError."""
    file, colon, function = text.rpartition(":")
    if not colon or not function.isidentifier() or not file:
        raise UsageError(f"{text!r}: expected FILE.py:FUNCTION")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"{file}: expected a Python file, found {'a folder' if path.is_dir() else 'none'}")
    module = _executed(path, path if at is None else _at_revision(path, at))
    call = getattr(module, function, None)
    if not callable(call):
        known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        near = difflib.get_close_matches(function, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
        where = file if at is None else f"{file} at {at}"
        raise UsageError(f"{where}: expected a function {function!r}, found none; {hint}")
    inputs = getattr(module, "inputs", None)
    return Loaded(text if at is None else f"{text}@{at}", call, inputs if callable(inputs) and inputs is not call else None)


def wants_inputs(call: Callable[..., object]) -> bool:
    """Whether a call must be given something."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):  # a built-in that does not say
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(each.kind in kinds and each.default is inspect.Parameter.empty for each in parameters)


def _executed(named: Path, source: Path) -> ModuleType:
    """The file as a module of its own name; its folder is where it finds its siblings, whatever its revision."""
    folder = str(named.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = f"{ARM}{next(_numbers)}_{named.stem}"
    spec = importlib.util.spec_from_file_location(name, source)
    if spec is None or spec.loader is None:
        raise UsageError(f"{named}: expected a Python file, one whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, SystemExit):  # as from a script without `if __name__ == "__main__":`; it would end us, too
            raise UsageError(
                f"{named}: expected a file that can be imported, found one that calls sys.exit({error.code!r})"
            ) from error
        if isinstance(error, ImportError | SyntaxError | UnicodeDecodeError):
            raise UsageError(f"{named}: expected a file that can be imported, found {type(error).__name__}: {error}") from error
        raise
    return module


def _at_revision(path: Path, revision: str) -> Path:
    """The file as a revision has it, in a folder of ours until this process ends: compilers want to read its source."""
    folder = path.resolve().parent
    if _git(folder, "rev-parse", "--git-dir") is None:
        raise UsageError(f"--at: expected {path} in a git repository, found none")
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise UsageError(f"--at: expected a revision of the repository of {path}, found {revision!r}")
    source = _git(folder, "cat-file", "blob", f"{commit.decode().strip()}:./{path.resolve().name}")
    if source is None:
        raise UsageError(f"--at: expected {path} in revision {revision}, found none there")
    kept = Path(tempfile.mkdtemp(prefix="gpuwatch-at-"))
    atexit.register(shutil.rmtree, kept, ignore_errors=True)
    (kept / path.name).write_bytes(source)
    return kept / path.name


def _git(folder: Path, *arguments: str) -> bytes | None:
    """What git says of the repository around a folder, whatever another one an environment names; None where it fails."""
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False, env=environment)
    except FileNotFoundError:
        raise UsageError("--at: expected git, found no such command") from None
    return done.stdout if done.returncode == 0 else None
