"""A timed pair of kernels with counters, rooflines and reasons, measured on a GPU or simulated."""

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from annotate.compare.quad_decision import decide
from annotate.compare.quads import Quads
from annotate.derived.roofline import peak_bytes_a_second, sm_count
from annotate.evidence import Device
from gpuwatch.clock import MonotonicClock
from gpuwatch.diff.kernel_counters import HALVES, REPEATS, Counters
from gpuwatch.diff.kernel_roofline import KernelRoofline, Peaks, against_roofline, read_peaks
from gpuwatch.diff.read_counters import Asked, CounterPermission, collect
from gpuwatch.diff.reasons import RatioReason, explain, why_none
from gpuwatch.diff.static_comparison import KernelSide, StaticComparison
from gpuwatch.diff.timed_pair import SideTimes, TimedPair
from gpuwatch.diff.timing_process import TimingProcess
from gpuwatch.errors import SourceError
from gpuwatch.measuring import canary_record
from gpuwatch.sources import open_source

_SIDE_BYTES, _CLOCK_MHZ, _QUADS, _NOISE_RATIO = 512 << 20, 1830.0, 60, 0.002
_ITERATIONS = 32  # assumed for every loop
_SIMULATED_SOURCE = "GPM, simulated: a share of each side's modelled time"


@dataclass(frozen=True, slots=True)
class ExplainedPair:
    """The result for one pair of kernels: times, counters, rooflines and reasons."""

    timed: TimedPair
    counters: Counters
    peaks: Peaks | None  # None if nothing was timed, or the driver does not describe the GPU
    a: KernelRoofline | None
    b: KernelRoofline | None
    reasons: tuple[RatioReason, ...]
    why_none: str

    @property
    def peak_clock(self) -> str:
        """Return the name of the clock of the arithmetic's peak."""
        sides = (self.timed.a, self.timed.b)
        return "true clock" if all(each is not None and each.true_clock_mhz for each in sides) else "maximum clock"

    @property
    def is_simulated(self) -> bool:
        return self.peaks is not None and self.peaks.device.simulated

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; the schema is ``docs/schemas/diff.json``."""
        return {
            **asdict(self.timed),
            "simulated": self.is_simulated,
            "gpu": self.peaks.device.name if self.peaks else None,
            "counters": self.counters.to_dict(),
            "peak_memory_bytes": {kind: getattr(self.peaks, f"{kind}_bytes", None) for kind in ("measured", "specified")},
            "roofline": {"a": self.a and self.a.to_dict(), "b": self.b and self.b.to_dict()},
            "why": [asdict(each) for each in self.reasons],
        }


def explain_pair(timed: TimedPair, static: StaticComparison | None, counters: Counters, peaks: Peaks | None) -> ExplainedPair:
    """Explain one timed pair, from counters alone if there is no code."""
    if static is not None and not any("f16" in line.text for side in (static.a, static.b) for line in side.code.ptx):
        counters = counters.without(HALVES)  # HFMA2 also loads constants, which is not arithmetic
    a = against_roofline(timed.a, "a", counters, peaks) if timed.a and peaks else None
    b = against_roofline(timed.b, "b", counters, peaks) if timed.b and peaks else None
    return ExplainedPair(timed, counters, peaks, a, b, explain(timed, static, counters), why_none(timed))


def explain_timed(
    timed: TimedPair,
    running: TimingProcess,
    static: StaticComparison | None,
    *,
    permission: CounterPermission,
    asked: Asked,
    state: Path,
    say: Callable[[str], None],
) -> ExplainedPair:
    """Read the counters of one timed pair and explain the pair; ``static`` is None for Python functions.

    Raises UsageError: when counters are required and unavailable.
    """
    if timed.a is None:  # nothing was timed: the pair must not run again
        return explain_pair(timed, static, Counters("none", "none: nothing was timed"), None)
    try:
        device = running.device
    except SourceError as error:
        return explain_pair(timed, static, Counters("none", f"none: {error}"), None)
    counters = collect(running, permission, asked, lambda: open_source("nvml", MonotonicClock()), say)
    return explain_pair(timed, static, counters, read_peaks(device, canary_record.facts(state, device.uuid)))


def simulate_pairs(comparisons: Sequence[StaticComparison]) -> tuple[ExplainedPair, ...]:
    """Return pairs with the times of a simulated H200."""
    with closing(open_source("simulated", MonotonicClock())) as source:
        device = source.devices()[0]
    pairs = ((*simulate(static, device), static) for static in comparisons)
    return tuple(explain_pair(timed, static, counters, read_peaks(device, {})) for timed, counters, static in pairs)


def simulate(static: StaticComparison, device: Device, seed: int = 0) -> tuple[TimedPair, Counters]:
    """Return simulated times and counters; each time is an instruction time plus a memory time."""
    random = np.random.default_rng(seed)
    times, means = zip(*(_model(side, device) for side in (static.a, static.b)), strict=True)
    a_s, b_s = (each * random.normal(1.0, _NOISE_RATIO, (_QUADS, 2)) for each in times)
    found = decide("A", "B", Quads(a_s, b_s))
    interval = found.ratio
    assert interval is not None  # noqa: S101 - sixty quads give an interval
    sides = [SideTimes(2 * _QUADS, each, each, each, _CLOCK_MHZ, _SIDE_BYTES // 2, _SIDE_BYTES // 2) for each in times]
    low, ratio, high = (1.0 / each for each in (interval.high, interval.centre, interval.low))
    reason = "; ".join(found.reasons) if found.decision.value == "inconclusive" else ""
    timed = TimedPair(found.decision.value.upper(), reason, ratio, low, high, ratio, "SIMULATED", sides[0], sides[1])
    readings = [
        {name: tuple(random.normal(mean, 0.01 * mean, REPEATS).clip(0, 1).tolist()) for name, mean in each.items()}
        for each in means
    ]
    return timed, Counters("GPM", _SIMULATED_SOURCE, *readings)


def _model(side: KernelSide, device: Device) -> tuple[float, dict[str, float]]:
    """Return the modelled time of a call in seconds, and the mean of each counter."""
    lines = side.code.sass or side.code.ptx
    loads = float(sum(_ITERATIONS**each.depth for each in lines if each.kind.startswith(("LDG", "ld.global"))))
    threads = _SIDE_BYTES / 8 / max(loads, 1.0)  # each float takes 8 bytes: one read, one write
    issued = float(sum(_ITERATIONS**each.depth for each in lines)) * threads / 32
    occupancy = side.occupancy.ratio if side.occupancy else 1.0
    compute_s = issued / ((sm_count(device) or 1) * 4 * _CLOCK_MHZ * 1e6) / math.sqrt(occupancy)
    memory_s = _SIDE_BYTES / (peak_bytes_a_second(device) or 1e12)
    time_s = compute_s + memory_s
    return time_s, {"sm_activity_ratio": 0.95, "dram_activity_ratio": memory_s / time_s, "occupancy_ratio": occupancy}
