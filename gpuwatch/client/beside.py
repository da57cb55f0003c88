"""Pauses of the host and other work in a window, next to the timed iterations."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuwatch.client.connection import Client
from gpuwatch.errors import DaemonError
from gpuwatch.process.collector_pauses import CollectorPauses
from gpuwatch.process.compilations import CompilationPauses
from gpuwatch.process.span_log import SpanLog
from gpuwatch.wire.messages import Spans

if TYPE_CHECKING:
    from annotate.evidence import OtherWork

_log = logging.getLogger("gpuwatch")

HAND_OVER = "hand-over"


class Beside:
    """Pauses and other work from ``begin`` to ``end``, sent after the window's end."""

    def __init__(self) -> None:
        self.other = SpanLog("other")
        self.recorded: list[OtherWork] = []  # timed by the caller
        self._collections = SpanLog("pauses")  # separate: a collection may start while another pause is added
        self._pauses = SpanLog("pauses")
        self._hand_over = self._pauses.number_of(HAND_OVER)
        self._collector = CollectorPauses(self._collections)
        self._compilations = CompilationPauses(self._pauses)

    def begin(self) -> None:
        """Start to log garbage collections and compilations."""
        self._collector.start()
        self._compilations.start()

    def end(self) -> None:
        self._compilations.stop()
        self._collector.stop()

    def note_hand_over(self, begin_ns: int, end_ns: int) -> None:
        """Log a pause that gpuwatch caused inside the window."""
        self._pauses.add(begin_ns, end_ns, self._hand_over)

    @property
    def is_empty(self) -> bool:
        return not (self.other or self.recorded or self._pauses or self._collections)

    def send(self, client: Client, run: str) -> None:
        """Send everything that the daemon accepts: a daemon too old for spans gets nothing, and a refusal is logged.

        Raises DaemonError: when the daemon is silent, goes away, or refuses for another reason.
        """
        for each in self.recorded:
            for (begin_ns, end_ns), kind in zip(each.spans_ns, each.kinds, strict=True):
                self.other.add(begin_ns, end_ns, self.other.number_of(kind))
        if not client.welcome.takes_spans:
            return
        try:
            for message in self._messages(run):
                client.send_spans(message)
        except DaemonError as error:
            if error.code not in ("unknown-message", "usage"):
                raise
            _log.debug("gpuwatch: pauses and other work could not be recorded: %s", error)

    def _messages(self, run: str) -> Iterator[Spans]:
        for log in (self.other, self._pauses, self._collections):
            yield from log.messages(run)
