"""torch's ``Timer`` in windows.  The window's run is in the measurement's ``metadata``, a field that torch leaves to users."""

from __future__ import annotations

import contextlib
import inspect
from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

from gpuwatch import clock
from gpuwatch.harness.harness_window import HarnessWindow
from gpuwatch.harness.patching import has_parameters, replace_function
from gpuwatch.harness.session import is_extended, is_off, open_window

FACE = "torch.utils.benchmark.Timer"
EXTENDED_S = 1.0  # GPUWATCH_EXTEND=1: min_run_time
_LOOP = "_threaded_measurement_loop"


def patch_timer(timer: ModuleType) -> None:
    """Patch the measuring loop of torch's Timer, and the methods that return a measurement.

    An unknown version stays unchanged.
    """
    kind = getattr(timer, "Timer", None)
    if not has_parameters(getattr(kind, _LOOP, len), "number", "time_hook") or not hasattr(kind, "_timeit"):
        return
    replace_function(kind, _LOOP, _watch_loop)
    replace_function(kind, "timeit", _watch_timeit)
    for name in ("blocked_autorange", "adaptive_autorange"):
        replace_function(kind, name, _attach)


class _Blocks:
    """The blocks of one measurement: torch's times, and the blocks' start times."""

    def __init__(self, window: HarnessWindow) -> None:
        self.window = window
        self._took_s, self._begins_ns = array("d"), array("q")

    def run(self, block: Callable[[], float]) -> float:
        """Run one block between marks, and return its seconds; the first block opens the window."""
        if not self._took_s:
            self.window.make_marks()
            self.window.begin()
        self.window.begin_round()
        begin_ns = clock.now_ns()
        took_s = block()
        self.window.end_round()
        self._begins_ns.append(begin_ns)
        self._took_s.append(took_s)
        return took_s

    def finish(self, calls_count: int) -> None:
        self.window.declare_quietly(timer="host")
        if self._took_s:
            self.window.narrow(self._begins_ns[0], self._begins_ns[-1] + int(1e9 * self._took_s[-1]))
        self.window.take_times(self._took_s, self._begins_ns, calls_count=calls_count)
        self.window.finish()


def _blocks_of(timer: Any) -> _Blocks | None:  # a Timer
    spec = timer._task_spec  # noqa: SLF001 - torch stores the user's labels here
    label = " ".join(part for part in (spec.label, spec.sub_label, spec.description) if part) or spec.stmt
    window = open_window(FACE, label)
    return _Blocks(window) if window is not None else None


def _watch_loop(loop: Callable[..., Any]) -> Callable[..., Any]:
    def measure(self: Any, number: int, time_hook: Callable[[], float], *args: Any, **kwargs: Any) -> Any:  # as torch's loop
        blocks = _blocks_of(self)
        if blocks is None:
            return loop(self, number, time_hook, *args, **kwargs)
        try:
            times = loop(self, number, lambda: blocks.run(time_hook), *args, **kwargs)
        except BaseException as error:
            blocks.window.finish(error)
            raise
        blocks.finish(number)
        self._gpuwatch_attached = blocks.window.attached
        return times

    return measure


def _watch_timeit(timeit: Callable[..., Any]) -> Callable[..., Any]:
    def watched(self: Any, number: int = 1_000_000) -> Any:  # as Timer.timeit
        blocks = _blocks_of(self)
        if blocks is None:
            return timeit(self, number)
        run_block, counted = self._timeit, [0]

        def spied(number: int) -> float:
            counted[0] += 1  # the first block is torch's warm-up
            took_s: float = run_block(number) if counted[0] == 1 else blocks.run(lambda: run_block(number))
            return took_s

        self._timeit = spied
        try:
            measured = timeit(self, number)
        except BaseException as error:
            blocks.window.finish(error)
            raise
        finally:
            del self._timeit
        blocks.finish(number)
        return _carry(measured, blocks.window.attached)

    return watched


def _attach(measure: Callable[..., Any]) -> Callable[..., Any]:
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:  # as the methods of Timer
        self._gpuwatch_attached = None
        if is_extended() and not is_off():
            with contextlib.suppress(TypeError):  # torch itself refuses wrong arguments
                given = inspect.signature(measure).bind(self, *args, **kwargs)
                given.arguments["min_run_time"] = max(given.arguments.get("min_run_time", 0.0), EXTENDED_S)
                args, kwargs = given.args[1:], given.kwargs
        return _carry(measure(self, *args, **kwargs), self._gpuwatch_attached)

    return watched


def _carry(measured: Any, attached: dict[str, object] | None) -> Any:  # a Measurement
    """Add run and status to ``metadata``, and return the measurement; the status is set when the verdict arrives."""
    if attached is not None:
        measured.metadata = {**(measured.metadata or {}), "gpuwatch": attached}
    return measured
