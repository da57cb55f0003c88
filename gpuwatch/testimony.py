"""What the measured process tells of one window: facts, times of iterations, the true clock at the edges.

All of it may be missing, and none of it may break the benchmark.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from gpuwatch import clock, torch_context
from gpuwatch.client import Client
from gpuwatch.errors import DaemonError, UsageError

if TYPE_CHECKING:
    from annotate.evidence import Timings
    from gpuwatch.cuda.stamp import Stamps
    from gpuwatch.marks import Marks
    from gpuwatch.wire import FactValue

_log = logging.getLogger("gpuwatch")

ROOM_COUNT = 15_000  # iterations whose clocks are stamped where their number is not known beforehand


@contextlib.contextmanager
def spared(doing: str) -> Iterator[None]:
    """Around what a verdict can do without: it may fail, and the benchmark goes on."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the window's boundary
        _log.warning("gpuwatch: %s failed: %s: %s", doing, type(error).__name__, error)


class Iteration:
    """A context manager around one iteration; whatever goes wrong with its marks, the benchmark goes on."""

    __slots__ = ("_marks",)

    def __init__(self, marks: Marks) -> None:
        self._marks: Marks | None = marks

    def __enter__(self) -> None:
        self.mark("begin")

    def __exit__(self, *_: object) -> None:
        self.mark("end")

    def mark(self, edge: Literal["begin", "end", "next"]) -> None:
        try:
            if self._marks is not None:
                getattr(self._marks, edge)()
        except Exception as error:  # noqa: BLE001 - the window's boundary, too often crossed for a context manager
            self._marks = None
            _log.warning("gpuwatch: marking iterations failed: %s: %s", type(error).__name__, error)


class Testimony:
    """Collected between a window's edges, handed over at its end."""

    def __init__(self) -> None:
        self.before = torch_context.Snapshot()
        self._told: dict[str, FactValue] = {}
        self._recorded: list[Timings] = []
        self._marks: Marks | None = None
        self._stamps: Stamps | None = None

    def facts(self) -> dict[str, FactValue]:
        """What is known at the beginning."""
        self.before = torch_context.snapshot()
        return self.before.facts

    def prepare(self) -> None:
        """Room for the stamps of the true clock, where there is a CUDA context: the first of a process takes 0.1 s."""
        with spared("preparing to stamp the true clock"):
            if torch_context.cuda_at_hand() is not None:
                from gpuwatch.cuda.stamp import Stamps

                self._stamps = Stamps.here(2)

    def stamp(self) -> None:
        """At the window's beginning and end."""
        with spared("stamping the true clock"):
            if self._stamps is not None:
                self._stamps.put()

    def tell(self, facts: dict[str, FactValue]) -> None:
        """Raises UsageError for what the judge does not know."""
        from annotate.told import TOLD

        for name, fact in facts.items():
            if name not in TOLD:
                raise UsageError(f"tell: {name!r} is not a fact the judge knows; known: {', '.join(sorted(TOLD))}")
            if not isinstance(fact, str | int | float | bool | None):
                raise UsageError(f"tell: {name}: expected text, a number, a truth value or None, found {fact!r}")
        self._told |= facts

    def look_at(self, tensors: tuple[Any, ...]) -> None:
        with spared("looking at the inputs"):
            from gpuwatch.inputs import facts

            self._told |= facts(*tensors)

    def iteration(self, count: int) -> Iteration:
        """Around one iteration of about so many."""
        torch_context.notice_profiler()
        if self._marks is None:
            from gpuwatch.marks import HostMarks, here

            self._marks = HostMarks()
            with spared("preparing to mark iterations"):
                self._marks = here(count)
        return Iteration(self._marks)

    def record(self, times: Iterable[float] | Timings, at_ns: Iterable[int] | None, begin_ns: int) -> None:
        """Raises UsageError for what is no time."""
        from gpuwatch import iterations

        self._recorded.append(iterations.recorded(times, at_ns, begin_ns, clock.now_ns()))

    @property
    def has_times(self) -> bool:
        return bool(self._recorded) or self._marks is not None

    def hand_over_times(self, client: Client, run: str) -> None:
        """Send the times, recorded ones rather than marked ones."""
        told: dict[str, FactValue] = {"timer": "caller"}
        pieces = self._recorded
        with spared("reading the times of iterations"):
            if not pieces and self._marks is not None:
                marked = self._marks.timings()
                pieces, told = [marked] if marked else [], self._marks.told()
        try:
            for piece in pieces:
                client.times(run, piece)
        except DaemonError as error:
            if error.code not in ("unknown-message", "usage"):
                raise
            # An older daemon, or more than it takes: the window is judged without them.
            _log.warning("gpuwatch: times of iterations: %s", error)
            return
        if pieces:
            self._told = told | self._told

    def all(self) -> dict[str, FactValue]:
        """Everything there is to tell at the end."""
        return torch_context.facts_since(self.before) | self._true_clock() | self._told

    def _true_clock(self) -> dict[str, FactValue]:
        """The mean clock between the stamps at the window's edges."""
        stamps, self._stamps = self._stamps, None
        with spared("reading the true clock"):
            if stamps is not None and stamps.used == 2:
                stamped = stamps.read()
                stamps.close()
                mhz = stamped.mean_mhz(0, 1)
                if mhz is not None:
                    return {"true_clock_mhz": mhz, "stamped_s": (stamped.began_ns(1) - stamped.began_ns(0)) / 1e9}
        return {}
