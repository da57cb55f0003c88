"""Variants from files: ``file.py:function``, from the working tree or from a revision."""

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

MODULE_PREFIX = "_gpuwatch_variant_"  # of the modules that hold a variant
_numbers = itertools.count()
# Git's hooks, and some editors, name a repository for every git below them.
_GIT_VARIABLES = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Loaded:
    """A function of a file, and the file's function ``inputs``, if it has one."""

    name: str
    call: Callable[..., object]
    inputs: Callable[[], tuple[Any, ...]] | None


def names_function(text: str) -> bool:
    """Return True if an argument means a function of a file, and not a run."""
    return ".py" in text or ":" in text


def load(text: str, *, at: str | None = None) -> Loaded:
    """Load the function that ``file.py:function`` names, of revision ``at`` if one is named.

    Raises UsageError: when the file, the revision or the function is missing, or the file cannot be imported.
    """
    file, colon, function = text.rpartition(":")
    if not colon or not function.isidentifier() or not file:
        raise UsageError(f"{text!r}: expected FILE.py:FUNCTION")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"{file}: expected a Python file, found {'a folder' if path.is_dir() else 'none'}")
    module = _execute(path, path if at is None else _check_out(path, at))
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
    """Return True if a call needs an argument."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):  # a built-in without a signature
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(each.kind in kinds and each.default is inspect.Parameter.empty for each in parameters)


def _execute(named: Path, source: Path) -> ModuleType:
    """Execute the file as a module with its own name; it imports its siblings from its folder, whatever its revision."""
    folder = str(named.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = f"{MODULE_PREFIX}{next(_numbers)}_{named.stem}"
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


def _check_out(path: Path, revision: str) -> Path:
    """Write the revision's file into a temporary folder until this process ends: compilers read its source."""
    folder = path.resolve().parent
    if _git(folder, "rev-parse", "--git-dir") is None:
        raise UsageError(f"--at: expected {path} in a git repository, found none")
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise UsageError(f"--at: expected a revision of the repository of {path}, found {revision!r}")
    source = _git(folder, "cat-file", "blob", f"{commit.decode().strip()}:./{path.resolve().name}")
    if source is None:
        raise UsageError(f"--at: expected {path} in revision {revision}, found none there")
    checkout = Path(tempfile.mkdtemp(prefix="gpuwatch-at-"))
    atexit.register(shutil.rmtree, checkout, ignore_errors=True)
    (checkout / path.name).write_bytes(source)
    return checkout / path.name


def _git(folder: Path, *arguments: str) -> bytes | None:
    """Run git in the repository around a folder, whatever repository the environment names; None where it fails."""
    environment = {name: value for name, value in os.environ.items() if name not in _GIT_VARIABLES}
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False, env=environment)
    except FileNotFoundError:
        raise UsageError("--at: expected git, found no such command") from None
    return done.stdout if done.returncode == 0 else None
