"""The sampler's own error: lateness, real rate and cost of its passes."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gpuwatch import clock

WITHIN_NS = 60_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Statistics of one turn over the passes noted in the last minute."""

    what: str
    asked_count: int
    missed_count: int
    rate_hz: float
    late_p50_ns: int
    late_p99_ns: int
    late_max_ns: int
    cost_ratio: float  # time inside the source's calls, as a share of wall time
    lost: str | None = None


class Pace:
    """The last minute of one turn's passes.  The turn's thread writes, and any thread may read."""

    def __init__(self) -> None:
        # Holds a minute at up to 200 Hz, and less time at higher rates.
        self._passes: deque[tuple[int, int, int, int]] = deque(maxlen=12_000)

    def note(self, at_ns: int, late_ns: int, took_ns: int, missed_count: int) -> None:
        passes = self._passes
        passes.append((at_ns, late_ns, took_ns, missed_count))
        while passes[0][0] < at_ns - WITHIN_NS:
            passes.popleft()

    def rate_hz(self, now_ns: int, *, within_ns: int = 10_000_000_000) -> float:
        """Return the rate of passes in the last ``within_ns``, at less cost than ``statistics``; 0 for fewer than two passes."""
        count, first_ns = 0, now_ns
        for at_ns, *_ in reversed(self._passes.copy()):
            if at_ns < now_ns - within_ns:
                break
            count, first_ns = count + 1, at_ns
        return count / ((now_ns - first_ns) / 1e9) if count > 1 and now_ns > first_ns else 0.0

    def statistics(self, what: str, now_ns: int, lost: str | None) -> Statistics:
        passes = [row for row in self._passes.copy() if row[0] >= now_ns - WITHIN_NS]
        late = sorted(row[1] for row in passes)
        span_ns = max(1, now_ns - passes[0][0]) if passes else 1
        return Statistics(
            what=what,
            asked_count=len(passes),
            missed_count=sum(row[3] for row in passes),
            rate_hz=len(passes) / (span_ns / 1e9) if len(passes) > 1 else 0.0,
            late_p50_ns=late[len(late) // 2] if late else 0,
            late_p99_ns=late[min(len(late) - 1, len(late) * 99 // 100)] if late else 0,
            late_max_ns=late[-1] if late else 0,
            cost_ratio=sum(row[2] for row in passes) / span_ns,
            lost=lost,
        )


class ThreadCost:
    """CPU time of one sampling thread, read only once a second, because each read is a system call."""

    def __init__(self, cpu_ns: Callable[[], int] = clock.thread_cpu_ns, *, every_ns: int = 1_000_000_000) -> None:
        self._cpu_ns = cpu_ns
        self._every_ns = every_ns
        self._looks: deque[tuple[int, int]] = deque(maxlen=61)
        self._next_ns = 0

    def note(self, now_ns: int) -> None:
        """Read the CPU time, at most once per ``every_ns``.  Only the measured thread may call this method."""
        if now_ns >= self._next_ns:
            self._looks.append((now_ns, self._cpu_ns()))
            self._next_ns = now_ns + self._every_ns

    def ratio(self) -> float | None:
        """Return the share of one CPU core over the last 61 readings at most; None before the second reading."""
        looks = self._looks.copy()
        if len(looks) < 2 or looks[-1][0] <= looks[0][0]:
            return None
        return (looks[-1][1] - looks[0][1]) / (looks[-1][0] - looks[0][0])
