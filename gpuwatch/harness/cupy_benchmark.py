"""CuPy's ``cupyx.profiler.benchmark`` in a window, which opens after the warm-up and gets the times of CuPy's events."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from gpuwatch.harness.patching import has_parameters, name_of, replace_function
from gpuwatch.harness.quiet_log import quietly
from gpuwatch.harness.session import is_extended, open_window
from gpuwatch.process import torch_state

FACE = "cupyx.profiler.benchmark"


def patch_benchmark(profiler: ModuleType) -> None:
    """Patch an imported ``cupyx.profiler``; leave an unknown version unchanged."""
    if has_parameters(getattr(profiler, "benchmark", len), "func", "args", "kwargs", "n_warmup"):
        replace_function(profiler, "benchmark", _watched)


def _watched(original: Callable[..., Any]) -> Callable[..., Any]:
    def benchmark(func: Any, args: Any = (), kwargs: Any = {}, *more: Any, **options: Any) -> Any:  # noqa: B006 - CuPy's own
        count = options.get("n_warmup", 10)
        is_sound = callable(func) and isinstance(args, tuple) and isinstance(kwargs, dict) and isinstance(count, int)
        window = open_window(FACE, str(options.get("name") or name_of(func))) if is_sound else None
        if window is None:
            return original(func, args, kwargs, *more, **options)
        for _ in range(count):  # CuPy's warm-up, run here so that the window opens after it
            func(*args, **kwargs)
        if is_extended():
            from gpuwatch.measuring.warm_up import warm_until_steady

            window.declare_quietly(**warm_until_steady(lambda: func(*args, **kwargs)))
        _make_ready()
        window.begin()
        try:
            result = original(func, args, kwargs, *more, **(options | {"n_warmup": 0}))
        except BaseException as error:
            window.finish(error)
            raise
        with quietly("reading CuPy's times"):
            times = result.gpu_times
            if len(times) == 1:  # on several devices an entry has several times
                window.declare_quietly(timer="events", warmup_count=count)
                window.take_times(times[0].tolist())
        window.finish()
        return result

    return benchmark


def _make_ready() -> None:
    """Wait for the warm-up; on device 0 without torch's context, let the window stamp CuPy's context through the driver."""
    with quietly("reading CuPy's context"):
        if torch_state.cuda_with_context() is None and sys.modules["cupy"].cuda.runtime.getDevice() == 0:
            from gpuwatch.cuda.driver_cuda import DriverCuda

            torch_state.stand_in(DriverCuda(importlib.import_module("cuda.bindings.driver")))
        sys.modules["cupy"].cuda.Device().synchronize()  # so that the warm-up ends before the window opens
