"""One window around the trials of each key of Triton's autotuner; the first trial opens the window."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from gpuwatch.harness.patching import name_of, replace_function
from gpuwatch.harness.session import is_off
from gpuwatch.harness.tuning import Tuning

FACE = "triton.autotune"

_expected: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # number of configs to try, by autotuner
_running: WeakKeyDictionary[Any, Tuning] = WeakKeyDictionary()


def patch_autotuner(autotuner: ModuleType) -> None:
    """Patch the choice of configs and the trials in an imported ``triton.runtime.autotuner``; launches stay unpatched."""
    kind = getattr(autotuner, "Autotuner", None)
    if all(hasattr(kind, name) for name in ("prune_configs", "_bench")):
        replace_function(kind, "prune_configs", _count_configs)
        replace_function(kind, "_bench", _watch_trials)


def _count_configs(prune: Callable[..., Any]) -> Callable[..., Any]:
    def prune_configs(self: Any, *args: Any, **kwargs: Any) -> Any:  # with Triton's types
        configs = prune(self, *args, **kwargs)
        _finish(self)  # closes the window of an interrupted run
        _expected[self] = len(configs)
        return configs

    return prune_configs


def _watch_trials(bench: Callable[..., Any]) -> Callable[..., Any]:
    def _bench(self: Any, *args: Any, **kwargs: Any) -> Any:  # with Triton's types
        if is_off():
            return bench(self, *args, **kwargs)
        tuning = _running.get(self)
        if tuning is None:
            tuning = _running[self] = Tuning(FACE, name_of(getattr(self, "base_fn", self)))
        try:
            with tuning.trial():
                timed = bench(self, *args, **kwargs)
        except BaseException as error:
            _finish(self, error)
            raise
        if tuning.count >= _expected.get(self, 0):
            _finish(self)
        return timed

    return _bench


def _finish(autotuner: Any, error: BaseException | None = None) -> None:  # an Autotuner
    tuning = _running.pop(autotuner, None)
    if tuning is not None:
        tuning.finish(error)
