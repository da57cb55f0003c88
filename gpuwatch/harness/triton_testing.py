"""Triton's ``do_bench``, ``do_bench_cudagraph`` and ``perf_report`` in windows, with the same results as without windows."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from gpuwatch import clock
from gpuwatch.harness.harness_window import HarnessWindow
from gpuwatch.harness.patching import has_parameters, name_of, original_of, replace_function
from gpuwatch.harness.quiet_log import quietly
from gpuwatch.harness.session import is_extended, is_off, open_window
from gpuwatch.wire.messages import FactValue

UNKNOWN = "unsupported version of triton: its do_bench differs from that of 3.9; the number is unchanged and was not judged"
EXTENDED_REP_MS = 1000  # GPUWATCH_EXTEND=1: least time to measure
_ESTIMATING_COUNT = 5  # calls with a cleared cache for do_bench's estimate, before the timed calls
_MODES = frozenset({"min", "max", "mean", "median", "all"})
_MS = 1e-3
_SPIED = ("clear_cache", "get_device_interface")
_FACE = "triton.testing.do_bench"

_case: ContextVar[str] = ContextVar("gpuwatch_triton_case", default="")  # the current case of perf_report

Times = Sequence[float]


def patch_testing(testing: ModuleType) -> None:
    """Patch an imported ``triton.testing``; functions with other parameters stay unchanged."""
    known = ("quantiles", "return_mode", "rep")
    if has_parameters(getattr(testing, "do_bench", len), "fn", "warmup", *known) and hasattr(testing, "_summarize_statistics"):
        replace_function(testing, "do_bench", functools.partial(_watched, testing, _FACE, _spied_flushes))
    if has_parameters(getattr(testing, "do_bench_cudagraph", len), "fn", *known) and hasattr(testing, "_summarize_statistics"):
        graph = functools.partial(_watched, testing, "triton.testing.do_bench_cudagraph", _spied_capture)
        replace_function(testing, "do_bench_cudagraph", graph)
    mark = getattr(testing, "Mark", None)
    if has_parameters(getattr(mark, "_run", len), "bench"):
        replace_function(mark, "_run", _label_cases)


def watch_do_bench(testing: Any, facts: Mapping[str, FactValue]) -> Callable[..., Any]:  # triton has no types
    """Return a ``do_bench`` of an imported ``triton.testing`` whose windows declare facts; the module stays unpatched."""
    return _watched(testing, _FACE, _spied_flushes, original_of(testing.do_bench), facts)


def _watched(
    testing: Any, face: str, spied: Any, original: Callable[..., Any], facts: Mapping[str, FactValue] | None = None
) -> Callable[..., Any]:
    """Return a function that runs the original in a window with ``return_mode="all"``, and reduces the times as requested."""
    signature = inspect.signature(original)

    def watched(*args: Any, **kwargs: Any) -> Any:  # as do_bench
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            return original(*args, **kwargs)  # raises the same error
        given.apply_defaults()
        asked = given.arguments
        quantiles, mode = asked["quantiles"], asked["return_mode"]
        label = " ".join(part for part in (_case.get(), name_of(asked["fn"])) if part)
        window = open_window(face, label, sync=spied is not _spied_flushes) if mode in _MODES else None
        if window is None:
            return original(*args, **kwargs)
        window.declare_quietly(**(facts or {}))
        if is_extended():
            window.declare_quietly(**_extend(asked))
        asked |= {"quantiles": None, "return_mode": "all"}
        times = run_timed(lambda: original(**asked), window, spied(window, asked))
        return testing._summarize_statistics(times, quantiles, mode)  # noqa: SLF001 - so that the number is Triton's

    return watched


def run_timed(call: Callable[[], Times], window: HarnessWindow, spying: Any) -> Times:  # a context manager that gives a check
    """Run a harness and return its times; a spy opens the window at the start of the timed part."""
    try:
        with spying as check:
            times = call()
    except BaseException as error:
        window.finish(error)
        raise
    if window.begin_ns is None:
        window.begin()  # too late to observe the work, but the number gets a window
        window.disown(UNKNOWN)
    else:
        with quietly("reading the harness's times"):
            check(times)
    window.finish()
    return times


def _extend(asked: dict[str, Any]) -> dict[str, FactValue]:
    """Warm up until steady, raise ``rep`` to at least 1 s, and return the facts of the warm-up."""
    from gpuwatch.measuring.warm_up import warm_until_steady

    asked["rep"] = max(asked["rep"], EXTENDED_REP_MS)
    return warm_until_steady(asked["fn"])


class _FlushSpy:
    """A spy on Triton's ``clear_cache`` that opens the window at the sixth flush: five flushes belong to the estimate.

    Queued warm-up work stays queued, so that the GPU is not idle while the window opens.
    """

    def __init__(self, driver: Any, window: HarnessWindow) -> None:  # triton's have no types
        self._clear_cache, self._interface = driver.clear_cache, driver.get_device_interface()
        self._window = window
        self.count = 0
        self.flush_bytes: int | None = None
        self.done_ns = 0  # end of the last synchronisation

    def clear_cache(self, cache: Any) -> None:  # a tensor of any library
        """Flush the cache, and mark the end of the last timed entry and the start of the next."""
        self.count += 1
        if self.count <= _ESTIMATING_COUNT:
            self._clear_cache(cache)
            return
        window = self._window
        if self.count == _ESTIMATING_COUNT + 1:
            with quietly("reading the size of the flush"):
                self.flush_bytes = cache.numel() * cache.element_size() if hasattr(cache, "numel") else len(cache)
            window.begin()
        else:
            window.end_round()
        self._clear_cache(cache)
        window.begin_round()

    def get_device_interface(self) -> Any:
        """Return the driver's interface to its devices with a watched ``synchronize``."""
        return _WatchedInterface(self._interface, self)

    def check(self, times: Times) -> None:
        """Pass the times to the window if there is one per flush; otherwise disown the window."""
        self._window.end_round()
        if self.count - _ESTIMATING_COUNT != len(times):
            self._window.disown(UNKNOWN)
            return
        self._window.declare_quietly(timer="events", cache="cold", flush_bytes=self.flush_bytes)
        self._window.take_times([each * _MS for each in times], between="flush")
        if self.done_ns:
            self._window.narrow(0, self.done_ns)


class _WatchedInterface:
    """A wrapper of torch.cuda, or of its substitute, whose ``synchronize`` records its end."""

    def __init__(self, interface: Any, spy: _FlushSpy) -> None:  # a module or a class
        self._interface, self._spy = interface, spy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._interface, name)

    def synchronize(self, *args: Any, **kwargs: Any) -> Any:
        done = self._interface.synchronize(*args, **kwargs)
        self._spy.done_ns = clock.now_ns()
        return done


def _keep_nothing(_: Times) -> None:
    """Ignore the times, because their start times are unknown."""


@contextlib.contextmanager
def _spied_flushes(window: HarnessWindow, _: object) -> Iterator[Callable[[Times], None]]:
    """Watch each flush of the active driver inside the block; yield the function that checks and stores the times."""
    spy: _FlushSpy | None = None
    driver: Any = None  # Triton's have no types
    with quietly("looking for triton's driver"):
        driver = sys.modules["triton.runtime.driver"].driver.active
        spy = _FlushSpy(driver, window)
    if spy is None:
        yield _keep_nothing
        return
    window.make_marks()
    own = {name: vars(driver)[name] for name in _SPIED if name in vars(driver)}
    for name in _SPIED:
        setattr(driver, name, getattr(spy, name))
    try:
        yield spy.check
    finally:
        for name in _SPIED:
            delattr(driver, name)
        vars(driver).update(own)


@contextlib.contextmanager
def _spied_capture(window: HarnessWindow, asked: dict[str, Any]) -> Iterator[Callable[[Times], None]]:
    """Open the window when the graph is captured, and count the calls in the graph; yield the function that stores times."""
    graph: Any = getattr(getattr(sys.modules.get("torch"), "cuda", None), "CUDAGraph", None)  # torch has no types here
    end = getattr(graph, "capture_end", None)
    if end is None:
        yield _keep_nothing
        return
    inner, calls = asked["fn"], [0]

    def counted() -> Any:  # as the measured function
        calls[0] += 1
        return inner()

    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:  # as torch's
        ended = end(self, *args, **kwargs)
        window.begin()
        return ended

    def check(times: Times) -> None:
        calls_count = calls[0] - 1 - _ESTIMATING_COUNT
        if calls_count < 1:
            window.disown(UNKNOWN)
            return
        window.declare_quietly(timer="graph", cache="warm")
        window.take_times([each * _MS * calls_count for each in times], calls_count=calls_count)

    asked["fn"] = counted
    graph.capture_end = capture_end
    try:
        yield check
    finally:
        graph.capture_end = end


def _label_cases(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a runner for ``perf_report`` that labels each window with plot, point on the x axis and line."""

    def _run(self: Any, bench: Any, *args: Any, **kwargs: Any) -> Any:  # as triton.testing.Mark
        measured = self.fn

        def labelled(*points: Any, **point: Any) -> Any:
            names = [*bench.x_names, bench.line_arg]
            token = _case.set(" ".join([str(bench.plot_name), *(f"{name}={point[name]}" for name in names if name in point)]))
            try:
                return measured(*points, **point)
            finally:
                _case.reset(token)

        if is_off():
            return run(self, bench, *args, **kwargs)
        self.fn = labelled
        try:
            return run(self, bench, *args, **kwargs)
        finally:
            self.fn = measured

    return _run
