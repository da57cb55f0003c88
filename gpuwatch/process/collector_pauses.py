"""Pauses of Python's garbage collector in this process."""

import contextlib
import gc

from gpuwatch import clock
from gpuwatch.process.span_log import SpanLog

CAUSE = "collector"
LEAST_NS = 20_000  # shorter pauses hide behind queued launches; most young collections take less


class CollectorPauses:
    """Callback for garbage collections, installed between ``start`` and ``stop``.

    A collection stops every thread of the process.  The callback creates no object that the collector tracks.
    """

    def __init__(self, log: SpanLog) -> None:
        self._log = log
        self._number = log.number_of(CAUSE)
        self._begun_ns = 0
        self._callback = self._note  # the same object for ``start`` and ``stop``

    def start(self) -> None:
        gc.callbacks.append(self._callback)

    def stop(self) -> None:
        with contextlib.suppress(ValueError):  # the program cleared the list
            gc.callbacks.remove(self._callback)

    def _note(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._begun_ns = clock.now_ns()
        elif self._begun_ns:
            now_ns = clock.now_ns()
            if now_ns - self._begun_ns >= LEAST_NS:
                self._log.add(self._begun_ns, now_ns, self._number)
            self._begun_ns = 0
