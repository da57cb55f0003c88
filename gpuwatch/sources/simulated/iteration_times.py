"""Kernel times, computed from the recorded true clock of a board."""

import random
from collections.abc import Iterable

import numpy as np

from annotate.evidence import Timings, Values
from gpuwatch.sources.simulated.kernels import Kernel
from gpuwatch.sources.simulated.physics import Moment
from gpuwatch.sources.simulated.scenes import Scene

_NOISE_MEMORY = 0.9
# Some kernels are interrupted by the end of their time slice, and wait for the neighbour's slice.
_SLICE_S, _SLICE_RATIO = (2.3e-3, 2.5e-3), 8e-4
# A launch from a preempted thread waits for a quantum of the scheduler.
_QUANTUM_S, _QUANTUM_RATIO = (62e-3, 64e-3), 0.015


def kernel_times(history: Iterable[Moment], scene: Scene, begin_ns: int, end_ns: int, epoch_ns: int) -> Timings | None:
    """Return the simulated event times of single iterations of the scene's own kernel; None if the scene ran none.

    A time is ``time_s * (reference / clock) ** beta * memory ** (beta - 1) * exp(AR(1))``, plus waits for a neighbour's
    time slice or a CPU core.  Each iteration also has its true clock, as stamps would measure it.
    """
    from_ns, to_ns = begin_ns - epoch_ns, end_ns - epoch_ns
    past = [m for m in history if m.end_ns > from_ns and m.end_ns - m.length_ns < to_ns and m.stretch.own]
    kernel = past[0].stretch.own if past else None
    if kernel is None:
        return None
    begins_ns = np.array([m.end_ns - m.length_ns for m in past], np.float64)
    ends_ns = np.array([m.end_ns for m in past], np.float64)
    each_s = _at_clock(kernel, past, scene)
    # The cumulative number of iterations at each step, which maps iterations to times.
    share = np.array([m.stretch.own_share for m in past])
    counts = np.concatenate([[0.0], np.cumsum((ends_ns - begins_ns) / 1e9 * share / each_s)])
    numbers = np.arange(int(counts[-1]))
    step = np.searchsorted(counts, numbers, side="right") - 1
    into = (numbers - counts[step]) / (counts[step + 1] - counts[step])
    clock_mhz = np.array([m.clock_ratio for m in past])[step] * scene.board.sm_clock_max_mhz
    at_ns = begins_ns[step] + into * (ends_ns[step] - begins_ns[step])
    shared = np.array([bool(m.stretch.others) for m in past])[step]
    rng = random.Random(f"{scene.name}/{from_ns}")  # noqa: S311 - noise, not a secret
    took_s = each_s[step] * np.exp(_noise(rng, len(numbers), kernel.noise_ratio))
    took_s += _waits(rng, len(numbers), _SLICE_S, _SLICE_RATIO) * shared
    if scene.hogged:
        took_s += _waits(rng, len(numbers), _QUANTUM_S, _QUANTUM_RATIO)
    inside = (at_ns >= from_ns) & (at_ns < to_ns)
    return Timings(at_ns=at_ns[inside].astype(np.int64) + epoch_ns, took_s=took_s[inside], sm_clock_mhz=clock_mhz[inside])


def _at_clock(kernel: Kernel, past: list[Moment], scene: Scene) -> Values:
    clock = np.array([m.clock_ratio for m in past])
    memory = np.array([m.stretch.mem_clock_mhz for m in past]) / scene.board.mem_clock_max_mhz
    # The part of the time that is independent of the SM clock follows the memory clock.
    times: Values = kernel.time_s * (kernel.reference_ratio / clock) ** kernel.beta * memory ** (kernel.beta - 1.0)
    return times


def _noise(rng: random.Random, count: int, sd: float) -> Values:
    fresh_sd, now = sd * (1.0 - _NOISE_MEMORY**2) ** 0.5, 0.0
    out = np.empty(count)
    for i in range(count):
        now = _NOISE_MEMORY * now + rng.gauss(0.0, fresh_sd)
        out[i] = now
    return out


def _waits(rng: random.Random, count: int, bounds_s: tuple[float, float], ratio: float) -> Values:
    return np.array([rng.uniform(*bounds_s) if rng.random() < ratio else 0.0 for _ in range(count)])
