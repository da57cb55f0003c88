"""A scene as a sequence of stretches with constant conditions, over which the physics integrates."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from annotate.evidence import Reason
from gpuwatch.sources.simulated.kernels import Kernel, Load
from gpuwatch.sources.simulated.scenes import Fault, Mishap, Neighbour, Phase, Scene

# Two busy processes share a GPU by time slices; the benchmark gets this share.
OWN_SHARE_RATIO = 0.46

# The script lists single pulses for this long; afterwards a pulsed load stays either on or off.
_PULSED_S = 30.0

_REASONS = {
    Fault.SLOWDOWN: Reason.HW_SLOWDOWN,
    Fault.POWER_BRAKE: Reason.HW_SLOWDOWN | Reason.HW_POWER_BRAKE,
    Fault.SYNC_BOOST: Reason.SYNC_BOOST,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums(Load):
    """The load of a stretch, combined from its kernels."""

    busy_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptPiece:
    """A stretch of scene time with constant conditions.  Shares are of the GPU's time."""

    begin_s: float
    end_s: float
    context: bool
    own: Kernel | None
    own_share: float
    others: tuple[tuple[Neighbour, float], ...]
    sums: Sums
    mishaps: tuple[Mishap, ...]
    reasons_mask: int
    clock_share: float  # remaining share of the clock under mishaps
    sag: Mishap | None
    air_c: float
    mem_clock_mhz: int
    power_limit_w: float
    lost: bool


class Script:
    """The stretches of one round of a scene, found by time."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        edges = sorted({0.0, *(t for t in _edges(scene) if 0.0 < t < scene.length_s), scene.length_s})
        self.stretches = [_stretch(scene, begin_s, end_s) for begin_s, end_s in pairwise(edges)]
        self._begins = edges[:-1]

    def at(self, scene_s: float) -> ScriptPiece:
        """Return the stretch at this time since the epoch."""
        return self.stretches[bisect_right(self._begins, scene_s % self.scene.length_s) - 1]


def _edges(scene: Scene) -> Iterator[float]:
    yield scene.context_s
    for mishap in scene.mishaps:
        yield from (mishap.begin_s, mishap.end_s)
    busy_ones: list[Phase | Neighbour] = [*scene.phases, *scene.neighbours]
    for busy in busy_ones:
        yield from (busy.begin_s, busy.end_s)
        period_s = busy.on_s + busy.off_s
        end_s = min(busy.end_s, scene.length_s, _PULSED_S)
        count = int((end_s - busy.begin_s) / period_s) + 1 if busy.off_s else 0
        for i in range(count):
            yield from (busy.begin_s + i * period_s, busy.begin_s + i * period_s + busy.on_s)


def _is_on(busy: Phase | Neighbour, at_s: float) -> bool:
    if not busy.begin_s <= at_s < busy.end_s:
        return False
    return not busy.off_s or (at_s - busy.begin_s) % (busy.on_s + busy.off_s) < busy.on_s


def _stretch(scene: Scene, begin_s: float, end_s: float) -> ScriptPiece:
    middle_s = (begin_s + end_s) / 2
    phase = next((p for p in scene.phases if _is_on(p, middle_s)), None)
    others = [n for n in scene.neighbours if _is_on(n, middle_s)]
    mishaps = tuple(m for m in scene.mishaps if m.begin_s <= middle_s < m.end_s)
    values = {m.fault: m.value for m in mishaps}
    own_share = (OWN_SHARE_RATIO if others else phase.share) if phase else 0.0
    foreign_share = (1.0 - own_share) / len(others) if others else 0.0
    reasons = 0
    for mishap in mishaps:
        reasons |= _REASONS.get(mishap.fault, 0)
    parts = [(phase.kernel, own_share)] if phase else []
    parts += [(neighbour.kernel, foreign_share) for neighbour in others]
    return ScriptPiece(
        begin_s=begin_s,
        end_s=end_s,
        context=middle_s >= scene.context_s or bool(others),
        own=phase.kernel if phase else None,
        own_share=own_share,
        others=tuple((neighbour, foreign_share) for neighbour in others),
        sums=_sums(parts),
        mishaps=mishaps,
        reasons_mask=reasons,
        clock_share=min((values[fault] for fault in _REASONS if fault in values), default=1.0),
        sag=next((m for m in mishaps if m.fault is Fault.CLOCK_SAG), None),
        air_c=values.get(Fault.HOT_AIR, 0.0),
        mem_clock_mhz=int(values.get(Fault.MEMORY_CLOCK, scene.board.mem_clock_max_mhz)),
        power_limit_w=values.get(Fault.POWER_LIMIT, scene.board.power_limit_w),
        lost=Fault.LOST in values,
    )


def _sums(parts: list[tuple[Kernel, float]]) -> Sums:
    def total(name: str) -> float:
        return float(sum(getattr(kernel, name) * share for kernel, share in parts))

    busy = sum(share for _, share in parts)
    return Sums(
        busy_share=busy,
        dynamic_w=total("dynamic_w"),
        ceiling_ratio=min((kernel.ceiling_ratio for kernel, _ in parts), default=1.0),
        shown_ratio=max((kernel.shown_ratio for kernel, _ in parts), default=1.0),
        heat_ratio=total("heat_ratio") / busy if busy else 1.0,
        unrest_ratio=max((kernel.unrest_ratio for kernel, _ in parts), default=0.0),
        utilization_ratio=total("utilization_ratio"),
        mem_utilization_ratio=total("mem_utilization_ratio"),
        sm_activity_ratio=total("sm_activity_ratio"),
        tensor_activity_ratio=total("tensor_activity_ratio"),
        dram_activity_ratio=total("dram_activity_ratio"),
        occupancy_ratio=total("occupancy_ratio"),
    )
