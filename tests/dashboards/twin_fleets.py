"""Synthetic fleets with known slow GPUs: kernels with measured figures, boards with small differences, and faults.

The model is independent of the tested rules.  Power is a power function of the clock, the power limit lowers the clock, and
a fault lowers the clock further.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from gpuwatch.sources.simulated import kernels
from gpuwatch.sources.simulated.kernels import Kernel

STEP_MINUTES, STEPS = 5, 4
MINUTES = STEP_MINUTES * STEPS
_STEP_S = 60.0 * STEP_MINUTES
_SAMPLES = 20 * _STEP_S
_STATIC_W = 120.0
_EXPONENT = 2.6  # exponent of power over clock, including the voltage
_DATA = replace(kernels.GEMM, dynamic_w=760.0)  # the same matrix product on data with fewer bit changes


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeGpu:
    """One GPU of a fleet: work, board and fault."""

    host: int
    index: int
    work: Kernel | None  # None: no work
    model: str = "H"
    limit_w: float = 700.0
    held_ratio: float = 1.0  # factor by which a fault lowers the clock
    lock_ratio: float = 1.0  # highest clock of this model in practice over its stated maximum
    reason: str | None = None  # clock event reason, active for 98 % of the time with work
    on_share: float = 1.0  # share of the time with work
    leak_ratio: float = 1.0  # dynamic power over that of a typical board at the same clock
    counts_activity: bool = True
    canary_mhz: float | None = None

    def state(self) -> tuple[float, float, bool]:
        """Return the driver's clock ratio, the power in watts, and whether the power limit caps the clock."""
        if self.work is None:
            return 0.17, 76.0, False
        free_ratio = self.work.ceiling_ratio
        full_w = _STATIC_W + self.leak_ratio * self.work.dynamic_w * free_ratio**_EXPONENT
        if full_w <= self.limit_w:
            shown = min(1.0, self.lock_ratio) * self.held_ratio
            return shown, _STATIC_W + (full_w - _STATIC_W) * shown**_EXPONENT, False
        true_ratio = ((self.limit_w - _STATIC_W) / (self.leak_ratio * self.work.dynamic_w)) ** (1 / _EXPONENT)
        return min(1.0, true_ratio * self.work.shown_ratio) * self.held_ratio, self.limit_w, True


@dataclass(frozen=True, slots=True)
class MadeFleet:
    """The GPUs of a fleet, and host and index of the slow GPUs."""

    gpus: tuple[MadeGpu, ...]
    slow: frozenset[tuple[int, int]] = field(default_factory=frozenset)


def _hosts(seed: random.Random, count: int, work: Callable[[int, int], Kernel | None], gpus: int = 8) -> list[MadeGpu]:
    """Make hosts of boards whose power differs by a few percent."""
    return [
        MadeGpu(host=host, index=index, work=work(host, index), leak_ratio=seed.gauss(1.0, 0.02))
        for host in range(count)
        for index in range(gpus)
    ]


def _fleet(gpus: list[MadeGpu], ails: Callable[[MadeGpu], bool], **ailment: object) -> MadeFleet:
    slow = frozenset((gpu.host, gpu.index) for gpu in gpus if ails(gpu))
    return MadeFleet(tuple(replace(gpu, **ailment) if ails(gpu) else gpu for gpu in gpus), slow)  # type: ignore[arg-type]


_CAPPED = (kernels.GEMM, kernels.LARGE_GEMM, kernels.ATTENTION, kernels.CONVOLUTION)
_FREE = (kernels.COPY, kernels.FLOAT_GEMM)


def fleets(number: int) -> Iterator[tuple[str, MadeFleet]]:
    """Yield one fleet of each kind with its name; equal numbers yield equal fleets."""
    seed = random.Random(number)
    yield from _healthy(seed)
    yield from _slow(seed)
    yield from _explained(seed)


def _healthy(seed: random.Random) -> Iterator[tuple[str, MadeFleet]]:
    capped = _hosts(seed, 6, lambda host, _: seed.choice(_CAPPED) if host % 2 else seed.choice(_FREE))
    yield "healthy, half of the hosts at their limit", MadeFleet(tuple(capped))
    one = _hosts(seed, 4, lambda host, index: kernels.LARGE_GEMM if (host, index) == (1, 3) else kernels.COPY)
    yield "one healthy GPU at its limit among copies", MadeFleet(tuple(one))
    mixed = _hosts(seed, 6, lambda *_: seed.choice((*_CAPPED, *_FREE)))
    yield "healthy, any work on any GPU", MadeFleet(tuple(mixed))
    data = _hosts(seed, 6, lambda *_: seed.choices((kernels.GEMM, _DATA), (3, 2))[0])
    yield "healthy, the same product on other data", MadeFleet(tuple(data))
    bursty = [replace(gpu, on_share=seed.choice((0.6, 0.8, 1.0))) for gpu in _hosts(seed, 4, lambda *_: seed.choice(_CAPPED))]
    yield "healthy, with pauses", MadeFleet(tuple(bursty))
    limits = [replace(gpu, limit_w=500.0 if gpu.host < 2 else 700.0) for gpu in _hosts(seed, 6, lambda *_: kernels.GEMM)]
    yield "healthy, two hosts at a lower limit", MadeFleet(tuple(limits))


def _slow(seed: random.Random) -> Iterator[tuple[str, MadeFleet]]:
    place, held = (seed.randrange(6), seed.randrange(8)), seed.uniform(0.6, 0.85)
    work = seed.choice(_FREE)
    yield (
        "one slow GPU",
        _fleet(_hosts(seed, 6, lambda *_: work), lambda gpu: (gpu.host, gpu.index) == place, held_ratio=held),
    )
    anything = _hosts(seed, 6, lambda host, _: seed.choice(_FREE) if host in (0, place[0]) else seed.choice((*_CAPPED, *_FREE)))
    yield "a whole slow host", _fleet(anything, lambda gpu: gpu.host == place[0], held_ratio=held)
    yield (
        "a whole slow host of three",
        _fleet(_hosts(seed, 3, lambda *_: work), lambda gpu: gpu.host == 1, held_ratio=held),
    )
    at_limit = _hosts(seed, 6, lambda *_: kernels.GEMM)
    yield "a slow host, all at their limit", _fleet(at_limit, lambda gpu: gpu.host == place[0], held_ratio=min(held, 0.78))
    idle = _hosts(seed, 6, lambda host, _: work if host < 3 else None)
    yield "a slow GPU among idle hosts", _fleet(idle, lambda gpu: (gpu.host, gpu.index) == (2, place[1]), held_ratio=held)
    models = [
        replace(gpu, model="A", lock_ratio=0.8) if gpu.host >= 3 else gpu
        for gpu in _hosts(seed, 6, lambda *_: seed.choice(_FREE))
    ]
    yield (
        "two models, a slow GPU of the slower one",
        _fleet(models, lambda gpu: (gpu.host, gpu.index) == (4, place[1]), held_ratio=held),
    )


def _explained(seed: random.Random) -> Iterator[tuple[str, MadeFleet]]:
    hot = _fleet(
        _hosts(seed, 6, lambda *_: kernels.COPY), lambda gpu: gpu.host == 2, held_ratio=0.7, reason="sw_thermal_slowdown"
    )
    yield "a host slowed by heat, which raises another alert", MadeFleet(hot.gpus)
    blind = [replace(gpu, counts_activity=False) for gpu in _hosts(seed, 6, lambda *_: seed.choice(_CAPPED))]
    yield "at the power limit, without activity counters", MadeFleet(tuple(blind))
    leaky = _hosts(seed, 6, lambda *_: kernels.GEMM)
    yield (
        "one board at its limit that draws a tenth more",
        MadeFleet(tuple(replace(gpu, leak_ratio=1.1) if gpu.host == gpu.index == 1 else gpu for gpu in leaky)),
    )
    yield "every GPU idle", MadeFleet(tuple(_hosts(seed, 4, lambda *_: None)))


def canaries(number: int) -> MadeFleet:
    """Make a fleet at its power limit, in which only the canary clock shows the slow GPU."""
    seed = random.Random(number)
    place = (seed.randrange(6), seed.randrange(8))
    gpus = [replace(gpu, canary_mhz=seed.gauss(1978.0, 2.0)) for gpu in _hosts(seed, 6, lambda *_: seed.choice(_CAPPED))]
    return _fleet(gpus, lambda gpu: (gpu.host, gpu.index) == place, canary_mhz=1800.0)


def input_series(job: str, fleet: MadeFleet) -> Iterator[dict[str, str]]:
    """Yield a fleet's series over 20 minutes in promtool's notation."""
    for host in sorted({gpu.host for gpu in fleet.gpus}):
        yield _series("gpuwatch_wall_timestamp_seconds", f'job="{job}",instance="h{host}"', 0, _STEP_S)
    for gpu in fleet.gpus:
        ids = f'job="{job}",instance="h{gpu.host}",uuid="GPU-{gpu.index}",gpu="{gpu.index}"'
        shown, power_w, capped = gpu.state()
        busy = gpu.on_share if gpu.work else 1.0  # the exporter counts an idle board without an idle reason as busy
        yield _series("gpuwatch_device_info", f'{ids},name="{gpu.model}"', 1, 0)
        yield _series("gpuwatch_gpu_clock_ratio_sum", f'{ids},domain="sm",load="busy"', 0, shown * busy * _SAMPLES)
        yield _series("gpuwatch_gpu_clock_ratio_count", f'{ids},domain="sm",load="busy"', 0, busy * _SAMPLES)
        yield _series("gpuwatch_gpu_utilization_ratio", f'{ids},unit="gpu"', (gpu.on_share * 0.98) if gpu.work else 0.0, 0)
        yield _series("gpuwatch_gpu_power_limit_watts", f'{ids},kind="enforced"', gpu.limit_w, 0)
        yield _series("gpuwatch_gpu_power_watts", f'{ids},kind="average"', power_w, 0)
        for reason, holds in (("sw_power_cap", capped), (gpu.reason, gpu.reason is not None)):
            if reason:
                seconds = f'{ids},reason="{reason}",source="driver"'
                yield _series(
                    "gpuwatch_gpu_clock_event_seconds_total", seconds, 0, 0.98 * _STEP_S * gpu.on_share if holds else 0
                )
        if gpu.counts_activity and gpu.work:
            for unit, ratio in (("tensor", gpu.work.tensor_activity_ratio), ("dram", gpu.work.dram_activity_ratio)):
                yield _series("gpuwatch_gpu_activity_ratio", f'{ids},unit="{unit}"', ratio * gpu.on_share, 0)
        if gpu.canary_mhz:
            yield _series("gpuwatch_gpu_canary_clock_hertz", ids, gpu.canary_mhz * 1e6, 0)
            yield _series("gpuwatch_gpu_canary_timestamp_seconds", ids, 0, 0)


def _series(metric: str, labels: str, start: float, step: float) -> dict[str, str]:
    return {"series": f"{metric}{{{labels}}}", "values": f"{start:.6g}+{step:.6g}x{STEPS}"}
