"""Disturbances as consecutive intervals of constant levels, over which the simulated board integrates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from annotate.evidence import Reason, Times, Values
from gpuwatch.sources.simulated.kernels import VECTOR_ADD, Kernel
from gpuwatch.sources.simulated.scenes import Scene
from gpuwatch.sources.simulated.script import Script, ScriptPiece, Sums
from tests.proof.disturbances import FAMILIES, Disturbance
from tests.proof.workloads import Workload

Flags: TypeAlias = npt.NDArray[np.bool_]

FOREIGN_SHARE_RATIO = 0.54  # share of time slices that another, always busy process gets on an H200
COPY_ENGINE_W = 60.0  # most power that another process's copies add
REST_S = 0.2  # idle with a context before the warm-up

_CLOCK_REASONS = {
    "silent": 0, "locked": int(Reason.APPLICATIONS_CLOCKS), "slowdown": int(Reason.HW_SLOWDOWN),
    "power-brake": int(Reason.HW_SLOWDOWN | Reason.HW_POWER_BRAKE), "sync-boost": int(Reason.SYNC_BOOST),
    "software": int(Reason.SW_THERMAL), "hardware": int(Reason.HW_THERMAL | Reason.HW_SLOWDOWN),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The position of the run's window, in seconds since the simulation's epoch, and the timing of launches."""

    begin_s: float
    length_s: float
    enter_s: float  # from the window's start to its first iteration
    queue_s: float  # work that the launching thread has queued ahead
    tail_s: float = 0.6

    @property
    def end_s(self) -> float:
        return self.begin_s + self.length_s


@dataclass(slots=True)
class Levels:
    """The levels of a run: arrays with one element per interval."""

    clock: Values
    mem_clock: Values
    power_limit_w: Values
    air_c: Values
    slices: Values  # share of time in which another process has work
    copies: Values  # another process's copies, 0 to 1
    slower: Values  # iteration time over the undisturbed time
    load: Values  # dynamic power over the kernel's nominal power
    working: Values  # 1 while the loop feeds the GPU
    resting: Flags  # the loop sleeps between two iterations
    reasons_mask: Times
    thermal: Times  # slowdown: 1 for software, 2 for hardware

    @staticmethod
    def undisturbed(count: int) -> Levels:
        ones, zeros = np.ones(count), np.zeros(count)
        return Levels(
            clock=ones.copy(), mem_clock=ones.copy(), power_limit_w=np.full(count, 700.0), air_c=zeros.copy(),
            slices=zeros.copy(), copies=zeros.copy(), slower=ones.copy(), load=ones.copy(), working=ones.copy(),
            resting=np.zeros(count, np.bool_),
            reasons_mask=np.zeros(count, np.int64), thermal=np.zeros(count, np.int64),
        )  # fmt: skip


class Timeline(Script):
    """The intervals of one run as the board's script."""

    def __init__(self, edges_s: Values, levels: Levels, workload: Workload) -> None:
        self.scene = Scene(name="proof", says="a window of the proof")
        self.edges_s = edges_s
        self.levels = levels
        self.workload = workload
        self.stretches = _stretches(edges_s, levels, workload)

    def at(self, scene_s: float) -> ScriptPiece:
        return self.stretches[self.index(scene_s)]

    def index(self, at_s: float) -> int:
        """Return the index of the interval at this time."""
        return min(int(np.searchsorted(self.edges_s, at_s, side="right")) - 1, len(self.stretches) - 1)


def timeline(plan: Plan, workload: Workload, disturbances: Sequence[Disturbance], load: Values, load_step_s: float) -> Timeline:
    """Lay the disturbances over an undisturbed run; ``load`` holds one factor of the kernel's power per ``load_step_s``."""
    stops_s = plan.end_s + workload.kernel.time_s  # the last iteration starts in the window and completes
    last_s = stops_s + plan.tail_s + 1.0
    loads_s = np.arange(len(load)) * load_step_s
    edges = {
        0.0,
        REST_S,
        plan.begin_s,
        plan.begin_s + plan.enter_s,
        plan.end_s,
        stops_s,
        last_s,
        *loads_s[loads_s < last_s].tolist(),
    }
    for each in disturbances:
        for begin_s, end_s in _spans(each, plan):
            edges |= {begin_s, end_s}
    rests = _rests(workload, last_s)
    edges |= set(rests.ravel().tolist())
    whole_ns = sorted({round(each * 1e9) for each in edges if 0.0 <= each <= last_s})
    edges_s = np.array(whole_ns, np.float64) / 1e9
    levels = Levels.undisturbed(len(edges_s) - 1)
    levels.load *= load[np.minimum((edges_s[:-1] / load_step_s + 1e-6).astype(np.int64), len(load) - 1)]
    for begin_s, end_s in ((0.0, REST_S), (plan.begin_s, plan.begin_s + plan.enter_s), (stops_s, last_s + 1.0)):
        levels.working[_within(edges_s, begin_s, end_s)] = 0.0
    middles_s = (edges_s[1:] + edges_s[:-1]) / 2
    number = np.searchsorted(rests[:, 0], middles_s) - 1
    levels.resting = (number >= 0) & (middles_s < rests[np.maximum(number, 0), 1]) if len(rests) else levels.resting
    for each in disturbances:
        _lay(each, plan, workload, edges_s, levels)
    return Timeline(edges_s, levels, workload)


def _rests(workload: Workload, last_s: float) -> Values:
    """Return the start and end times of the rests between iterations."""
    if not workload.rests:
        return np.empty((0, 2))
    ends_s = REST_S + np.arange(int((last_s - REST_S) / (workload.burst_s + workload.gap_s))) * (
        workload.burst_s + workload.gap_s
    )
    return np.column_stack([ends_s + workload.burst_s, ends_s + workload.burst_s + workload.gap_s])


def _spans(disturbance: Disturbance, plan: Plan) -> Iterable[tuple[float, float]]:
    if FAMILIES[disturbance.family].blind or disturbance.family == "times-wrong" or disturbance.kind.startswith("every-"):
        return  # no effect on the board
    queue_s = _queue_s(disturbance, plan)
    first_s = plan.begin_s
    for piece in disturbance.pieces:
        begin_s, end_s = first_s + piece.begin_s, first_s + piece.end_s
        if disturbance.family == "power-cap" and disturbance.kind == "raised" and piece is disturbance.pieces[0]:
            yield 0.0, begin_s
        if end_s - begin_s > queue_s:
            yield begin_s + queue_s, end_s


def _queue_s(disturbance: Disturbance, plan: Plan) -> float:
    """Return the seconds of queued work that the GPU still does while the launching thread is held up."""
    return plan.queue_s if disturbance.family in ("host-stall", "garbage-pauses") else 0.0


def _within(edges_s: Values, begin_s: float, end_s: float) -> slice:
    first, last = np.searchsorted(edges_s, [begin_s - 5e-10, end_s - 5e-10])
    return slice(int(first), int(last))


def _lay(disturbance: Disturbance, plan: Plan, workload: Workload, edges_s: Values, levels: Levels) -> None:
    queue_s = _queue_s(disturbance, plan)
    if disturbance.family == "power-cap" and disturbance.kind == "raised":
        # The limit rises to the factory limit, from a value that is lower by the depth.
        levels.power_limit_w[:] = 700.0 * (1.0 - disturbance.depth)
    for piece in disturbance.pieces:
        begin_s, end_s = plan.begin_s + piece.begin_s + queue_s, plan.begin_s + piece.end_s
        if end_s > begin_s:
            _lay_piece(disturbance, piece.level, _within(edges_s, begin_s, end_s), workload, levels)


def _lay_piece(each: Disturbance, level: float, where: slice, workload: Workload, levels: Levels) -> None:
    depth = each.depth * level
    match each.family, each.kind:
        case (("sm-clock" | "thermal" | "mem-clock" | "power-cap"), _):
            _lay_on_board(each, depth, where, workload.kernel, levels)
        case "neighbour-slices", _:
            levels.slices[where] = np.maximum(levels.slices[where], min(1.0, depth))
        case "neighbour-bandwidth", _:
            levels.copies[where] = np.maximum(levels.copies[where], depth / 0.6)
            levels.slower[where] /= 1.0 - depth * workload.bytes_ratio
        case (("host-stall" | "garbage-pauses" | "idle-stretch" | "pause-before"), _):
            levels.working[where] = 0.0
        case "work-growth", "easier-data":
            levels.load[where] *= 1.0 - 0.7 * min(1.0, depth)
        case ("work-growth", "grows") | ("work-modes", "dwells"):
            levels.slower[where] *= 1.0 + depth
        case "work-growth", _:
            levels.slower[where] /= 1.0 + depth
        case "own-other-work", _:
            levels.slower[where] /= 1.0 - depth
            levels.load[where] *= 1.0 + 0.2 * depth
        case _:
            pass


def _lay_on_board(each: Disturbance, depth: float, where: slice, kernel: Kernel, levels: Levels) -> None:
    """Apply a disturbance of the board itself: its clocks, air temperature or power limit."""
    match each.family, each.kind:
        case "thermal", "hot-air":
            levels.air_c[where] += 12.0 + 50.0 * depth
        case "mem-clock", _:
            levels.mem_clock[where] *= 1.0 - depth
        case "power-cap", "lowered":
            levels.power_limit_w[where] = 700.0 * (1.0 - depth)
        case "power-cap", _:
            levels.power_limit_w[where] = 700.0 * (1.0 - each.depth + depth)
        case family, kind:
            levels.clock[where] *= 1.0 - depth
            levels.reasons_mask[where] |= _CLOCK_REASONS[kind]
            if family == "thermal":
                # Hot enough for the reported reason, but below the board's own protection.
                levels.thermal[where] |= 1 if kind == "software" else 2
                levels.air_c[where] += max(0.0, 82.0 - 29.6 - 0.041 * min(690.0, 130.0 + kernel.dynamic_w))


def _stretches(edges_s: Values, levels: Levels, workload: Workload) -> list[ScriptPiece]:
    return [
        ScriptPiece(
            begin_s=float(edges_s[i]),
            end_s=float(edges_s[i + 1]) if i < len(edges_s) - 2 else 1e9,
            context=True,
            own=workload.kernel,
            own_share=float(levels.working[i] * (1.0 - FOREIGN_SHARE_RATIO * levels.slices[i])),
            others=(),
            sums=_sums(workload, levels, i),
            mishaps=(),
            reasons_mask=int(levels.reasons_mask[i]),
            clock_share=float(levels.clock[i]),
            sag=None,
            air_c=float(levels.air_c[i]),
            mem_clock_mhz=round(3201 * float(levels.mem_clock[i])),
            power_limit_w=float(levels.power_limit_w[i]),
            lost=False,
        )
        for i in range(len(edges_s) - 1)
    ]


def _sums(workload: Workload, levels: Levels, i: int) -> Sums:
    """Return this interval's load on the board: the loop, another process, and copies."""
    kernel, wanted = workload.kernel, float(levels.slices[i])
    foreign = (FOREIGN_SHARE_RATIO if levels.working[i] and not levels.resting[i] else 1.0) * wanted
    share, metered_share = (1.0, 1.0) if workload.rests else (workload.share, workload.metered_share)
    fed = 0.0 if levels.resting[i] else float(levels.working[i])
    own = fed * share * (1.0 - foreign)
    metered = fed * metered_share * (1.0 - foreign)
    busy = min(1.0, own + foreign)
    copies = float(levels.copies[i])
    if not busy and copies:
        busy = 1e-3
    return Sums(
        busy_share=busy,
        dynamic_w=kernel.dynamic_w * float(levels.load[i]) * own + VECTOR_ADD.dynamic_w * foreign + COPY_ENGINE_W * copies,
        ceiling_ratio=kernel.ceiling_ratio if own else VECTOR_ADD.ceiling_ratio,
        shown_ratio=max(kernel.shown_ratio, VECTOR_ADD.shown_ratio if foreign else 1.0),
        heat_ratio=kernel.heat_ratio,
        unrest_ratio=kernel.unrest_ratio if own else 0.0,
        utilization_ratio=min(1.0, kernel.utilization_ratio * metered + foreign + (0.02 if copies else 0.0)),
        mem_utilization_ratio=min(1.0, kernel.mem_utilization_ratio * metered + foreign + 0.05 * copies),
        sm_activity_ratio=kernel.sm_activity_ratio * own + foreign,
        tensor_activity_ratio=kernel.tensor_activity_ratio * own,
        dram_activity_ratio=min(1.0, kernel.dram_activity_ratio * own + foreign + 0.02 * copies),
        occupancy_ratio=kernel.occupancy_ratio * own + foreign,
    )
