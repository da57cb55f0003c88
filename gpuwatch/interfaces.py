"""READ FIRST: the roles of the daemon's parts, and the records that pass between them.

A Source lists GPUs and reads their values.  The sampler queries a Source lane by lane, at a Clock's deadlines, and makes a
Sweep of every answer.  Sinks such as the store receive sweeps.  A RareReading bypasses the sampler.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from annotate.evidence import Device, Event, Fact, Host, Lane, PowerRecord, ProcessList, Reading
from gpuwatch.clock import Signal
from gpuwatch.errors import SourceError


@dataclass(frozen=True, slots=True)
class Lost:
    """A missing answer of a GPU or of the whole source, with the reason."""

    at_ns: int
    reason: str


Observed: TypeAlias = Reading | ProcessList | PowerRecord | Event | Lost


@dataclass(frozen=True, slots=True)
class Sweep:
    """One pass of one lane over one GPU: its deadline, its delay, the number of skipped deadlines, and its answer."""

    uuid: str
    lane: Lane
    due_ns: int
    late_ns: int
    missed_count: int
    observed: Observed


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of a DriverLoop: the times as in a Sweep, and the reading."""

    due_ns: int
    late_ns: int
    missed_count: int
    reading: Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceReading:
    """One MIG instance at one instant: its identity, memory and processes, and the activity of its part of the board."""

    uuid: str
    name: str
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    processes_count: int | None = None
    sm_activity_ratio: float | None = None
    sm_occupancy_ratio: float | None = None
    tensor_activity_ratio: float | None = None
    dram_activity_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RareReading:
    """Signals of one board for operators, which no verdict uses: read rarely, only for the metrics page.

    A source with such signals has a method ``read_rare(uuid)``.  Bytes count from the source's first such reading (PCIe) or
    are the driver's counter (NVLink).
    """

    uuid: str
    at_ns: int
    took_ns: int
    performance_state: int | None = None  # 0 is P0, the fastest
    remapped_corrected_count: int | None = None
    remapped_uncorrected_count: int | None = None
    pcie_sent_bytes: int | None = None
    pcie_received_bytes: int | None = None
    nvlink_sent_bytes: int | None = None
    nvlink_received_bytes: int | None = None
    nvlink_errors_count: Mapping[str, int] = field(default_factory=dict)  # by kind
    nvlink_active_count: int | None = None
    nvlink_inactive_count: int | None = None
    instances: tuple[InstanceReading, ...] = ()


class DriverLoop(Protocol):
    """A source's own loop over one GPU's fast row and pulse: it waits for deadlines, reads, and returns many passes at once.

    A source with such a loop has a method ``series(uuid, row names, pulse names)``, which may return None for a GPU.
    All times are CLOCK_MONOTONIC.
    """

    @property
    def asking_since_ns(self) -> int | None:
        """Return the start time of the pending driver call; None without a pending call."""

    def run(
        self, due_ns: int, until_ns: int, period_ns: int, *, row_at_ns: int, row_after_ns: int, is_resting: bool = False
    ) -> tuple[Sequence[Pass], SourceError | None]:
        """Return the passes that are due from ``due_ns`` until ``until_ns``, at least one unless interrupted or failed.

        The loop may return earlier, with as many passes as it can hold.  A pass reads the whole row if the last row, at
        ``row_at_ns``, is at least ``row_after_ns`` old, else only the pulse.  An error ends the loop, which then returns the
        error with the earlier passes.  ``is_resting`` allows the loop to skip repeated pulses, to return with the first
        different pulse, and to return after ``until_ns`` with the next row.
        """

    def interrupt(self) -> None:
        """Make the current or next call of ``run`` return at once with the finished passes.  Any thread may call ``interrupt``."""


class Clock(Protocol):
    """A source of time."""

    def now_ns(self) -> int: ...

    def wait_until(self, due_ns: int, stop: Signal) -> bool:
        """Wait until a time; return True early if ``stop`` is set."""


class Source(Protocol):
    """A source of evidence: the driver, a simulation, a recording.

    Every method may raise SourceGoneError; methods with a UUID may also raise DeviceLostError.  Unsupported values are None in
    a reading, and an empty tuple elsewhere.  Several threads may call the methods, even for one GPU and lane.
    """

    @property
    def name(self) -> str:
        """Return the specification as for --source: ``nvml``, ``simulated[:SCENE[,SCENE…]]`` or ``replay:PATH``."""

    @property
    def simulated(self) -> bool: ...

    def devices(self) -> tuple[Device, ...]:
        """Return the GPUs with their current identity, limits and modes.  MIG instances follow their board."""

    def read(self, uuid: str, lane: Lane, names: Sequence[str]) -> Reading:
        """Read one row of the fast, pulse, slow or edge lane: only the signals in ``names``; all others stay None."""

    def read_process_list(self, uuid: str, *, utilization: bool = False) -> ProcessList:
        """Return the processes on the GPU.

        ``utilization`` adds each process's share of SM time since the last call with ``utilization``, at a higher cost.
        """

    def power_record(self, uuid: str) -> PowerRecord:
        """Return new samples of the driver's dense power record since the last call; empty without such a record."""

    def events(self, timeout_s: float) -> tuple[Event, ...]:
        """Wait up to ``timeout_s`` for events of any GPU, and return the new events; empty without one."""

    def close(self) -> None: ...


class Sink(Protocol):
    """A receiver of sweeps.  Sampling threads call ``take``, which must be quick and must not raise."""

    def take(self, sweep: Sweep) -> None: ...


@dataclass(frozen=True, slots=True)
class WatchedGpu:
    """One GPU of the source for screens and metrics, with the shown index and the state of sampling."""

    device: Device
    position: int
    lost: str | None  # the reason for missing answers
    period_ns: Mapping[Lane, int]
    supported: Mapping[str, bool]  # by signal; empty until the GPU's call costs are measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One window, from the opening on.

    ``id`` sorts by the second of the opening.  ``uuids`` may grow until the close.  ``process`` is a name and ``program`` a
    digest: a command line may hold secrets.  ``verdicts`` have the form of ``Verdict.to_dict``, one per GPU, worst first.
    """

    id: str
    label: str | None
    claim: str
    policy: Mapping[str, Any]
    boot_id: str
    begin_ns: int
    end_ns: int | None
    begun_wall_s: float
    pid: int
    uid: int
    user: str | None
    process: str | None
    uuids: tuple[str, ...]
    pids: frozenset[int]
    declared: Mapping[str, Fact]
    host: Host | None
    status: str  # "open", "closing", "judging", or a Status value
    why: str
    parent: str | None
    source: str
    simulated: bool
    verdicts: tuple[Mapping[str, Any], ...]
    program: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
