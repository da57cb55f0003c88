"""Inductor's benchmarks, counted in one window per compilation through torch's lock context for benchmarks."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from gpuwatch.harness.quiet_log import quietly
from gpuwatch.harness.session import counting, current_session, is_off
from gpuwatch.harness.tuning import Tuning

FACE = "torch.compile"

Factory = Callable[[], contextlib.AbstractContextManager[None]]


def patch_inductor(benchmarking: ModuleType) -> None:
    """Register with torch 2.13's ``torch._inductor.runtime.benchmarking``; leave a version without the hook unchanged."""
    register = getattr(benchmarking, "set_gpu_benchmark_lock_context", None)
    if register is None:
        return
    before: Factory | None = register(None)
    if isinstance(before, _BenchmarkLock):
        register(before)
        return
    register(_BenchmarkLock(before))


class _BenchmarkLock:
    """The context that inductor enters around every benchmark on a GPU, inside a previously registered lock.

    The first benchmark of a compilation opens a window, and the compilation's end closes the window.  Outside a compilation
    the end of tuning is unknown, so benchmarks open no window.
    """

    def __init__(self, before: Factory | None) -> None:
        self._before = before
        self._local = threading.local()
        handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        if handler is not None:
            with quietly("listening to torch's compiler"):
                handler.register_start_callback(self._begin_compilation)
                handler.register_end_callback(self._end_compilation)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            if self._before is not None:
                held.enter_context(self._before())
            if not is_off() and not getattr(self._local, "depth", 0):
                held.enter_context(self._trial())
            self._local.depth = getattr(self._local, "depth", 0) + 1
            try:
                yield
            finally:
                self._local.depth -= 1

    def _trial(self) -> contextlib.AbstractContextManager[None]:
        if not getattr(self._local, "is_compiling", False):
            current_session().notes[f"{FACE}: a benchmark outside a compilation has no window"] += 1
            return counting([0])
        if self._local.tuning is None:
            self._local.tuning = Tuning(FACE, self._local.name)
        trial: contextlib.AbstractContextManager[None] = self._local.tuning.trial()
        return trial

    def _begin_compilation(self, about: Any) -> None:  # torch's CallbackArgs
        self._local.is_compiling, self._local.tuning = True, None
        self._local.name = str(getattr(about, "compile_id", "") or "")

    def _end_compilation(self, _: Any) -> None:
        tuning, self._local.is_compiling = getattr(self._local, "tuning", None), False
        if tuning is not None:
            self._local.tuning = None
            tuning.finish()
