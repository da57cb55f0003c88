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
    """Times of single iterations in the order they ran.

    Attributes:
        at_ns: Beginnings on ``time.monotonic_ns``, in nanoseconds; an int64 array of shape (n,).
        took_s: Durations in seconds; a float64 array of shape (n,).  Of a batch the mean time of one call.
        sm_clock_mhz: True mean SM clock of each in MHz, NaN where it was not stamped; an array of shape (n,), or None.
        calls_count: Number of calls in one entry.

    Example:
        >>> import numpy as np
        >>> from annotate.evidence import Timings
        >>> Timings(np.array([0, 1_000_000]), np.array([0.001, 0.0])).timed.tolist()
        [True, False]
    """

    at_ns: Times
    took_s: Values
    sm_clock_mhz: Values | None = None
    calls_count: int = 1

    @property
    def timed(self) -> npt.NDArray[np.bool_]:
        """Return the entries that hold a duration, as booleans of shape (n,): from a nanosecond to a million seconds."""
        import numpy as np

        return np.asarray((self.took_s > 1e-9) & (self.took_s < 1e6))

    def pick(self, entries: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Timings:
        """Return the entries that a mask or an order names.

        Args:
            entries: Booleans or indices, an array of shape (n,).

        Raises IndexError: when an index lies outside the series.

        Example:
            >>> Timings(np.array([0, 1_000_000]), np.array([0.001, 0.002])).pick(np.array([1])).took_s.tolist()
            [0.002]
        """
        clock = self.sm_clock_mhz
        return Timings(self.at_ns[entries], self.took_s[entries], None if clock is None else clock[entries], self.calls_count)

    def in_order(self) -> Timings:
        """Return the entries in the order of their beginnings.

        Raises nothing.

        Example:
            >>> Timings(np.array([5, 2]), np.array([0.001, 0.002])).in_order().at_ns.tolist()
            [2, 5]
        """
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
