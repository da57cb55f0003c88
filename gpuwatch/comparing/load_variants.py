"""Variants from files: ``file.py:function``, from the working tree or from the whole tree of a revision."""

import difflib
import importlib.util
import inspect
import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from gpuwatch.comparing import checkouts
from gpuwatch.comparing.source_trees import SourceTree
from gpuwatch.errors import UsageError

MODULE_PREFIX = "_gpuwatch_variant_"  # prefix of the modules that hold a variant
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Loaded:
    """A function of a file, and the file's functions ``inputs`` and ``check_inputs``, if it has them."""

    name: str
    call: Callable[..., object]
    inputs: Callable[..., tuple[Any, ...]] | None
    check_inputs: Callable[..., Sequence[tuple[Any, ...]]] | None = None


def names_function(text: str) -> bool:
    """Return True if an argument names a function of a file rather than a run."""
    return ".py" in text or ":" in text


def load(text: str, *, at: str | None = None) -> Loaded:
    """Load the function that ``file.py:function`` names, of revision ``at`` if one is named.

    Raises UsageError: for other text, a missing file, revision or function, and a file that cannot be imported.
    """
    file, colon, function = text.rpartition(":")
    if not colon or not function.isidentifier() or not file:
        raise UsageError(f"{text!r}: expected FILE.py:FUNCTION")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"{file}: expected a Python file, found {'a folder' if path.is_dir() else 'none'}")
    return _take(
        _load_module(path, at), function, file if at is None else f"{file} at {at}", text if at is None else f"{text}@{at}"
    )


def load_checked_out(tree: SourceTree, source: Path, function: str, shown: str) -> Callable[..., object]:
    """Load a function of a checked-out file; ``shown`` is the user's text.

    Raises UsageError: when the function is missing, or the file cannot be imported.
    """
    return _take(_load_module(source, tree), function, shown, shown).call


def _take(module: ModuleType, function: str, where: str, name: str) -> Loaded:
    call = getattr(module, function, None)
    if not callable(call):
        known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        near = difflib.get_close_matches(function, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
        raise UsageError(f"{where}: expected a function {function!r}, found none; {hint}")
    given = [getattr(module, each, None) for each in ("inputs", "check_inputs")]
    inputs, check_inputs = (each if callable(each) and each is not call else None for each in given)
    return Loaded(name, call, inputs, check_inputs)


def wants_inputs(call: Callable[..., object]) -> bool:
    """Return True if a call needs a positional argument."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(each.kind in kinds and each.default is inspect.Parameter.empty for each in parameters)


def _load_module(named: Path, revision: str | SourceTree | None) -> ModuleType:
    """Execute the file as a module with a unique name; the module can import from the file's folder.

    Raises UsageError: when the file cannot be imported, or calls sys.exit.
    """
    name = f"{MODULE_PREFIX}{next(_numbers)}_{named.stem}"
    try:
        if revision is None:
            return _execute(name, named)
        tree, source = (revision, named) if isinstance(revision, SourceTree) else checkouts.check_out(named, revision)
        return tree.execute(name, source)
    except BaseException as error:
        sys.modules.pop(name, None)
        if isinstance(error, SystemExit):  # a script without `if __name__ == "__main__":` would end this process
            raise UsageError(
                f"{named}: expected a file that can be imported, found one that calls sys.exit({error.code!r})"
            ) from error
        if isinstance(error, ImportError | SyntaxError | UnicodeDecodeError):
            raise UsageError(f"{named}: expected a file that can be imported, found {type(error).__name__}: {error}") from error
        raise


def _execute(name: str, source: Path) -> ModuleType:
    folder = str(source.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, source)
    if spec is None or spec.loader is None:
        raise UsageError(f"{source}: expected a Python file, one whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
