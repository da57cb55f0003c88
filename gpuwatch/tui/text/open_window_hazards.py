"""Hazards seen by live readings in an open window; no verdict: a hazard not seen yet may still be there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from annotate.evidence import Lane, Reason
from gpuwatch.tui.text import words
from gpuwatch.tui.window_coverage import is_window_on
from gpuwatch.view.live import Live, LiveGpu
from gpuwatch.wire import messages

# What spoils a number; the power cap, which is how a heavy kernel runs, last.
_AGAINST: tuple[Reason, ...] = (
    Reason.HW_POWER_BRAKE, Reason.HW_THERMAL, Reason.SW_THERMAL, Reason.HW_SLOWDOWN, Reason.SYNC_BOOST, Reason.SW_POWER_CAP,
)  # fmt: skip
_FOREIGN, _LOST = "foreign process", "GPU lost"
_ORDER = (_LOST, _FOREIGN, *(words.CHIPS[reason].name for reason in _AGAINST))


class OpenWindowHazards:
    """The hazards of each open window, collected from answer to answer."""

    def __init__(self) -> None:
        self._seen: dict[str, set[str]] = {}

    def add_live(self, live: Live) -> None:
        opened = [window for window in live.windows if window.end_ns is None]
        self._seen = {window.run: self._seen.get(window.run, set()) | set(_found(window, live.gpus)) for window in opened}

    def names(self) -> Mapping[str, Sequence[str]]:
        """Return the names of the hazards by run, gravest first."""
        return {run: [name for name in _ORDER if name in seen] for run, seen in self._seen.items() if seen}


def _found(window: messages.Shown, gpus: Sequence[LiveGpu]) -> Iterator[str]:
    """Name the hazards in one answer; only readings since the window began count."""
    for gpu in gpus:
        pids = {process.pid for process in gpu.census.processes} if gpu.census is not None else set()
        if not is_window_on(window, gpu.device.uuid, pids):
            continue
        if gpu.lost is not None:
            yield _LOST
        row = gpu.rows.get(Lane.FAST)
        if row is not None and row.at_ns >= window.begin_ns:
            yield from (words.CHIPS[reason].name for reason in _AGAINST if (row.event_reasons_mask or 0) & reason)
        known = gpu.census is not None and gpu.census.at_ns >= window.begin_ns and window.pids
        if known and pids - set(window.pids):
            yield _FOREIGN
