"""A hook that patches a harness when a program imports it.  Until then the hook imports nothing of gpuwatch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

# By module of a harness: the function of gpuwatch that patches the module.
PATCHES = {
    "triton.testing": "gpuwatch.harness.triton_testing:patch_testing",
    "triton.runtime.autotuner": "gpuwatch.harness.triton_tuner:patch_autotuner",
    "torch.utils.benchmark.utils.timer": "gpuwatch.harness.torch_timer:patch_timer",
    "torch._inductor.runtime.benchmarking": "gpuwatch.harness.inductor_tuner:patch_inductor",
    "cupyx.profiler": "gpuwatch.harness.cupy_benchmark:patch_benchmark",
}


class PatchingFinder(MetaPathFinder):
    """A finder that wraps the loaders of the modules in ``PATCHES``, as found by the other finders."""

    def __init__(self) -> None:
        self._finding: set[str] = set()

    def find_spec(self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in PATCHES or fullname in self._finding:
            return None
        self._finding.add(fullname)
        try:
            spec = find_spec(fullname)
        finally:
            self._finding.discard(fullname)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _PatchingLoader(spec.loader, fullname)
        return spec


class _PatchingLoader(Loader):
    """A loader that patches a harness's module after executing it."""

    def __init__(self, loader: Loader, name: str) -> None:
        self._loader = loader
        self._name = name

    def __getattr__(self, name: str) -> object:  # readers of source and data use other methods of the loader
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        apply_patch(self._name, module)


def apply_patch(name: str, module: ModuleType) -> None:
    """Patch an imported module.  A failure leaves the harness alone and prints one line to standard error."""
    place, _, function = PATCHES[name].partition(":")
    try:
        patch: Callable[[ModuleType], None] = getattr(importlib.import_module(place), function)
        patch(module)
    except Exception as error:  # noqa: BLE001 - telemetry must not make the import of a harness fail
        sys.stderr.write(f"gpuwatch: {name} is not watched: {type(error).__name__}: {error}\n")


def install() -> None:
    """Patch the imported harnesses now, and the others at their import; a second call changes nothing."""
    for name in PATCHES:
        if (module := sys.modules.get(name)) is not None:
            apply_patch(name, module)
    if not any(type(finder).__name__ == PatchingFinder.__name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, PatchingFinder())
