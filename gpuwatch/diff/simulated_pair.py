"""Times of a pair that nobody ran, for a GPU that does not exist: they show the screen, from a model of the code."""

import math

import numpy as np

from annotate.compare.quad_decision import decide
from annotate.compare.quads import Quads
from annotate.derived.roofline import peak_bytes_a_second, sm_count
from annotate.evidence import Device
from gpuwatch.diff.kernel_counters import REPEATS, Counters, Readings
from gpuwatch.diff.static_comparison import KernelSide, StaticComparison
from gpuwatch.diff.timed_pair import SideTimes, TimedPair

_SIDE_BYTES, _CLOCK_MHZ, _QUADS, _NOISE_RATIO = 512 << 20, 1830.0, 60, 0.002
_ITERATIONS = 32  # of every loop
_SAYS = "GPM, simulated: a share of each model's time"


def simulate(static: StaticComparison, device: Device, seed: int = 0) -> tuple[TimedPair, Counters]:
    """Return times and counters as the code would give them if each thread's instructions and the memory shared the time."""
    random = np.random.default_rng(seed)
    times = [_model_s(side, device) for side in (static.a, static.b)]
    a_s, b_s = (each * random.normal(1.0, _NOISE_RATIO, (_QUADS, 2)) for each in times)
    found = decide("A", "B", Quads(a_s, b_s))
    interval = found.ratio
    assert interval is not None  # noqa: S101 - sixty quads have one
    sides = [SideTimes(2 * _QUADS, each, each, each, _CLOCK_MHZ, _SIDE_BYTES // 2, _SIDE_BYTES // 2) for each in times]
    low, ratio, high = (1.0 / each for each in (interval.high, interval.centre, interval.low))
    reason = "; ".join(found.reasons) if found.decision.value == "inconclusive" else ""
    timed = TimedPair(found.decision.value.upper(), reason, ratio, low, high, ratio, "SIMULATED", sides[0], sides[1])
    readings = [_readings(side, time_s, device, random) for side, time_s in zip((static.a, static.b), times, strict=True)]
    return timed, Counters("GPM", _SAYS, *readings)


def _model_s(side: KernelSide, device: Device) -> float:
    lines = side.code.sass or side.code.ptx
    loads = float(sum(_ITERATIONS**each.depth for each in lines if each.kind.startswith(("LDG", "ld.global"))))
    threads = _SIDE_BYTES / 8 / max(loads, 1.0)  # floats that are read and written once
    issued = float(sum(_ITERATIONS**each.depth for each in lines)) * threads / 32
    occupancy = side.occupancy.ratio if side.occupancy else 1.0
    compute_s = issued / ((sm_count(device) or 1) * 4 * _CLOCK_MHZ * 1e6) / math.sqrt(occupancy)
    return compute_s + _SIDE_BYTES / (peak_bytes_a_second(device) or 1e12)


def _readings(side: KernelSide, time_s: float, device: Device, random: np.random.Generator) -> Readings:
    memory = _SIDE_BYTES / (peak_bytes_a_second(device) or 1e12) / time_s
    means = {
        "sm_activity_ratio": 0.95,
        "dram_activity_ratio": memory,
        "occupancy_ratio": side.occupancy.ratio if side.occupancy else 1.0,
    }
    return {name: tuple(random.normal(mean, 0.01 * mean, REPEATS).clip(0, 1).tolist()) for name, mean in means.items()}
