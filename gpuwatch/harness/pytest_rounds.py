"""pytest-benchmark's rounds in a window that opens after calibration; warm-up rounds are separate from counted rounds."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from gpuwatch import clock
from gpuwatch.harness.harness_window import HarnessWindow
from gpuwatch.harness.patching import has_parameters
from gpuwatch.harness.quiet_log import quietly
from gpuwatch.harness.session import current_session

FACE = "pytest-benchmark"
UNKNOWN = "unsupported version of pytest-benchmark: its rounds differ from those of 5.2.3 and 5.3.1; install one of these"
_LEAST_MARKED_S = 1e-4  # after a shorter round, no round gets marks, whose host time would count


class BenchmarkRounds:
    """The rounds of one ``benchmark`` fixture, from the creation of its statistics, after calibration, to the last round."""

    def __init__(self, benchmark: Any, window: HarnessWindow) -> None:  # a BenchmarkFixture, whose package may be missing
        self.window = window
        self._benchmark = benchmark
        self._took_s, self._begins_ns = array("d"), array("q")
        self._is_marked = True
        self._calls_count = 1
        benchmark.extra_info["gpuwatch"] = window.attached
        if not is_known(benchmark):
            current_session().notes[f"{FACE}: {UNKNOWN}"] += 1
            window.attached |= {"status": "unproven", "why": UNKNOWN}
            return
        self._make_runner, self._make_stats = benchmark._make_runner, benchmark._make_stats  # noqa: SLF001 - see is_known
        benchmark._make_runner, benchmark._make_stats = self._watch_runner, self._begin  # noqa: SLF001
        for name in ("_raw", "_raw_pedantic"):
            setattr(benchmark, name, self._finishing(getattr(benchmark, name)))

    def _begin(self, iterations: int) -> Any:  # its Metadata
        stats = self._make_stats(iterations)
        self._calls_count = iterations
        self.window.make_marks()
        self.window.begin()
        return stats

    def _watch_runner(self, *args: Any) -> Callable[..., Any]:
        runner: Callable[..., Any] = self._make_runner(*args)

        def run(loops: Any, *timer: Any) -> Any:
            if not self.window.is_open:
                return runner(loops, *timer)
            if self._is_marked:
                self.window.begin_round()
            begin_ns = clock.now_ns()
            timed = runner(loops, *timer)
            if self._is_marked:
                self.window.end_round()
            took_s = timed[0] if isinstance(timed, tuple) else timed
            self._begins_ns.append(begin_ns)
            self._took_s.append(took_s)
            self._is_marked = self._is_marked and took_s >= _LEAST_MARKED_S
            return timed

        return run

    def _finishing(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:  # as the fixture's
            error: BaseException | None = None
            try:
                return run(*args, **kwargs)
            except BaseException as raised:
                error = raised
                raise
            finally:
                if self.window.is_open:
                    with quietly("reading the rounds"):
                        self._hand_over()
                    self.window.finish(error)

        return watched

    def _hand_over(self) -> None:
        """Pass the counted rounds, which ran last, to the window, and the earlier rounds as warm-up."""
        counted = len(self._benchmark.stats.stats.data)
        first = len(self._took_s) - counted
        for begin_ns, took_s in zip(self._begins_ns[:first], self._took_s[:first], strict=True):
            self.window.note_other_work("warm-up", begin_ns, begin_ns + int(1e9 * took_s))
        self.window.declare_quietly(timer="host", warmup_count=first * self._calls_count, warmup_s=sum(self._took_s[:first]))
        if self._took_s:
            self.window.narrow(self._begins_ns[0], self._begins_ns[-1] + int(1e9 * self._took_s[-1]))
        self.window.attached |= {"rounds_count": counted, "warmup_rounds_count": first}
        self.window.take_times(self._took_s[first:], self._begins_ns[first:], calls_count=self._calls_count)


def is_known(benchmark: Any) -> bool:
    """Return True if this fixture has the methods that the window needs, as in versions 5.2.3 and 5.3.1."""
    return (
        all(hasattr(benchmark, name) for name in ("_raw", "_raw_pedantic", "extra_info"))
        and has_parameters(getattr(benchmark, "_make_runner", len), "function_to_benchmark", "args", "kwargs")
        and has_parameters(getattr(benchmark, "_make_stats", len), "iterations")
    )
