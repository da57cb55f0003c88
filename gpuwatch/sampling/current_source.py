"""The source that one GPU is read from, opened again after all of it was gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from gpuwatch.interfaces import Observed, Source
from gpuwatch.sampling.loop import LaneTurn


class CurrentSource:
    """Holds a source for the threads of one GPU.  ``reopen`` is given the source that is gone, before each retry."""

    def __init__(self, source: Source, reopen: Callable[[Source], Source] | None) -> None:
        self.source = source
        self._reopen = reopen
        self._reopening = threading.Lock()

    def reopened_for(self, turn: LaneTurn) -> Callable[[], Sequence[Observed]]:
        """Return the turn's question, asked of a fresh source where the one that it asked is gone."""
        ask = turn.ask

        def ask_current() -> Sequence[Observed]:
            if turn.gone and self._reopen is not None:
                failed = turn.asked_of
                with self._reopening:
                    if self.source is failed:  # the GPU's other thread was not quicker
                        self.source = self._reopen(failed)
            turn.asked_of = self.source
            return ask()

        return ask_current
