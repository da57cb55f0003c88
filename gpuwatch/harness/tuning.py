"""One window around all trials of a tuner, instead of one window for each of hundreds of short benchmarks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gpuwatch.harness.harness_window import HarnessWindow
from gpuwatch.harness.session import counting, current_session, open_window


class Tuning:
    """The window around one run of a tuner, open from the first trial to ``finish``; the summary has the number of trials."""

    def __init__(self, face: str, label: str) -> None:
        self._face = face
        self._window: HarnessWindow | None = open_window(face, f"autotune {label}")
        self._inner = [0]
        self.count = 0

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """Count one trial; benchmarks inside the block open no windows."""
        self.count += 1
        if self._window is not None and self.count == 1:
            self._window.begin()
        with counting(self._inner):
            yield

    def finish(self, error: BaseException | None = None) -> None:
        """Close the window, if open, and report the number of trials to the session."""
        window, self._window = self._window, None
        if window is not None and window.is_open:
            window.attached["trials_count"] = self.count
            window.finish(error)
            current_session().notes[f"{self._face}: {window.label}: {self.count} trials in one window"] += 1
