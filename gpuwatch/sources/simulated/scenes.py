"""The scenes: the scripted events on each simulated GPU.

A scene scripts causes (load, neighbours, faults of the board), never readings: the driver's values and the judge's
findings follow from the physics.  The judge never reads ``status`` and ``rules``, the correct verdict on the scene's
benchmark under the claim ``sustained``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpuwatch.sources.simulated.kernels import (
    ATTENTION,
    CONVOLUTION,
    COPY,
    FLOAT_GEMM,
    GEMM,
    LARGE_GEMM,
    VECTOR_ADD,
    Kernel,
)

FOREVER_S = 1e9


class Fault(StrEnum):
    """A fault of a board, or a change of its settings."""

    LOST = "lost"  # the board does not answer
    HOT_AIR = "hot-air"  # value: degrees added to the cooling air
    SLOWDOWN = "hw-slowdown"  # value: remaining share of the clock
    POWER_BRAKE = "power-brake"  # value: remaining share of the clock
    SYNC_BOOST = "sync-boost"  # value: remaining share of the clock, set by the group's slowest GPU
    MEMORY_CLOCK = "mem-clock"  # value: MHz
    POWER_LIMIT = "power-limit"  # value: watts, set by another user
    CLOCK_SAG = "clock-sag"  # falling linearly without a reported reason; value: remaining ratio at the end
    XID = "xid"  # value: number of the Xid
    ECC_CORRECTED = "ecc-corrected"  # value: errors added at the start
    ECC_UNCORRECTED = "ecc-uncorrected"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedBoard:
    """The hardware and settings of a simulated board; the defaults are those of an H200."""

    sm_clock_max_mhz: int = 1980
    mem_clock_max_mhz: int = 3201
    idle_clock_mhz: int = 825  # without a context; with a context the clock stays at its maximum
    ramp_s: float = 0.02  # time constant of the clock's rise from idle
    power_limit_w: float = 700.0
    persistence_mode: bool = True
    mig_profiles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A period of work of the benchmark's own process.  Between periods the process is idle and keeps its context.

    Work and idleness alternate with ``on_s`` and ``off_s``.  ``share`` is the GPU's busy share of the work; a share below 1
    simulates interruptions that are too short to be observed, such as late launches.
    """

    begin_s: float
    end_s: float = FOREVER_S
    kernel: Kernel
    on_s: float = FOREVER_S
    off_s: float = 0.0
    share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another process: its periods of work, and ``listed``, which is False if the process list omits the process."""

    pid: int
    name: str
    begin_s: float
    end_s: float = FOREVER_S
    kernel: Kernel = VECTOR_ADD
    on_s: float = FOREVER_S
    off_s: float = 0.0
    listed: bool = True
    memory_bytes: int = 724_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mishap:
    """A fault and its duration."""

    fault: Fault
    begin_s: float
    end_s: float = FOREVER_S
    value: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The script of one GPU.  Times are seconds since the scene's epoch; after ``length_s`` the script repeats.

    ``bench`` is the interval of the scene's benchmark.  The benchmark's process has a context from ``context_s`` on.
    """

    name: str
    says: str
    phases: tuple[Phase, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    mishaps: tuple[Mishap, ...] = ()
    board: SimulatedBoard = SimulatedBoard()
    context_s: float = 0.0
    length_s: float = FOREVER_S
    hogged: bool = False  # busy CPU cores delay the benchmark's launches
    bench: tuple[float, float] = (4.0, 7.5)
    status: str = "valid"
    rules: frozenset[str] = field(default_factory=frozenset)


_STEADY_COPY = (Phase(begin_s=0.2, kernel=COPY),)
_STEADY_GEMM = (Phase(begin_s=0.2, kernel=GEMM),)
_CAPPED = frozenset({"power-limited"})


def _during(fault: Fault, begin_s: float, end_s: float, value: float) -> tuple[Mishap, ...]:
    return (Mishap(fault=fault, begin_s=begin_s, end_s=end_s, value=value),)


_ALL = (
    Scene(name="steady-copy", says="1 GiB copies, warmed: a quiet run", phases=_STEADY_COPY),
    Scene(name="steady-gemm", says="4096³ bf16 products, warmed: limited by the power cap throughout", phases=_STEADY_GEMM,
          rules=_CAPPED),
    Scene(name="from-idle", says="the same products, started on an idle GPU: the power cap engages inside the window",
          phases=(Phase(begin_s=4.5, end_s=6.7, kernel=GEMM),), bench=(4.5, 6.6), length_s=12.0, status="flagged",
          rules=frozenset({"regime-change"})),
    Scene(name="bursty", says="16384³ products with 100 ms sleeps: clocks higher than in steady work",
          phases=(Phase(begin_s=0.2, kernel=LARGE_GEMM, on_s=0.0108, off_s=0.1),), status="flagged",
          rules=frozenset({"bursty-duty-cycle"})),
    Scene(name="neighbour", says="another process adds vectors throughout", phases=_STEADY_GEMM,
          neighbours=(Neighbour(pid=60_101, name="neighbour", begin_s=1.0),), status="rejected",
          rules=frozenset({"contention-process"})),
    Scene(name="burst-neighbour", says="another process adds vectors for 50 ms each second", phases=_STEADY_GEMM,
          neighbours=(Neighbour(pid=60_102, name="neighbour", begin_s=0.5, on_s=0.05, off_s=0.95),), status="flagged",
          rules=frozenset({"contention-process"})),
    Scene(name="hidden-neighbour", says="the same neighbour in another container: the process list does not name it",
          phases=_STEADY_GEMM, neighbours=(Neighbour(pid=60_103, name="neighbour", begin_s=1.0, listed=False),),
          status="rejected", rules=frozenset({"contention-residual"})),
    Scene(name="cpu-hogs", says="busy CPU cores delay launches: the GPU idles",
          phases=(Phase(begin_s=0.2, kernel=GEMM, share=0.07),), hogged=True, status="rejected",
          rules=frozenset({"unaccounted-time"})),
    Scene(name="thermal", says="the cooling air is too hot: the driver lowers the clock", phases=_STEADY_GEMM,
          mishaps=_during(Fault.HOT_AIR, 0.0, FOREVER_S, 30.0), status="flagged", rules=frozenset({"throttle-thermal"})),
    Scene(name="hw-slowdown", says="hardware halves the clock for 300 ms", phases=_STEADY_COPY,
          mishaps=_during(Fault.SLOWDOWN, 5.5, 5.8, 0.5), length_s=20.0, status="rejected",
          rules=frozenset({"throttle-hw-slowdown"})),
    Scene(name="power-brake", says="the power supply triggers the power brake for 300 ms", phases=_STEADY_COPY,
          mishaps=_during(Fault.POWER_BRAKE, 5.5, 5.8, 0.5), length_s=20.0, status="rejected",
          rules=frozenset({"throttle-power-brake"})),
    Scene(name="sync-boost", says="the clock follows the slowest GPU of a boost group",
          phases=(Phase(begin_s=0.2, kernel=FLOAT_GEMM),), mishaps=_during(Fault.SYNC_BOOST, 1.0, FOREVER_S, 0.9),
          status="flagged", rules=frozenset({"sync-boost-limited"})),
    Scene(name="mem-clock", says="the memory runs at 2201 MHz for a third of the window", phases=_STEADY_COPY,
          mishaps=_during(Fault.MEMORY_CLOCK, 5.0, 6.1, 2201.0), length_s=20.0, status="rejected",
          rules=frozenset({"mem-clock-change"})),
    Scene(name="drift", says="the clock sags by 6 % while the window runs, without a reported reason",
          phases=(Phase(begin_s=0.2, kernel=FLOAT_GEMM),), mishaps=_during(Fault.CLOCK_SAG, 4.0, 7.5, 0.94),
          length_s=20.0, status="flagged", rules=frozenset({"clock-drift"})),
    Scene(name="ramp", says="the clock rises slowly from 210 MHz, and the window starts too early",
          phases=(Phase(begin_s=4.0, end_s=7.6, kernel=FLOAT_GEMM),), context_s=3.99,
          board=SimulatedBoard(idle_clock_mhz=210, ramp_s=0.4), length_s=12.0, status="rejected", rules=frozenset({"clock-ramp"})),
    Scene(name="setting-change", says="another user lowers the power limit to 500 W in the window", phases=_STEADY_GEMM,
          mishaps=_during(Fault.POWER_LIMIT, 5.5, 12.0, 500.0), length_s=20.0, status="rejected",
          rules=frozenset({"setting-changed"})),
    Scene(name="ecc-error", says="an uncorrectable memory error, and the driver's Xid", phases=_STEADY_COPY,
          mishaps=(*_during(Fault.ECC_UNCORRECTED, 5.5, FOREVER_S, 1.0), *_during(Fault.XID, 5.5, FOREVER_S, 48.0)),
          status="rejected", rules=frozenset({"hardware-error"})),
    Scene(name="persistence-off", says="copies from a process that loads the driver, with persistence mode off",
          phases=(Phase(begin_s=2.6, kernel=COPY),), context_s=2.5, board=SimulatedBoard(persistence_mode=False), bench=(4.8, 8.0),
          length_s=20.0, rules=frozenset({"persistence-off"})),
    Scene(name="gpu-lost", says="the GPU does not answer for two seconds, then answers again", phases=_STEADY_COPY,
          mishaps=_during(Fault.LOST, 5.0, 7.0, 0.0), bench=(4.0, 7.8), length_s=20.0, status="unproven",
          rules=frozenset({"stale-daemon"})),
    Scene(name="short", says="a window of 60 ms: too short for evidence", phases=_STEADY_COPY, bench=(4.0, 4.06),
          status="unproven"),
    Scene(name="idle", says="no process computes", context_s=FOREVER_S, status="rejected", rules=frozenset({"no-work"})),
    Scene(name="mig", says="a board divided into MIG instances", phases=_STEADY_COPY,
          board=SimulatedBoard(mig_profiles=("3g.71gb", "3g.71gb")), status="flagged", rules=frozenset({"contention-shared-partition"})),
    Scene(name="attention", says="attention kernels, warmed", phases=(Phase(begin_s=0.2, kernel=ATTENTION),), rules=_CAPPED),
    Scene(name="convolution", says="3×3 convolutions, warmed", phases=(Phase(begin_s=0.2, kernel=CONVOLUTION),),
          rules=_CAPPED),
    Scene(name="large-gemm", says="16384³ products, warmed", phases=(Phase(begin_s=0.2, kernel=LARGE_GEMM),), rules=_CAPPED),
)  # fmt: skip

SCENES: Mapping[str, Scene] = {scene.name: scene for scene in _ALL}

# Names for groups of GPUs, with one scene per GPU.
FLEETS: Mapping[str, tuple[str, ...]] = {
    "fleet": ("steady-gemm", "steady-copy", "neighbour", "bursty", "thermal", "attention", "from-idle", "idle"),
    "demo": ("steady-gemm", "from-idle", "neighbour"),
    "quartet": ("steady-gemm", "steady-copy", "neighbour", "bursty"),
}
DEFAULT_FLEET = "quartet"
