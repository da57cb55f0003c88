"""The driver's own reports, waited for in one thread: an Xid, a GPU that fell off the bus."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from annotate.evidence import Event, Lane
from gpuwatch.errors import SourceError
from gpuwatch.interfaces import Clock, Sink, Source, Sweep


class EventWatch:
    """The one thread that waits for what the driver reports by itself, for all GPUs of a source."""

    def __init__(
        self,
        source: Source,
        sinks: Sequence[Sink],
        clock: Clock,
        stop: threading.Event,
        *,
        timeout_s: float = 0.5,  # how long ``stop`` may go unseen
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

    def join(self, timeout_s: float = 1.0) -> bool:
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                found = self._source.events(self._timeout_s)
            except SourceError:  # the lanes tell of it; here it only means that nothing can be reported
                self._clock.wait_until(self._clock.now_ns() + self._retry_ns, self._stop)
                continue
            for event in found:
                self._give(event)

    def _give(self, event: Event) -> None:
        sweep = Sweep(event.uuid, Lane.EVENTS, event.at_ns, 0, 0, event)
        for sink in self._sinks:
            sink.take(sweep)
