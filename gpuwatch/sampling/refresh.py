"""The refresh period of each value of a driver's page, learnt from readings."""

from collections import deque
from collections.abc import Sequence

from annotate.evidence import Lane, Reading
from gpuwatch.interfaces import Sweep
from gpuwatch.sampling.plan import PULSE

# Values that change with every refresh under load.  Used memory is not on the page, and a mask changes only with the state, so
# neither shows the page's period.
_MOVING = frozenset({
    "sm_clock_mhz", "power_w", "power_average_w", "temperature_c", "utilization_ratio", "mem_utilization_ratio",
    "power_cap_ns", "sync_boost_ns", "sw_thermal_ns",
})  # fmt: skip
_MOVING_PULSE = _MOVING.intersection(PULSE)  # a pulse has no other of these values


class Refresh:
    """The refresh period of each value of one GPU, learnt from its sweeps.

    Changes of a value are whole refreshes apart: one refresh, or several for a mostly constant value, such as an unlimited
    clock.  So the period is the median of the distances near the shortest ones, after two exclusions.  Below ``double_ns``,
    the driver was rewriting its page.  Above ``idle_ns``, the value was constant.
    """

    def __init__(
        self,
        uuid: str,
        *,
        double_ns: int = 50_000_000,
        idle_ns: int = 1_000_000_000,
        fewest: int = 3,
        kept: int = 64,
    ) -> None:
        self.uuid = uuid
        self._double_ns = double_ns
        self._idle_ns = idle_ns
        self._fewest = fewest
        self._kept = kept
        self._last: dict[str, tuple[object, int]] = {}
        self._seen_ns: dict[str, int] = {}
        self._distances_ns: dict[str, deque[int]] = {}

    def take(self, sweep: Sweep) -> None:
        """Learn from fast rows and pulses of this GPU, and ignore other sweeps (a sink)."""
        if sweep.lane in (Lane.FAST, Lane.PULSE) and isinstance(sweep.observed, Reading):
            self.observe(sweep.observed)

    def observe(self, reading: Reading) -> None:
        if reading.uuid != self.uuid:
            return
        at_ns = reading.at_ns
        for name in _MOVING_PULSE if reading.lane is Lane.PULSE else _MOVING:
            value = getattr(reading, name)
            if value is None:
                continue
            # Between readings further apart than a refresh, changes may be missed, and a distance across the hole would be too
            # long.  Holes are per signal, because signals outside of the pulse may be read far more rarely.
            if at_ns - self._seen_ns.get(name, 0) > 2 * self._double_ns:
                self._last.pop(name, None)
            self._seen_ns[name] = at_ns
            last = self._last.get(name)
            if last is None:
                self._last[name] = (value, 0)  # the start of this value is unknown
            elif value != last[0]:
                distance_ns = at_ns - last[1]
                if last[1] and self._double_ns <= distance_ns <= self._idle_ns:
                    self._distances_ns.setdefault(name, deque(maxlen=self._kept)).append(distance_ns)
                doubled = last[1] and distance_ns < self._double_ns
                self._last[name] = (value, last[1] if doubled else at_ns)

    def refresh_ns(self) -> dict[str, int]:
        """Return the periods by signal, for signals with enough changes."""
        found = {name: self._period_ns(sorted(distances)) for name, distances in list(self._distances_ns.items())}
        return {name: period_ns for name, period_ns in found.items() if period_ns is not None}

    def _period_ns(self, distances_ns: Sequence[int]) -> int | None:
        """Return the median of the distances near the 10th percentile, or None for fewer than ``fewest`` such distances."""
        from statistics import median  # imports decimals and fractions, which would delay the daemon's start

        near = [each for each in distances_ns if each < 1.5 * distances_ns[len(distances_ns) // 10]]
        return round(median(near)) if len(near) >= self._fewest else None
