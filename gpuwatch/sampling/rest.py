"""The decision to sample an idle GPU rarely, and a working GPU at the usual rate."""

from collections.abc import Callable

from annotate.evidence import Lane, Reading, Reason
from gpuwatch.interfaces import Sweep
from gpuwatch.sampling.plan import SLOWING_NS, LanePeriods, WatchRate

REST_AFTER_NS = 10_000_000_000  # a shorter pause, between two windows or within a program, is sampled like work


class Rest:
    """The sampling rate of one GPU without windows, from readings of the fast lane.  ``wake`` hurries every turn."""

    def __init__(self, periods: LanePeriods, wake: Callable[[], None], after_ns: int) -> None:
        self._periods = periods
        self._wake = wake
        self._after_ns = after_ns
        self._idle_since_ns: int | None = None
        self._row_due_ns = 0
        self.on_change: Callable[[], None] = _do_nothing  # called at the start of rest, and at each return to the usual rate

    @property
    def is_resting(self) -> bool:
        """Return whether the GPU is idle and sampled rarely."""
        return self._periods.is_resting

    def set_attended(self, attended: bool) -> None:  # noqa: FBT001 - the state is the whole call
        """Set whether a client, a scrape or a window needs a resting GPU's expensive signals, which are otherwise read rarely."""
        was_attended, self._periods.is_attended = self._periods.is_attended, attended
        if attended and not was_attended and self.is_resting:
            self._wake()

    def take(self, sweep: Sweep) -> None:
        """Update the rate from a sweep, as a sink of the GPU's sampler."""
        reading = sweep.observed
        if not isinstance(reading, Reading) or reading.lane not in (Lane.FAST, Lane.PULSE):
            return
        if self._periods.is_active:
            self._idle_since_ns = None
            return
        idle = is_idle(reading)
        if idle is False:
            self.end()
        elif idle:
            self._slow_down(reading, sweep.due_ns)

    def end(self) -> None:
        """Return to the usual rate, and restart the idle time."""
        self._idle_since_ns = None
        if self._periods.rate is not WatchRate.USUAL:
            self._periods.rate = WatchRate.USUAL
            self._wake()
            self.on_change()

    def _slow_down(self, reading: Reading, due_ns: int) -> None:
        before_ns, self._row_due_ns = self._row_due_ns, due_ns if reading.lane is Lane.FAST else self._row_due_ns
        if self._idle_since_ns is None:
            self._idle_since_ns = reading.at_ns
        elif self._periods.rate is WatchRate.USUAL and reading.at_ns - self._idle_since_ns >= self._after_ns:
            self._periods.rate = WatchRate.SLOWING
        elif self._periods.rate is WatchRate.SLOWING and self._row_due_ns - before_ns > SLOWING_NS // 2:
            # All rows that were due at the usual rate have been read.
            self._periods.rate = WatchRate.RESTING
            self.on_change()


def is_idle(reading: Reading) -> bool | None:
    """Return whether the driver reports the GPU as idle, or None if the reading lacks reasons and utilisation."""
    if reading.event_reasons_mask is not None:
        return bool(reading.event_reasons_mask & Reason.GPU_IDLE)
    return None if reading.utilization_ratio is None else reading.utilization_ratio == 0


def _do_nothing() -> None:
    """Ignore a change of rest."""
