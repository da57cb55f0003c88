"""READ FIRST: the roles of the machinery, and the one record that passes between them.

A Source says what GPUs are there and what they say now.  The sampler asks it, lane by lane, on a Clock's deadlines, and
makes a Sweep of every answer.  Sinks (store, exporter, live feed) take sweeps.  Nothing else crosses these walls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from annotate.evidence import Device, Event, Fact, Host, Lane, PowerRecord, ProcessList, Reading
from gpuwatch.clock import Signal
from gpuwatch.errors import SourceError


@dataclass(frozen=True, slots=True)
class Lost:
    """The GPU or the whole source did not answer, and why."""

    at_ns: int
    reason: str


Observed: TypeAlias = Reading | ProcessList | PowerRecord | Event | Lost


@dataclass(frozen=True, slots=True)
class Sweep:
    """One pass of one lane over one GPU: when it was due, how late it came, how many deadlines it skipped, what it saw.

    ``repeated_count`` is the number of passes just before it that read the same and are not handed on.
    """

    uuid: str
    lane: Lane
    due_ns: int
    late_ns: int
    missed_count: int
    observed: Observed
    repeated_count: int = 0


@dataclass(frozen=True, slots=True)
class RepeatedPass:
    """One pass of a series that read the same as the pass before it: its times alone."""

    due_ns: int
    late_ns: int
    missed_count: int
    took_ns: int


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of a series: as a Sweep says of it, and what was read.

    ``repeated`` are the pulses just before it that read the same: it shows how long their values stood.
    """

    due_ns: int
    late_ns: int
    missed_count: int
    reading: Reading
    repeated: Sequence[RepeatedPass] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceReading:
    """One MIG instance at one instant: its identity, its memory, and the activity of its part of the board."""

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
    """Signals of one board that operators ask for and no verdict needs: read rarely, only for the metrics page.

    A source that has them offers ``read_rare(uuid)``; others lack the method.  Bytes are counted since the source was opened
    (PCIe) or by the driver (NVLink).
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
    """A source's own loop over one GPU's fast row and pulse: it waits for deadlines and asks, and tells of many at once.

    A source that has one offers ``series(uuid, row names, pulse names)``, which may be None for a GPU; others lack the method.
    Its times are the monotonic clock's.
    """

    @property
    def asking_since_ns(self) -> int | None:
        """Since when it waits for an answer of the driver; None while it does not."""

    def run(
        self, due_ns: int, until_ns: int, period_ns: int, *, row_at_ns: int, row_after_ns: int, is_resting: bool = False
    ) -> tuple[Sequence[Pass], SourceError | None]:
        """Passes from the first deadline on while they are due in time, at least one unless interrupted.

        Each is of the whole row if the last one, at ``row_at_ns``, was ``row_after_ns`` before, else of the pulse.  What went
        wrong ends it, and comes beside the passes before.  ``is_resting``: it may pass over pulses that say what the one before
        said, and then returns with the next row or the first pulse that differs.
        """

    def interrupt(self) -> None:
        """Have ``run``, or the next one, return at once with what it has.  Any thread may call it."""


class Clock(Protocol):
    """A source of time."""

    def now_ns(self) -> int: ...

    def wait_until(self, due_ns: int, stop: Signal) -> bool:
        """Wait for a time; True if ``stop`` was set instead."""


class Source(Protocol):
    """A source of evidence: the driver, a simulation, a recording.

    Every method may raise SourceGoneError; those that take a UUID may raise DeviceLostError.  What is unsupported is
    None in a reading and an empty tuple elsewhere.  Methods may be called from several threads, one a GPU and lane.
    """

    @property
    def name(self) -> str:
        """``nvml``, ``simulated:SCENE`` or ``replay:PATH``, as --source takes it."""

    @property
    def simulated(self) -> bool: ...

    def devices(self) -> tuple[Device, ...]:
        """The GPUs, with identity, limits and modes as they are now.  MIG instances follow their board."""

    def read(self, uuid: str, lane: Lane, names: Sequence[str]) -> Reading:
        """One row of the fast, slow or edge lane: these signals are asked, the others stay None."""

    def read_process_list(self, uuid: str, *, utilization: bool = False) -> ProcessList:
        """Who is on the GPU; with ``utilization`` also how busy each was since the last such call (costs milliseconds)."""

    def power_record(self, uuid: str) -> PowerRecord:
        """What the driver's dense power record gained since the last call; empty where there is none."""

    def events(self, timeout_s: float) -> tuple[Event, ...]:
        """Wait for events of any GPU, at most so long."""

    def close(self) -> None: ...


class Sink(Protocol):
    """A receiver of sweeps.  ``take`` is called from sampling threads: it must be quick and must not raise."""

    def take(self, sweep: Sweep) -> None: ...


@dataclass(frozen=True, slots=True)
class WatchedGpu:
    """One GPU of the source, as screens and metrics show it: its place there, and how it is sampled."""

    device: Device
    position: int
    lost: str | None  # why it does not answer
    period_ns: Mapping[Lane, int]
    supported: Mapping[str, bool]  # by signal; empty where the GPU could not be measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One window from its opening on.

    ``id`` sorts by time.  ``uuids`` may grow until it closes.  ``process`` is a name, never a command line: those hold
    secrets, and ``program`` is only a digest of them.  ``verdicts`` are as ``Verdict.to_dict`` gives them, one a GPU, worst first.
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
    status: str  # "open", "judging", or a Status value
    why: str
    parent: str | None
    source: str
    simulated: bool
    verdicts: tuple[Mapping[str, Any], ...]
    program: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
