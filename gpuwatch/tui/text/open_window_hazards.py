"""What live readings already say against an open window.  It is no verdict: what was seen counts, what was not says nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from annotate.evidence import Lane, Reason
from gpuwatch.tui.text import words
from gpuwatch.tui.window_coverage import covers
from gpuwatch.view.live import Live, LiveGpu
from gpuwatch.wire import messages

# What spoils a number; the power cap, which is how a heavy kernel runs, last.
_AGAINST: tuple[Reason, ...] = (
    Reason.HW_POWER_BRAKE, Reason.HW_THERMAL, Reason.SW_THERMAL, Reason.HW_SLOWDOWN, Reason.SYNC_BOOST, Reason.SW_POWER_CAP,
)  # fmt: skip
_FOREIGN, _LOST = "foreign process", "GPU lost"
_ORDER = (_LOST, _FOREIGN, *(words.CHIPS[reason].name for reason in _AGAINST))


class OpenWindowHazards:
    """Gathered from answer to answer while a window is open."""

    def __init__(self) -> None:
        self._seen: dict[str, set[str]] = {}

    def note(self, live: Live) -> None:
        opened = [window for window in live.windows if window.end_ns is None]
        self._seen = {window.run: self._seen.get(window.run, set()) | set(against(window, live.gpus)) for window in opened}

    def said(self) -> Mapping[str, Sequence[str]]:
        """By run, gravest first."""
        return {run: [name for name in _ORDER if name in seen] for run, seen in self._seen.items() if seen}


def against(window: messages.Shown, gpus: Sequence[LiveGpu]) -> Iterator[str]:
    """What one answer says; only what was read since the window began counts."""
    for gpu in gpus:
        pids = {process.pid for process in gpu.census.processes} if gpu.census is not None else set()
        if not covers(window, gpu.device.uuid, pids):
            continue
        if gpu.lost is not None:
            yield _LOST
        row = gpu.rows.get(Lane.FAST)
        if row is not None and row.at_ns >= window.begin_ns:
            yield from (words.CHIPS[reason].name for reason in _AGAINST if (row.event_reasons_mask or 0) & reason)
        known = gpu.census is not None and gpu.census.at_ns >= window.begin_ns and window.pids
        if known and pids - set(window.pids):
            yield _FOREIGN
