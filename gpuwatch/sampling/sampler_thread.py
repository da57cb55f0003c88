"""The threads of sampling.

Each GPU has two threads that read it, and a third that reports hangs.  Each source has one thread that waits for the
driver's own events: Xids and memory errors.
"""

import threading
from collections.abc import Callable, Sequence

from annotate.evidence import Event, Lane
from gpuwatch.errors import SourceError
from gpuwatch.interfaces import Clock, Lost, Sink, Source, Sweep
from gpuwatch.sampling.fast_lane import FastLaneLoop
from gpuwatch.sampling.loop import LaneTurn, sweeps
from gpuwatch.sampling.pace import ThreadCost
from gpuwatch.sampling.wakeup import Wakeup

_PULSES_COUNT = 8  # given to the sinks together: after a pause, one call of the sinks costs more than the driver's calls


class SamplerThread:
    """A thread that runs turns on their deadlines.  Other threads may hurry a turn and then set ``wake``."""

    def __init__(
        self,
        name: str,
        turns: Sequence[LaneTurn],
        clock: Clock,
        stop: threading.Event,
        give: Callable[[Sweep], None],
        loop: FastLaneLoop | None = None,
    ) -> None:
        self.turns = tuple(turns)
        self.wake = Wakeup()
        self.cost = ThreadCost()
        self._name = name
        self._clock = clock
        self._stop = stop
        self._give = loop.give if loop else give
        self._loop = loop
        self._thread: threading.Thread | None = None

    @property
    def lost(self) -> str | None:
        """Return the reason why a turn has no answer, or None if all turns have answers."""
        return next((turn.lost or turn.hung for turn in self.turns if turn.lost or turn.hung), None)

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def has_died(self) -> bool:
        """Return whether the thread ended without a stop."""
        return self._thread is not None and not self._thread.is_alive() and not self._stop.is_set()

    def start(self, nap_ns: int) -> None:
        # Daemonic: a thread inside a hung driver call can never be joined, and must not keep the process alive.
        self._thread = threading.Thread(target=self._run, args=(nap_ns,), name=self._name, daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self, nap_ns: int) -> None:
        waiting: list[Sweep] = []
        # Callers of ``hand_over`` must not wait for the next row, which an expensive lane may read seconds later.
        woken = self._loop.give_all if self._loop is not None else None
        try:
            for sweep in sweeps(self.turns, self._clock, self._stop, self.wake, woken=woken, nap_ns=nap_ns):
                waiting.append(sweep)
                has_more = sweep.lane is Lane.PULSE and not (self._loop and self._loop.is_found)
                if has_more and len(waiting) < _PULSES_COUNT:
                    continue
                for each in waiting:
                    self._give(each)
                waiting.clear()
                self.cost.note(self._clock.now_ns())
        finally:
            if self._loop is not None:
                self._loop.give_all()


class HangWatch:
    """A watch that gives the sinks a Lost when a sampler's thread hangs or dies."""

    def __init__(
        self,
        threads: Sequence[SamplerThread],
        loop: FastLaneLoop,
        clock: Clock,
        stop: threading.Event,
        give: Callable[[Sweep], None],
        hang_ns: int,
    ) -> None:
        self._threads = threads
        self._loop = loop
        self._clock = clock
        self._stop = stop
        self._give = give
        self._hang_ns = hang_ns

    def start(self, name: str) -> None:
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while not self._clock.wait_until(self._clock.now_ns() + self._hang_ns // 2, self._stop):
            self._look()

    def _look(self) -> None:
        now_ns = self._clock.now_ns()
        for thread in self._threads:
            for turn in thread.turns:
                since_ns = turn.asking_since_ns
                if since_ns is None and turn.ask_on is not None:
                    since_ns = self._loop.asking_since_ns
                if since_ns is not None and turn.hung is None and now_ns - since_ns > self._hang_ns:
                    self._note_hung(turn, now_ns, f"no answer for {self._hang_ns / 1e9:g} s")
            if thread.has_died and thread.turns[0].hung is None:
                self._note_hung(thread.turns[0], now_ns, "the sampling thread ended")

    def _note_hung(self, turn: LaneTurn, now_ns: int, reason: str) -> None:
        turn.hung, turn.hung_at_ns = reason, now_ns
        self._give(Sweep(turn.uuid, turn.lane, now_ns, 0, 0, Lost(now_ns, reason)))


class EventWatch:
    """The only thread that waits for the driver's own events, for all GPUs of a source."""

    def __init__(
        self,
        source: Source,
        sinks: Sequence[Sink],
        clock: Clock,
        stop: threading.Event,
        *,
        timeout_s: float = 1.0,  # the longest time until ``stop`` is noticed
        retry_ns: int = 5_000_000_000,
    ) -> None:
        self._source = source
        self._sinks = tuple(sinks)
        self._clock = clock
        self._stop = stop
        self._timeout_s = timeout_s
        self._retry_ns = retry_ns
        self._thread = threading.Thread(target=self._run, name="gpuwatch-events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                found = self._source.events(self._timeout_s)
            except SourceError:  # the lanes report the loss; this thread only has no events
                self._clock.wait_until(self._clock.now_ns() + self._retry_ns, self._stop)
                continue
            for event in found:
                self._give(event)

    def _give(self, event: Event) -> None:
        sweep = Sweep(event.uuid, Lane.EVENTS, event.at_ns, 0, 0, event)
        for sink in self._sinks:
            sink.take(sweep)
