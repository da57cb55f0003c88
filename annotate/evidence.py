"""The nouns: the form in which evidence must be submitted to the judge.

Everything is frozen, and ``None`` (in arrays: NaN) means "not observed", never zero.  Times are CLOCK_MONOTONIC
nanoseconds of the machine that recorded; the unit of any other amount is the last word of its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntFlag, StrEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Times: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = npt.NDArray[np.float64]
Fact: TypeAlias = str | int | float | bool | None

# A reading is repeated at least this often even if nothing changed, so a longer silence is a gap.
HEARTBEAT_NS = 1_000_000_000
_STALE_NS = 1_500_000_000

# Refresh periods to assume where none was measured: the driver's shared page on data-centre boards, driver 580.
_REFRESH_NS = 100_000_000
GRID_COUNT = 500_000  # points of a grid at most: 10 ms over 83 minutes
_DEFAULT_REFRESH_NS: Mapping[str, int] = {
    "utilization_ratio": 208_000_000,
    "mem_utilization_ratio": 208_000_000,
    "temperature_c": 200_000_000,
}


class Lane(StrEnum):
    """How often something is asked: every signal belongs to the lane its measured cost allows."""

    FAST = "fast"
    PULSE = "pulse"  # of the fast lane, the few signals that are asked between two of its rows while a window is open
    SLOW = "slow"
    EDGE = "edge"
    PROCESSES = "processes"
    POWER = "power"
    EVENTS = "events"


class Reason(IntFlag):
    """Clock event reasons, the bits of ``nvmlClocksEventReasons`` (nvml.h); unknown bits are kept."""

    GPU_IDLE = 0x1
    APPLICATIONS_CLOCKS = 0x2
    SW_POWER_CAP = 0x4
    HW_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SW_THERMAL = 0x20
    HW_THERMAL = 0x40
    HW_POWER_BRAKE = 0x80
    DISPLAY_CLOCK = 0x100


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU: who it is, what bounds it, and how it is set up.  Its identity is the UUID, never an index."""

    uuid: str
    name: str
    pci_bus_id: str | None = None
    driver_version: str | None = None
    nvml_version: str | None = None
    vbios_version: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    parent_uuid: str | None = None  # of a MIG instance: the board it lives on
    simulated: bool = False
    sm_clock_max_mhz: int | None = None
    mem_clock_max_mhz: int | None = None
    power_limit_w: float | None = None  # enforced
    power_limit_default_w: float | None = None
    power_limit_min_w: float | None = None
    power_limit_max_w: float | None = None
    temperature_slowdown_c: int | None = None
    temperature_shutdown_c: int | None = None
    memory_total_bytes: int | None = None
    memory_reserved_bytes: int | None = None  # used by driver and firmware with nobody on the GPU
    pcie_generation_max_count: int | None = None
    pcie_width_max_count: int | None = None
    numa_node_count: int | None = None
    cuda_cores_count: int | None = None
    memory_bus_bits_count: int | None = None
    persistence_mode: bool | None = None
    ecc_mode: bool | None = None
    mig_mode: bool | None = None
    compute_mode: str | None = None
    virtualization: str | None = None
    supported_reasons_mask: int | None = None


def _signal(lane: Lane, help_text: str, *, counter: bool = False) -> Any:
    # dataclasses.field is typed as the field's own type, hence Any.
    return field(default=None, metadata={"lane": lane, "help": help_text, "counter": counter})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one lane said of one GPU at one instant: a whole row, so None never means "unchanged".

    ``at_ns`` is when the last call of the row returned, ``took_ns`` what all of them took together.
    """

    uuid: str
    lane: Lane
    at_ns: int
    took_ns: int

    sm_clock_mhz: int | None = _signal(Lane.FAST, "SM clock the driver programmed; 8-12 % above the true mean under a cap")
    mem_clock_mhz: int | None = _signal(Lane.FAST, "memory clock")
    power_w: float | None = _signal(Lane.FAST, "board power, about 25 ms average (field 186)")
    power_average_w: float | None = _signal(Lane.FAST, "board power, trailing 1 s mean (field 185)")
    temperature_c: int | None = _signal(Lane.FAST, "GPU temperature")
    event_reasons_mask: int | None = _signal(Lane.FAST, "clock event reasons, bits as in nvml.h")
    utilization_ratio: float | None = _signal(Lane.FAST, "share of time a kernel was running")
    mem_utilization_ratio: float | None = _signal(Lane.FAST, "share of time device memory was read or written")
    memory_used_bytes: int | None = _signal(Lane.FAST, "device memory in use, driver's reserve included")
    power_cap_ns: int | None = _signal(Lane.FAST, "time below requested clocks for power (field 74)", counter=True)
    sync_boost_ns: int | None = _signal(Lane.FAST, "time held to another GPU's clock (field 76)", counter=True)
    sw_thermal_ns: int | None = _signal(Lane.FAST, "time slowed by software for heat (field 269)", counter=True)

    hw_thermal_ns: int | None = _signal(Lane.SLOW, "time slowed by hardware for heat (field 270)", counter=True)
    power_brake_ns: int | None = _signal(Lane.SLOW, "time slowed by the external power brake (field 271)", counter=True)
    energy_j: float | None = _signal(Lane.SLOW, "energy since the driver was loaded", counter=True)
    memory_temperature_c: int | None = _signal(Lane.SLOW, "memory temperature (field 82)")
    temperature_margin_c: int | None = _signal(Lane.SLOW, "degrees left before slow-down")
    ecc_corrected_count: int | None = _signal(Lane.SLOW, "corrected memory errors, volatile", counter=True)
    ecc_uncorrected_count: int | None = _signal(Lane.SLOW, "uncorrected memory errors, volatile", counter=True)
    remapped_rows_count: int | None = _signal(Lane.SLOW, "memory rows remapped after errors", counter=True)
    remap_pending_count: int | None = _signal(Lane.SLOW, "1 while a row remap waits for a reset")
    remap_failed_count: int | None = _signal(Lane.SLOW, "1 after a row remap failed")
    pcie_replay_count: int | None = _signal(Lane.SLOW, "PCIe packets sent again", counter=True)
    pcie_generation_count: int | None = _signal(Lane.SLOW, "PCIe generation of the link now")
    pcie_width_count: int | None = _signal(Lane.SLOW, "PCIe lanes of the link now")
    sm_activity_ratio: float | None = _signal(Lane.SLOW, "share of SMs with a warp resident (GPM)")
    sm_occupancy_ratio: float | None = _signal(Lane.SLOW, "resident warps over the maximum (GPM)")
    tensor_activity_ratio: float | None = _signal(Lane.SLOW, "share of time the tensor pipe was busy (GPM)")
    dram_activity_ratio: float | None = _signal(Lane.SLOW, "share of memory bandwidth in use (GPM)")
    power_limit_w: float | None = _signal(Lane.SLOW, "enforced power limit")
    sm_clock_lock_mhz: int | None = _signal(Lane.SLOW, "SM clock asked for by a lock or application clock")
    persistence_mode: bool | None = _signal(Lane.SLOW, "persistence mode")
    ecc_mode: bool | None = _signal(Lane.SLOW, "ECC on")
    mig_mode: bool | None = _signal(Lane.SLOW, "MIG on")
    compute_mode: int | None = _signal(Lane.SLOW, "compute mode, number as in nvml.h")

    power_violation_ns: int | None = _signal(Lane.EDGE, "time under the power cap, continuous", counter=True)
    thermal_violation_ns: int | None = _signal(Lane.EDGE, "time slowed for heat, continuous", counter=True)


def signals(lane: Lane) -> tuple[str, ...]:
    """The names a reading of this lane fills, in the order of the record."""
    return tuple(f.name for f in fields(Reading) if f.metadata.get("lane") == lane)


SIGNALS: Mapping[str, Lane] = {f.name: f.metadata["lane"] for f in fields(Reading) if "lane" in f.metadata}
COUNTERS: frozenset[str] = frozenset(f.name for f in fields(Reading) if f.metadata.get("counter"))


class Ownership(StrEnum):
    """Whose process it is, seen from one window."""

    OWN = "own"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"


class Visibility(StrEnum):
    """How much of the machine's process list the witness could see."""

    HOST = "host"  # every process of the machine
    NAMESPACE = "namespace"  # only this container's
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process the driver named: on the process list, or only in the utilisation record (then no memory is known)."""

    pid: int
    name: str | None = None
    user: str | None = None
    started_s: float | None = None  # wall time of its start: a PID alone is reused
    memory_bytes: int | None = None
    utilization_ratio: float | None = None
    listed: bool = True  # False: only the utilisation record names it
    graphics: bool = False
    ownership: Ownership = Ownership.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """Who was on one GPU at one instant."""

    uuid: str
    at_ns: int
    took_ns: int
    processes: tuple[Process, ...]
    visibility: Visibility = Visibility.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRecord:
    """A stretch of the driver's own dense power record (about 20 ms apart): parallel tuples, oldest first."""

    uuid: str
    at_ns: int
    took_ns: int
    sample_at_ns: tuple[int, ...]
    sample_w: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that was reported or befell: an Xid, a clock change, a GPU lost or back, the machine suspended."""

    uuid: str
    at_ns: int
    kind: str  # "xid", "clock", "ecc", "lost", "back", "suspended"
    value: int | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A stretch in which a lane was due and gave nothing."""

    begin_ns: int
    end_ns: int
    lane: Lane = Lane.FAST


@dataclass(frozen=True, slots=True)
class Column:
    """One signal over time: ``at_ns`` ascending, ``values`` of the same length, NaN where not observed."""

    at_ns: Times
    values: Values

    def __len__(self) -> int:
        return len(self.at_ns)


@dataclass(frozen=True, slots=True)
class Increase:
    """How much a counter rose between two readings near a window's edges.

    ``error_ns`` is what one refresh at each edge can hide; it applies to counters of time.
    """

    amount: float
    begin_ns: int
    end_ns: int
    error_ns: int

    @property
    def span_ns(self) -> int:
        return self.end_ns - self.begin_ns

    @property
    def ratio(self) -> float:
        """A counter of nanoseconds as a share of the time between its two readings."""
        return self.amount / self.span_ns

    @property
    def error_ratio(self) -> float:
        return self.error_ns / self.span_ns


_EMPTY = Column(np.empty(0, np.int64), np.empty(0, np.float64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The readings around one window, in columns: from seconds before it to one refresh of every signal after it.

    A signal's column is a step function: a value stands until the next row, and goes stale after a heartbeat and a half.
    ``columns`` holds only signals that were observed at least once.
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    dense_power: Column = _EMPTY
    censuses: tuple[Census, ...] = ()
    events: tuple[Event, ...] = ()
    gaps: tuple[Gap, ...] = ()
    refresh_ns: Mapping[str, int] = field(default_factory=dict)  # measured on this GPU, by signal

    @staticmethod
    def of(
        readings: Iterable[Reading],
        *,
        censuses: Sequence[Census] = (),
        power: Sequence[PowerRecord] = (),
        events: Sequence[Event] = (),
        gaps: Sequence[Gap] = (),
        refresh_ns: Mapping[str, int] | None = None,
    ) -> Trace:
        """A trace from rows in any order; all must speak of one GPU."""
        rows = sorted(readings, key=lambda reading: reading.at_ns)
        columns: dict[str, Column] = {}
        for name in SIGNALS:
            # A signal may be asked in more than one lane (dear ones in a slower one, cheap ones again at the edges): every
            # lane that ever gave it speaks for it, and one that never did says nothing about it.
            lanes = {row.lane for row in rows if getattr(row, name) is not None}
            of_lanes = [row for row in rows if row.lane in lanes]
            if of_lanes:
                values = np.array([getattr(row, name) for row in of_lanes], np.float64)
                columns[name] = Column(np.array([row.at_ns for row in of_lanes], np.int64), values)
        dense = sorted({t: w for record in power for t, w in zip(record.sample_at_ns, record.sample_w, strict=True)}.items())
        return Trace(
            columns=columns,
            dense_power=Column(np.array([t for t, _ in dense], np.int64), np.array([w for _, w in dense], np.float64)),
            censuses=tuple(sorted(censuses, key=lambda census: census.at_ns)),
            events=tuple(sorted(events, key=lambda event: event.at_ns)),
            gaps=tuple(sorted(gaps, key=lambda gap: gap.begin_ns)),
            refresh_ns=dict(refresh_ns or {}),
        )

    def observes(self, name: str) -> bool:
        return name in self.columns

    def column(self, name: str) -> Column:
        """The whole column of a signal, empty if it was never observed."""
        return self.columns.get(name, _EMPTY)

    def refresh_of_ns(self, name: str) -> int:
        """How often this signal's value changes on this GPU: measured where it was, else the data-centre default."""
        return self.refresh_ns.get(name) or _DEFAULT_REFRESH_NS.get(name, _REFRESH_NS)

    def at(self, name: str, times_ns: Times) -> Values:
        """The value in force at each of these times, NaN where none was: before the first row, stale, or in a gap.

        Slow-lane rows are asked for seconds apart, so they only go stale after eleven seconds.
        """
        column = self.column(name)
        out = np.full(len(times_ns), np.nan)
        if not len(column):
            return out
        index = np.searchsorted(column.at_ns, times_ns, side="right") - 1
        known = index >= 0
        lane = SIGNALS.get(name, Lane.FAST)
        stale_ns = _STALE_NS if lane == Lane.FAST else 11_000_000_000
        known[known] = times_ns[known] - column.at_ns[index[known]] <= stale_ns
        out[known] = column.values[index[known]]
        for gap in self.gaps:
            if gap.lane == lane:
                out[(times_ns > gap.begin_ns) & (times_ns < gap.end_ns)] = np.nan
        return out

    def within(self, name: str, begin_ns: int, end_ns: int, *, step_ns: int = 10_000_000) -> Column:
        """The signal on a regular grid from begin (inclusive) to end (exclusive): at this step, coarser over many hours."""
        times = grid(begin_ns, end_ns, step_ns)
        return Column(times, self.at(name, times))

    def increase(self, name: str, begin_ns: int, end_ns: int) -> Increase | None:
        """How much a counter rose over an interval, or None if no reading brackets it closely enough.

        It takes the last reading at or before each edge's far side: within a slack of 5 % of the interval (at least
        50 ms) a reading just inside serves too, because a slow lane is first asked when the window opens.
        A counter that fell was reset (driver reload): None.
        """
        column = self.column(name)
        seen = ~np.isnan(column.values) if len(column) else np.empty(0, bool)
        at_ns, values = column.at_ns[seen], column.values[seen]
        if len(at_ns) < 2:
            return None
        slack_ns = max(50_000_000, (end_ns - begin_ns) // 20)
        first = int(np.searchsorted(at_ns, begin_ns, side="right")) - 1
        reach_ns = max(2 * HEARTBEAT_NS, slack_ns)
        if first < 0 or begin_ns - at_ns[first] > reach_ns:
            first += 1
            if first >= len(at_ns) or at_ns[first] > begin_ns + slack_ns:
                return None
        last = int(np.searchsorted(at_ns, end_ns, side="left"))
        if last >= len(at_ns) or at_ns[last] - end_ns > reach_ns:
            last -= 1
            if last < 0 or at_ns[last] < end_ns - slack_ns:
                return None
        if last <= first or values[last] < values[first]:
            return None
        return Increase(
            amount=float(values[last] - values[first]),
            begin_ns=int(at_ns[first]),
            end_ns=int(at_ns[last]),
            error_ns=2 * self.refresh_of_ns(name),
        )


def grid(begin_ns: int, end_ns: int, step_ns: int) -> Times:
    """Times from begin (inclusive) to end (exclusive), so far apart or, over long spans, as far as their number demands.

    A day at 10 ms would be 9 million points for every question a rule asks.
    """
    return np.arange(begin_ns, end_ns, max(step_ns, (end_ns - begin_ns) // GRID_COUNT), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A measured interval, and the processes it measured."""

    begin_ns: int
    end_ns: int
    label: str | None = None
    pids: frozenset[int] = frozenset()

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.begin_ns

    @property
    def length_s(self) -> float:
        return self.length_ns / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the operating system said of the window's processes and machine, between its edges."""

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
        """Which entries hold a duration: nothing takes less than a nanosecond, or a million seconds, or no number."""
        return np.asarray((self.took_s > 1e-9) & (self.took_s < 1e6))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known of one window on one GPU.

    ``told`` holds facts only the measured process knows, by the names of ``annotate.told``: they may worsen a verdict,
    never improve it.  ``absence`` says why there is no telemetry, where there is none.  ``baseline`` is what the window is
    compared with, where it is.
    """

    window: Window
    device: Device | None = None
    trace: Trace = Trace()
    host: Host = Host()
    told: Mapping[str, Fact] = field(default_factory=dict)
    timings: Timings | None = None
    absence: str | None = None
    baseline: Evidence | None = None

    def observes(self, name: str) -> bool:
        """Whether a signal, ``census``, ``dense_power``, ``timings``, ``baseline``, ``host.X`` or ``told.X`` is there at all."""
        match name.partition("."):
            case ("host", _, fact):
                return getattr(self.host, fact) is not None
            case ("told", _, fact):
                return self.told.get(fact) is not None
            case ("device", _, fact):
                return self.device is not None and getattr(self.device, fact) is not None
            case ("census", _, _):
                return bool(self.trace.censuses)
            case ("dense_power", _, _):
                return len(self.trace.dense_power) > 0
            case ("timings", "", _):
                return self.timings is not None
            case ("timings", _, _):
                clock = self.timings.sm_clock_mhz if self.timings else None
                return clock is not None and bool(np.isfinite(clock).any())
            case ("baseline", _, _):
                return self.baseline is not None
            case _:
                return self.trace.observes(name)

    def within(self, name: str, *, step_ns: int = 10_000_000) -> Column:
        """A signal on a regular grid over the window, shortened by one refresh at its start.

        A gauge shows what was true up to one refresh ago, so the window's first refresh still speaks of the time before.
        """
        lag_ns = min(self.trace.refresh_of_ns(name), self.window.length_ns // 2)
        return self.trace.within(name, self.window.begin_ns + lag_ns, self.window.end_ns, step_ns=step_ns)

    def increase(self, name: str) -> Increase | None:
        """How much a counter rose over the window; None where no readings bracket it."""
        return self.trace.increase(name, self.window.begin_ns, self.window.end_ns)

    def part(self, begin_ns: int, end_ns: int) -> Evidence:
        """The same evidence for a part of the window."""
        return replace(self, window=replace(self.window, begin_ns=begin_ns, end_ns=end_ns))
