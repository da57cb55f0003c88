"""The measured interval with its processes, the times it took, and the operating system's account of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from annotate.evidence.column import Times, Values

Fact: TypeAlias = str | int | float | bool | None  # that was declared, or that an answer names


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRecord:
    """A measured interval, and the processes it measured."""

    begin_ns: int
    end_ns: int
    label: str | None = None
    pids: frozenset[int] = frozenset()
    program: str | None = None  # a digest of executable and arguments: two programs may use one label

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.begin_ns

    @property
    def length_s(self) -> float:
        return self.length_ns / 1e9


@dataclass(frozen=True, slots=True)
class Timings:
    """Times of single iterations in the order they ran: when each began, and how long it took; equal lengths.

    ``sm_clock_mhz`` is the true mean clock of each, NaN where it was not stamped.  An entry that stands for a batch of
    ``calls_count`` calls holds the mean time of one of them.
    """

    at_ns: Times
    took_s: Values
    sm_clock_mhz: Values | None = None
    calls_count: int = 1

    @property
    def timed(self) -> npt.NDArray[np.bool_]:
        """Return which entries hold a duration: nothing takes less than a nanosecond, or a million seconds, or no number."""
        import numpy as np

        return np.asarray((self.took_s > 1e-9) & (self.took_s < 1e6))

    def pick(self, entries: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Timings:
        """The entries that a mask or an order names."""
        clock = self.sm_clock_mhz
        return Timings(self.at_ns[entries], self.took_s[entries], None if clock is None else clock[entries], self.calls_count)

    def in_order(self) -> Timings:
        """The entries by when they began."""
        import numpy as np

        return self.pick(np.argsort(self.at_ns, kind="stable")) if (np.diff(self.at_ns) < 0).any() else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The operating system's account of the window's processes and machine, between its edges."""

    boot_id: str | None = None
    hostname: str | None = None
    kernel: str | None = None
    container: str | None = None
    cpu_allowed_count: int | None = None  # processors the measured process may use
    span_s: float | None = None  # time between the two readings the amounts below are differences of
    cpu_s: float | None = None  # processor time of the measured tree
    run_wait_s: float | None = None  # time its threads were runnable and waited for a processor
    threads_count: int | None = None
    cgroup_throttled_s: float | None = None
    steal_ratio: float | None = None
    cpu_busy_ratio: float | None = None  # of the whole machine
    cpu_pressure_ratio: float | None = None  # PSI "some" share of the span
    numa_nodes: str | None = None  # of the processors it may use, comma-separated
    profilers: str | None = None  # what profiles or slows its calls, comma-separated; empty: looked for, none there
    sharing: str | None = None  # what shares its GPUs by design (MPS, time slices), comma-separated; empty: nothing
    threads_born_count: int | None = None  # that were not there when the window began
    processes_born_count: int | None = None
    born_cpu_s: float | None = None  # processor time of all of these
    wall_step_s: float | None = None  # by how much the wall clock was set during the span
    watcher_cpu_s: float | None = None  # processor time of the watching daemon itself
