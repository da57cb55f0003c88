"""The measured process of a paired run: one kind of work, and a window for each ``Planned`` on a line of input.

    python -m tests.hardware.paired_worker TASK     TASK is a ``Task`` as JSON

The worker answers ``ready`` once.  Per window it answers ``warm`` after the warm-up, continues until the input ``go``, and
answers ``done`` with the counts, or ``failed``.  The parent process, never the worker, starts the neighbours.
"""

from __future__ import annotations

import gc
import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

import gpuwatch
from gpuwatch.config import settings as config
from tests.hardware.paired_disturbances import PLAIN, TIMED, Disturbance, Planned, turns
from tests.hardware.paired_work import Work, made

_BLOCK_S = 2e-3  # duration of the calls between two marks
_AHEAD_COUNT = 4  # most blocks queued ahead of the GPU
_POLLED_S = 0.05
_HEAP_MOST_COUNT = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The work of one process, and its daemon."""

    work: str
    mode: str
    source: str
    state: str
    socket: str
    uuid: str = ""  # of a simulated GPU, which has no CUDA context to query


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One line of output."""

    says: str  # ready, warm, done, failed
    why: str = ""
    run_id: str = ""
    calls_count: int = 0
    window_s: float = 0.0
    events_s: float = 0.0  # time between the first and the last mark
    longest_gap_s: float = 0.0  # excess of the longest block over the median block, without the first block
    facts: dict[str, Any] = field(default_factory=dict)


class Calls:
    """Calls in sequence, queued a few blocks ahead of the GPU, with a mark after each block."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._marks: deque[Any] = deque([work.mark()])
        self.block_count = 1
        self.blocks_s: list[float] = []
        self.count = 0

    def one_is_launched(self) -> None:
        self.count += 1
        if self.count % self.block_count == 0:
            self._mark()
            if len(self._marks) > _AHEAD_COUNT:
                self._read()

    def _mark(self) -> None:
        self._work.join()
        self._marks.append(self._work.mark())

    def end(self) -> None:
        """Wait for all calls; an incomplete block counts too."""
        if self.count % self.block_count:
            self._mark()
        while len(self._marks) > 1:
            self._read()

    def _read(self) -> None:
        first = self._marks.popleft()
        self.blocks_s.append(self._work.passed_s(first, self._marks[0]))


class Worker:
    """One process's windows."""

    def __init__(self, task: Task) -> None:
        flags = {"source": task.source, "state": task.state, "socket": task.socket}
        self.settings = config.load(flags, environment={"HOME": "/"})
        self.task = task
        if task.mode == TIMED:  # without the bindings no iteration is stamped, as on machines that lack them
            sys.modules["cuda.bindings"] = None  # type: ignore[assignment]
        self.work = made(task.work)
        self.block_count = self._blocks()
        with self._window() as window, window.iteration():  # the first window of a process allocates
            self.work.step(1)
        gc.collect()
        gc.freeze()

    def _window(self) -> gpuwatch.Window:
        return gpuwatch.window(self.task.work, settings=self.settings, gpus=[self.task.uuid] if self.task.uuid else None)

    def _blocks(self) -> int:
        """Return the number of calls per block, measured over 0.3 s of calls."""
        self._loop(0.2, Calls(self.work))
        calls = Calls(self.work)
        self._loop(0.3, calls)
        return max(1, round(_BLOCK_S * calls.count / 0.3))

    def _loop(self, seconds: float, calls: Calls, until: Callable[[], bool] = lambda: True) -> None:
        """Call back to back for this time, and then until the condition is true."""
        begin_s = polled_s = time.perf_counter()
        while True:
            self.work.step(1)
            calls.one_is_launched()
            now_s = time.perf_counter()
            if now_s - begin_s >= seconds and now_s - polled_s >= _POLLED_S:
                polled_s = now_s
                if until():
                    break
        calls.end()

    def take(self, planned: Planned) -> Answer:
        """Warm up, answer ``warm``, continue until the input ``go``, and take the window."""
        disturbance = planned.disturbance
        kept = self._prepare(disturbance)
        warm = Calls(self.work)
        warm.block_count = self.block_count
        self._loop(planned.warm_s, warm)
        say(Answer(says="warm"))
        self._loop(0.0, warm, _is_go_read)
        if disturbance is not None and disturbance.family == "pause-before":
            self.work.synchronize()
            time.sleep(disturbance.depth * planned.length_s)
        window = self._window()
        with window:
            calls = self._body(window, planned)
        del kept
        assert window.begin_ns is not None
        assert window.end_ns is not None
        blocks_s = np.array(calls.blocks_s)
        later_s = blocks_s[1:]  # gpuwatch allocates marks at a window's first iteration
        return Answer(
            says="done", run_id=window.run_id or "", calls_count=calls.count, window_s=(window.end_ns - window.begin_ns) / 1e9,
            events_s=float(blocks_s.sum()), longest_gap_s=float(later_s.max() - np.median(later_s)) if len(later_s) else 0.0,
        )  # fmt: skip

    def _prepare(self, disturbance: Disturbance | None) -> list[object]:
        """Collect garbage of the previous window, and prepare the disturbance; return objects to keep alive."""
        gc.collect()
        if disturbance is None:
            return []
        if disturbance.family == "eased-data":
            self.work.ease(disturbance.depth)
            self.work.ease(0.0)
        if (disturbance.family, disturbance.kind) == ("garbage", "heap"):
            return [[] for _ in range(min(disturbance.count, _HEAP_MOST_COUNT))]
        return []

    def _body(self, window: gpuwatch.Window, planned: Planned) -> Calls:
        between, inside = turns(self.work, window, planned.disturbance)
        timed = Timed(self.work, window, self.task.mode, planned.disturbance)
        calls = Calls(self.work)
        calls.block_count = self.block_count
        begin_s = time.perf_counter()
        while (at_s := time.perf_counter() - begin_s) < planned.length_s:
            between(at_s, calls.count)
            timed.call(lambda at_s=at_s: inside(at_s, calls.count))  # type: ignore[misc]  # a default binds it
            calls.one_is_launched()
        calls.end()
        self.work.ease(0.0)
        timed.hand_over()
        return calls


class Timed:
    """Calls, declared according to the mode or to a disturbance with wrong times."""

    def __init__(self, work: Work, window: gpuwatch.Window, mode: str, disturbance: Disturbance | None) -> None:
        self._work, self._window = work, window
        wrong = disturbance if disturbance is not None and disturbance.family == "times-wrong" else None
        kind = wrong.kind if wrong is not None else "plain" if mode == PLAIN else "iteration"
        self._kept_ratio = 1.0 - (wrong.depth if wrong is not None else 0.0)
        self._marks: deque[tuple[Any, Any]] = deque()
        self._took_s: list[float] = []
        self._at_ns: list[int] = []
        # Functions of the class: a bound method would make a reference cycle, which keeps this window until a later collection.
        self._how = {
            "plain": Timed._plain, "iteration": Timed._iteration, "scaled": Timed._scaled, "other-stream": Timed._elsewhere,
            "no-sync": Timed._launch_only,
        }[kind]  # fmt: skip

    def call(self, inside: Callable[[], None]) -> None:
        self._how(self, inside)

    def _plain(self, inside: Callable[[], None]) -> None:
        self._work.step(1)
        inside()

    def _iteration(self, inside: Callable[[], None]) -> None:
        with self._window.iteration():
            self._work.step(1)
            inside()

    def _scaled(self, inside: Callable[[], None]) -> None:
        self._at_ns.append(time.monotonic_ns())
        first = self._work.mark()
        self._work.step(1)
        self._marks.append((first, self._work.mark()))
        if len(self._marks) > 100:  # far behind the marks of awaited blocks
            self._read()

    def _read(self) -> None:
        self._took_s.append(self._work.passed_s(*self._marks.popleft()) * self._kept_ratio)

    def _elsewhere(self, inside: Callable[[], None]) -> None:
        with self._window.iteration():
            self._work.step(1, aside=True)

    def _launch_only(self, inside: Callable[[], None]) -> None:
        self._at_ns.append(time.monotonic_ns())
        begin_s = time.perf_counter()
        self._work.step(1)
        self._took_s.append(time.perf_counter() - begin_s)

    def hand_over(self) -> None:
        while self._marks:
            self._read()
        if self._took_s:
            self._window.record(self._took_s, at_ns=self._at_ns)


def say(answer: Answer) -> None:
    os.write(1, msgspec.json.encode(answer) + b"\n")


def _is_go_read() -> bool:
    """Return True if a line (``go``) arrived; exit at the end of input."""
    if not select.select([sys.stdin], [], [], 0)[0]:
        return False
    if not sys.stdin.readline():
        raise SystemExit(1)
    return True


def main(task: Task) -> int:
    worker = Worker(task)
    torch = str(getattr(sys.modules.get("torch"), "__version__", ""))  # convert torch's own text type
    say(Answer(says="ready", facts={"capped": worker.work.capped, "torch": torch}))
    while line := sys.stdin.readline():
        try:
            say(worker.take(msgspec.json.decode(line, type=Planned)))
        except Exception as error:  # noqa: BLE001 - the other windows of this process go on
            say(Answer(says="failed", why=f"{type(error).__name__}: {error}"[:300]))
            worker.work.ease(0.0)
    return 0


if __name__ == "__main__":
    sys.exit(main(msgspec.json.decode(sys.argv[1], type=Task)))
