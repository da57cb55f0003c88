"""The modules of a checked-out revision, kept apart from the working tree's modules of the same names."""

import builtins
import contextlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import SOURCE_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from gpuwatch.errors import UsageError


class _TreeLoader(SourceFileLoader):
    """A loader of source files that keeps later imports in the tree, also inside functions."""

    def __init__(self, name: str, path: str, tree: "SourceTree") -> None:
        super().__init__(name, path)
        self._tree = tree

    def exec_module(self, module: ModuleType) -> None:
        # A function keeps the built-ins that its module had at its definition.
        vars(module)["__builtins__"] = self._tree.builtins
        super().exec_module(module)


class SourceTree:
    """One revision of a repository: ``place`` holds its files, ``top`` those of the working tree.

    While its modules run, and at each of their later imports, ``sys.path`` and ``sys.modules`` show ``place`` instead of
    ``top``.  The tree does not redirect ``importlib.import_module`` in a function that runs later.
    """

    def __init__(self, top: Path, place: Path, folder: Path) -> None:
        """Prepare the tree; ``folder``, inside ``place``, holds the file to execute."""
        self._top, self._place = top.resolve(), place.resolve()
        self._modules: dict[str, ModuleType] = {}
        self._foreign: set[str] = set()
        # The top and src come last: installed packages win over folders of the same name.
        places = [str(folder), *map(self.mapped, sys.path), str(self._place), str(self._place / "src")]
        self._path = list(dict.fromkeys(places))
        self.builtins: dict[str, Any] = {**vars(builtins), "__import__": self._import}

    def execute(self, name: str, source: Path) -> ModuleType:
        """Execute a file of the tree as a module of this name; ``sys.modules`` keeps the module.

        Raises UsageError: for a file whose name is no Python file's.  Exceptions of the file propagate.
        """
        loader = _TreeLoader(name, str(source), self)
        spec = importlib.util.spec_from_file_location(name, source, loader=loader)
        if spec is None or source.suffix not in SOURCE_SUFFIXES:
            raise UsageError(f"{source.name}: expected a Python file, one whose name ends in .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        with self._shown(), self._working_folder():
            loader.exec_module(module)
        sys.modules[name] = module  # again, because the end of the context removes the tree's modules
        return module

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module of the tree for ``sys.meta_path``; return None for other modules."""
        spec = PathFinder.find_spec(name, self._path if path is None else path, target)
        if spec is None or not self._is_below(spec.origin or next(iter(spec.submodule_search_locations or ()), None)):
            return None
        if isinstance(spec.loader, SourceFileLoader) and spec.origin is not None:
            spec.loader = _TreeLoader(name, spec.origin, self)
        return spec

    def _import(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:  # noqa: A002 - as Python names them
        if level == 0:
            # Return early: an import inside a timed function costs time at each call.
            found = self._modules.get(name)
            if found is not None and all(hasattr(found, each) for each in fromlist or ()):
                return found if fromlist else self._modules.get(name.partition(".")[0], found)
            if name in self._foreign:
                return __import__(name, globals, locals, fromlist, level)
        with self._shown():
            imported = __import__(name, globals, locals, fromlist, level)
        if level == 0 and name in sys.modules and not self._is_of_tree(sys.modules[name]):
            self._foreign.add(name)
        return imported

    @contextlib.contextmanager
    def _shown(self) -> Iterator[None]:
        """Use this tree's modules and folders for imports in the body."""
        if self in sys.meta_path:  # a nested import
            yield
            return
        hidden = {name: each for name, each in list(sys.modules.items()) if self._is_of_tree(each)}
        path = sys.path
        for name in hidden:
            del sys.modules[name]
        sys.modules.update(self._modules)
        sys.path = self._path
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)
            sys.path = path
            self._modules = {name: each for name, each in list(sys.modules.items()) if self._is_of_tree(each)}
            for name in self._modules:
                del sys.modules[name]
            sys.modules.update(hidden)

    @contextlib.contextmanager
    def _working_folder(self) -> Iterator[None]:
        """Resolve relative file names inside the tree while a module runs."""
        here = Path(self.mapped(str(Path.cwd())))
        with contextlib.chdir(here) if here.is_dir() else contextlib.nullcontext():
            yield

    def mapped(self, entry: str) -> str:
        """Return the tree's counterpart of a working-tree folder; other folders, such as a virtual environment, unchanged."""
        folder = Path(entry).resolve()  # "" is the current folder
        if not folder.is_relative_to(self._top):
            return entry
        mapped = self._place / folder.relative_to(self._top)
        return str(mapped) if mapped.is_dir() else entry

    def _is_of_tree(self, module: object) -> bool:
        """Return True for a module of this tree, and for a module of the working tree whose folder this tree has, too."""
        try:
            name = getattr(module, "__name__", None)
            file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
        except Exception:  # noqa: BLE001 - modules may be any objects, with any attributes
            return False
        if name == "__main__":
            return False
        if not isinstance(file, str):
            return False
        if self._is_below(file):
            return True
        folder = Path(file).parent
        return folder.is_relative_to(self._top) and (self._place / folder.relative_to(self._top)).is_dir()

    def _is_below(self, file: str | None) -> bool:
        return file is not None and Path(file).is_relative_to(self._place)
