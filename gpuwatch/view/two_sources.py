"""Simulated GPUs with the real windows: present and past of a machine without a driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from annotate.evidence import Event, Trace
from annotate.verdict import Verdict
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DaemonError, StoreError
from gpuwatch.view.history import StoredHistory
from gpuwatch.view.live import Live, Looker


class LookerAtTwo(Looker):
    """A client that requests GPUs from one daemon and windows from another; ``absence`` is the reason for no real GPU."""

    def __init__(self, settings: Settings, *, windows: Looker, absence: str) -> None:
        super().__init__(settings)
        self._windows = windows
        self._absence = absence

    def look(self) -> Live:
        found = replace(super().look(), absence=self._absence)
        try:
            return _with_windows(found, self._windows.look())
        except DaemonError:
            return replace(found, windows=(), windows_left_out_count=0)

    def close(self) -> None:
        super().close()
        self._windows.close()


class HistoryOfTwo:
    """The past of GPUs from one store, and of windows from another, which may be missing."""

    def __init__(self, gpus: StoredHistory, windows: StoredHistory, *, absence: str) -> None:
        self._gpus = gpus
        self._windows = windows
        self._absence = absence

    def span_ns(self) -> tuple[int, int] | None:
        return self._gpus.span_ns()

    def live(self, at_ns: int) -> Live:
        found = replace(self._gpus.live(at_ns), absence=self._absence)
        try:
            return _with_windows(found, self._windows.live(at_ns))
        except StoreError:
            return replace(found, windows=(), windows_left_out_count=0)

    def trace(self, uuid: str, begin_ns: int, end_ns: int) -> Trace:
        return self._gpus.trace(uuid, begin_ns, end_ns)

    def events(self, begin_ns: int, end_ns: int) -> Sequence[Event]:
        return self._gpus.events(begin_ns, end_ns)

    def verdicts(self, run_id: str) -> Sequence[Verdict]:
        return self._windows.verdicts(run_id)

    def close(self) -> None:
        self._gpus.close()
        self._windows.close()


def _with_windows(gpus: Live, windows: Live) -> Live:
    return replace(gpus, windows=windows.windows, windows_left_out_count=windows.windows_left_out_count)
