"""The measured interval with its processes, the times of its iterations, and the operating system's accounting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from annotate.evidence.column import Times, Values

Fact: TypeAlias = str | int | float | bool | None  # a declared fact, or a fact of an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRecord:
    """A measured interval with its measured processes."""

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
    """Times of single iterations; ``in_order`` sorts the entries by start time.

    Raises nothing.

    Attributes:
        at_ns: Start times on ``time.monotonic_ns``, in nanoseconds; an int64 array of shape (n,).
        took_s: Durations in seconds; a float64 array of shape (n,).  For a batch, the mean time of one call.
        sm_clock_mhz: True mean SM clock of each entry in MHz, NaN without a stamp; an array of shape (n,), or None.
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
        """Return a mask of shape (n,): True for an entry with a duration between a nanosecond and a million seconds."""
        import numpy as np

        return np.asarray((self.took_s > 1e-9) & (self.took_s < 1e6))

    def pick(self, entries: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Timings:
        """Return the entries that a mask or indices select.

        Args:
            entries: A mask of shape (n,), or indices of any number.

        Raises IndexError: when an index lies outside the series, or the mask has another length.

        Example:
            >>> Timings(np.array([0, 1_000_000]), np.array([0.001, 0.002])).pick(np.array([1])).took_s.tolist()
            [0.002]
        """
        clock = self.sm_clock_mhz
        return Timings(self.at_ns[entries], self.took_s[entries], None if clock is None else clock[entries], self.calls_count)

    def in_order(self) -> Timings:
        """Return the entries in the order of their start times.

        Raises nothing.

        Example:
            >>> Timings(np.array([5, 2]), np.array([0.001, 0.002])).in_order().at_ns.tolist()
            [2, 5]
        """
        import numpy as np

        return self.pick(np.argsort(self.at_ns, kind="stable")) if (np.diff(self.at_ns) < 0).any() else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The operating system's account of the window's processes and machine, between the window's edges."""

    boot_id: str | None = None
    hostname: str | None = None
    kernel: str | None = None
    container: str | None = None
    cpu_allowed_count: int | None = None  # CPUs that the measured process may use
    span_s: float | None = None  # time between the two readings; the times and ratios below are changes in this span
    cpu_s: float | None = None  # CPU time of the measured process tree
    run_wait_s: float | None = None  # time that runnable threads of the tree waited for a CPU
    threads_count: int | None = None
    cgroup_throttled_s: float | None = None
    steal_ratio: float | None = None
    cpu_busy_ratio: float | None = None  # busy share of the whole machine's CPU time
    cpu_pressure_ratio: float | None = None  # PSI "some" share of the span
    numa_nodes: str | None = None  # nodes of the allowed CPUs, comma-separated
    profilers: str | None = None  # tools that profile or slow calls, as kind:name, comma-separated; empty if none
    sharing: str | None = None  # designed sharing of the GPUs (MPS, time slices), comma-separated; empty if none
    threads_born_count: int | None = None  # threads that earlier processes started after the window began
    processes_born_count: int | None = None
    born_cpu_s: float | None = None  # CPU time of these threads and processes
    wall_step_s: float | None = None  # step of the wall clock during the span
    watcher_cpu_s: float | None = None  # CPU time of the watching daemon
