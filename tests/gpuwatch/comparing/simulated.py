"""A simulated power-limited GPU for block timers.  All variants share one clock, which follows the running kernel's power.

Under the power cap the clock swings by ±3 % with a period of 0.9 to 1.1 s, and dips for 10 to 100 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from annotate.compare.quads import Quads
from annotate.evidence import Values
from gpuwatch.comparing.blocks import Block, BlockLaunch, Timed

_MAX_MHZ = 1980.0
_LIMIT_W = 700.0
_SETTLE_S = 0.1
_SWING_RATIO = 0.03
_NOISE_MEMORY = 0.9
_DIPS_PER_S = 0.3


@dataclass(frozen=True, slots=True)
class Kernel:
    """One call: its time at 1400 MHz, its dependence on the clock, its power at the top clock, and its blocks' scatter."""

    took_s: float
    beta: float
    power_w: float
    noise_ratio: float


GEMM = Kernel(200e-6, 0.92, 1050.0, 0.0028)
COPY = Kernel(510e-6, 0.0, 565.0, 0.0005)


class Gpus:
    """Many GPUs at once: every value is an array over GPUs."""

    def __init__(self, count: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._phase = self._rng.uniform(0, 2 * np.pi, count)
        self._period_s = self._rng.uniform(0.9, 1.1, count)
        self._level_mhz = np.full(count, _MAX_MHZ)
        self._dip_until_s = np.zeros(count)
        self._noise = np.zeros(count)
        self.now_s = np.zeros(count)

    def run(self, kernel: Kernel, calls_count: int) -> Values:
        """Run one block on each GPU, and return the mean time of one call."""
        clock_mhz = self._clock_mhz()
        kick = self._rng.standard_normal((2, len(clock_mhz))) * kernel.noise_ratio
        self._noise = _NOISE_MEMORY * self._noise + np.sqrt(1 - _NOISE_MEMORY**2) * 0.5 * kick[0]
        took_s = kernel.took_s * (1400.0 / clock_mhz) ** kernel.beta * np.exp(self._noise + kick[1])
        length_s = took_s * calls_count
        capped_mhz = _MAX_MHZ * min(1.0, (_LIMIT_W / kernel.power_w)) ** 0.8
        self._level_mhz += (capped_mhz - self._level_mhz) * np.minimum(1.0, length_s / _SETTLE_S)
        begin = self._rng.random(len(length_s)) < _DIPS_PER_S * length_s
        capped = self._level_mhz < 0.95 * _MAX_MHZ
        self._dip_until_s = np.where(begin & capped, self.now_s + self._rng.uniform(0.01, 0.1, len(begin)), self._dip_until_s)
        self.now_s = self.now_s + length_s
        return np.asarray(took_s)

    def _clock_mhz(self) -> Values:
        swing = _SWING_RATIO * np.sin(2 * np.pi * self.now_s / self._period_s + self._phase)
        capped = self._level_mhz < 0.95 * _MAX_MHZ
        clock_mhz = self._level_mhz * np.where(capped, 1 + swing, 1.0)
        return np.asarray(np.where(self.now_s < self._dip_until_s, 0.85 * clock_mhz, clock_mhz))


class SimulatedBlocks:
    """A block timer on one simulated GPU, with a kernel for each variant; each block calls the variant's function once."""

    name = "events"

    def __init__(
        self, kernels: Mapping[str, Kernel], *, seed: int = 0, starved: bool = False, launch: BlockLaunch | None = None
    ) -> None:
        self._kernels = kernels
        self._launch = launch
        self._gpu = Gpus(1, seed)
        self._starved = starved
        self.order: list[str] = []

    def times(self, blocks: Iterable[Block]) -> Iterator[Timed]:
        for block in blocks:
            block.call()
            self.order.append(block.variant)
            took_s = self._gpu.run(self._kernels[block.variant], block.calls_count)
            yield Timed(block, float(took_s[0]), self._starved, launch=self._launch)


def quads_of(log_ratios: Values) -> Quads:
    """Return quads whose pairs have these log ratios, two per quad, without an incomplete last quad."""
    rows = np.asarray(log_ratios, np.float64)[: len(log_ratios) // 2 * 2].reshape(-1, 2)
    return Quads(np.ones_like(rows), np.exp(rows))


def trials(a: Kernel, b: Kernel, count: int, *, seed: int, seconds: float = 3.0, block_s: float = 0.003) -> Values:
    """Return log ratios of b over a in adjacent blocks (ABBA, the first letter drawn), one row per trial."""
    gpus = Gpus(count, seed)
    order = np.random.default_rng(seed + 1)
    calls = max(1, round(block_s / a.took_s)), max(1, round(block_s / b.took_s))
    for _ in range(int(0.5 / block_s / 2)):
        gpus.run(a, calls[0])
        gpus.run(b, calls[1])
    rows = []
    for _ in range(int(seconds / block_s / 4)):
        first = order.random() < 0.5
        took = {True: [], False: []}  # type: dict[bool, list[Values]]
        for is_a in (first, not first, not first, first):
            took[is_a].append(gpus.run(a if is_a else b, calls[0 if is_a else 1]))
        rows += [np.log(took[False][pair] / took[True][pair]) for pair in (0, 1)]
    return np.asarray(np.stack(rows, axis=1))
