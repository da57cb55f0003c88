"""Tests of the import hook, of the startup module of `gpuwatch run --auto`, and of patches."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gpuwatch.harness import cupy_benchmark, session
from gpuwatch.harness.patching import has_parameters, name_of, original_of, replace_function
from gpuwatch.harness.startup import gpuwatch_import_hook as hook
from tests.gpuwatch.harness.real_packages import ROOT

STARTUP = ROOT / "gpuwatch" / "harness" / "startup"


def patch_pretended(module: ModuleType) -> None:
    replace_function(module, "measure", lambda original: lambda: original() + 1)


def patch_badly(module: ModuleType) -> None:
    raise RuntimeError("another version")


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on the module path with two mock harnesses, and register patches for both."""
    for name in ("pretended_harness", "pretended_later"):
        (tmp_path / f"{name}.py").write_text("def measure() -> int:\n    return 1\n")
        monkeypatch.delitem(sys.modules, name, raising=False)
    here = __name__
    patches = {"pretended_harness": f"{here}:patch_pretended", "pretended_later": f"{here}:patch_badly"}
    monkeypatch.setattr(hook, "PATCHES", patches)
    monkeypatch.syspath_prepend(tmp_path)
    # An earlier test of this process may have imported gpuwatch.auto, which installs a finder.
    others = [each for each in sys.meta_path if type(each).__name__ != hook.PatchingFinder.__name__]
    monkeypatch.setattr(sys, "meta_path", [hook.PatchingFinder(), *others])
    return tmp_path


def test_import_hook_patches_a_harness_once(pretended: Path) -> None:
    module = importlib.import_module("pretended_harness")
    assert module.measure() == 2
    assert original_of(module.measure)() == 1
    hook.apply_patch("pretended_harness", module)
    assert module.measure() == 2, "a second patch changes nothing"
    assert type(module.__loader__).__name__ == "SourceFileLoader", "the module keeps its original loader"


def test_import_hook_failing_patch_leaves_the_harness(pretended: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert importlib.import_module("pretended_later").measure() == 1
    assert capsys.readouterr().err == "gpuwatch: pretended_later is not watched: RuntimeError: another version\n"


def test_startup_runs_the_hidden_sitecustomize(tmp_path: Path) -> None:
    """With and without GPUWATCH_AUTO, the environment's own sitecustomize runs, and gpuwatch is not imported."""
    (tmp_path / "sitecustomize.py").write_text("import os\nos.environ['OWN'] = 'ran'\n")
    program = "import os, sys; print(os.environ.get('OWN'), 'gpuwatch' in sys.modules, sys.modules['sitecustomize'].__file__)"
    for auto in ("1", ""):
        given = {**os.environ, "PYTHONPATH": f"{STARTUP}{os.pathsep}{tmp_path}", "GPUWATCH_AUTO": auto}
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=given, check=True)
        own, has_package, place = ended.stdout.split()
        assert (own, has_package) == ("ran", "False")
        assert place == str(tmp_path / "sitecustomize.py")


def test_patching_reads_parameters_and_names() -> None:
    assert has_parameters(lambda fn, rep=1: None, "fn", "rep")
    assert not has_parameters(lambda fn: None, "rep")
    assert not has_parameters(int, "rep")
    assert name_of(SimpleNamespace(__name__="matmul")) == "matmul", "a function of a compiled library"
    assert name_of(object()) == "object"


def test_cupy_warm_up_runs_before_the_window(fresh: session.HarnessSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """gpuwatch runs the warm-up calls, CuPy runs the rest inside the window, and CuPy's times are unchanged."""
    calls: list[str] = []

    class Times(list[float]):
        def tolist(self) -> list[float]:
            return [*self]

    def benchmark(func: Any, args: Any, kwargs: Any, n_repeat: int = 10000, *, name: Any = None, n_warmup: int = 10) -> Any:
        calls.append(f"cupy {n_warmup} {len(fresh.windows)} {fresh.windows[0].is_open}")
        for _ in range(n_warmup + n_repeat):
            func(*args, **kwargs)
        return SimpleNamespace(gpu_times=[Times([1e-3] * n_repeat)])

    runtime = SimpleNamespace(getDevice=lambda: 1)
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime, Device=lambda: SimpleNamespace(synchronize=lambda: None)))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    profiler: Any = ModuleType("cupyx.profiler")
    profiler.benchmark = benchmark
    cupy_benchmark.patch_benchmark(profiler)
    found = profiler.benchmark(calls.append, ("x",), n_repeat=3, n_warmup=2)
    assert calls == ["x", "x", "cupy 0 1 True", "x", "x", "x"]
    assert found.gpu_times == [[1e-3] * 3]
    assert not fresh.windows[0].is_open
    with pytest.raises(TypeError):
        profiler.benchmark(lambda: None, (), {}, 1, repeats=1)
    assert all(window.end_ns is not None for window in fresh.windows if window.begin_ns is not None)
