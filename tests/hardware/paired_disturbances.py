"""Disturbances of paired windows, drawn at random in the order of a shuffled deck, and applied between and in calls."""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

import gpuwatch
from tests.hardware.paired_work import Work
from tests.proof.chance import generator, log_uniform
from tests.proof.disturbances import share_of_window
from tests.proof.shapes import Piece, Shape, pieces

PLAIN, TIMED, STAMPED = MODES = ("plain", "timed", "stamped")  # the measured process's declarations about its calls
LENGTH_S = (2.0, 4.0)
_SHORTEST_S = 1e-3
_PERIOD_S = (5e-3, 0.3)
_LEAST_BUSY_S = 3e-4  # duration of one launch of a neighbour's graph
_COLLECTED_A_S = 2.5e7  # tracked objects that a full collection of CPython 3.12 visits per second
_TRAINS = (Shape.PULSE, Shape.SQUARE, Shape.TELEGRAPH, Shape.BURSTS)
_PARTS = (Shape.STEP, Shape.PULSE, Shape.SQUARE)
_ALLOCATED_A_S = 1.5e7  # tracked objects that a depth of 1 creates per second

Turn: TypeAlias = Callable[[float, int], None]  # arguments: seconds since the window's start, number of the call


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One kind of disturbance: the meaning and range of the depth, the shapes and the varieties.

    ``outside``: caused by other processes.  ``needs_times``: effective on timed calls only.
    """

    name: str
    says: str
    depth: tuple[float, float]
    kinds: tuple[str, ...]
    shapes: tuple[Shape, ...] = (Shape.STEP,)
    outside: bool = False
    needs_times: bool = False


_FAMILIES = (
    Family(name="host-stall", says="the launching thread stops for this share of the window", depth=(1e-3, 0.4),
           kinds=("sleep", "spin"), shapes=_TRAINS),
    Family(name="pause-before", says="the GPU idles before the window, for this share of the window", depth=(1e-2, 1.0),
           kinds=("rest",)),
    Family(name="sleep-rhythm", says="the loop waits and sleeps for this share of each period", depth=(1e-3, 0.5),
           kinds=("sleep",)),
    Family(name="eased-data", says="this share of the inputs is zero", depth=(3e-2, 1.0), kinds=("zeros",), shapes=_PARTS),
    Family(name="work-growth", says="a call takes longer by about this share", depth=(1e-3, 0.4), kinds=("grows",),
           shapes=(Shape.STEP, Shape.PULSE, Shape.DRIFT, Shape.SAW, Shape.SINE)),
    Family(name="work-modes", says="some calls take longer by about this share", depth=(1e-3, 0.6),
           kinds=("every-second", "every-eighth", "dwells"), shapes=(Shape.TELEGRAPH,)),
    Family(name="own-stream", says="about this share of a call's work at the same time on another stream", depth=(3e-3, 1.0),
           kinds=("stream",), shapes=_PARTS),
    Family(name="own-other-work", says="about this share of a call's work between calls", depth=(1e-3, 0.5),
           kinds=("undeclared", "undeclared", "declared"), shapes=_PARTS),
    Family(name="garbage", says="the collector takes about this share of the window", depth=(1e-3, 0.2),
           kinds=("heap", "litter"), shapes=(Shape.SQUARE, Shape.BURSTS)),
    Family(name="compilation", says="kernels are compiled in the window", depth=(1.0, 3.0), kinds=("triton", "jiterator")),
    Family(name="times-wrong", says="the recorded times are too short, scaled times by this share",
           depth=(1e-3, 0.9), kinds=("scaled", "scaled", "other-stream", "no-sync"), needs_times=True),
    Family(name="neighbour-slices", says="another process computes for this share of the time", depth=(3e-3, 1.0),
           kinds=("gemm-512", "gemm-1024", "gemm-2048"), outside=True),
    Family(name="neighbour-copies", says="another process copies for this share of the time", depth=(3e-3, 1.0),
           kinds=("h2d", "d2h", "d2d"), outside=True),
    Family(name="neighbour-holds", says="another process holds this share of 100 GB and sleeps", depth=(1e-3, 0.5),
           kinds=("holds",), outside=True),
    Family(name="neighbour-late", says="another process starts in the window and computes for this share of the time",
           depth=(3e-2, 1.0), kinds=("gemm-1024",), shapes=(Shape.PULSE,), outside=True),
    Family(name="hogs", says="this many busy processes per CPU", depth=(0.1, 3.0), kinds=("hog",), outside=True),
)  # fmt: skip

FAMILIES: Mapping[str, Family] = {family.name: family for family in _FAMILIES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """One disturbance of one window.  ``throughout``: constant from the window's start to the end."""

    family: str
    kind: str
    depth: float
    shape: str = Shape.STEP.value
    pieces: tuple[Piece, ...] = ()
    period_s: float = 0.0
    count: int = 0
    throughout: bool = False

    @property
    def words(self) -> str:
        return f"{self.family} ({self.kind}): {FAMILIES[self.family].says}: {self.depth:.4g}, {self.shape}, {len(self.pieces)} pieces"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One window to take; a clean window has no disturbance."""

    number: int
    length_s: float
    warm_s: float
    disturbance: Disturbance | None = None


def deck(seed: int, names: Sequence[str] = tuple(FAMILIES)) -> Iterator[str]:
    """Yield families without end, each once per round, in random order."""
    rng = generator(seed, "deck")
    while True:
        yield from (str(name) for name in rng.permutation(list(names)))


def length_s(seed: int, number: int, of: tuple[float, float] = LENGTH_S) -> float:
    return round(float(generator(seed, f"length {number}").uniform(*of)), 3)


def drawn(family: str, seed: int, number: int, window_s: float, processors_count: int) -> Disturbance:
    of, rng = FAMILIES[family], generator(seed, f"disturbance {number}")
    kind, depth, shape = str(rng.choice(of.kinds)), log_uniform(rng, *of.depth), Shape(str(rng.choice(of.shapes)))
    parts = _pieces(family, shape, depth, window_s, rng)
    made = tuple(
        Piece(float(each.begin_s), float(each.end_s), float(each.level)) for each in parts
    )  # no numpy types, which JSON cannot hold
    period_s = log_uniform(rng, *_PERIOD_S)
    count = 0
    if family == "hogs":
        count = max(1, round(depth * processors_count))
    elif family == "garbage":
        count = max(1, round(depth * window_s / len(made) * _COLLECTED_A_S))
    elif family in ("neighbour-slices", "neighbour-copies", "neighbour-late"):
        period_s = max(period_s, _LEAST_BUSY_S / depth)
    return Disturbance(
        family=family, kind=kind, depth=depth, shape=shape.value, pieces=made, period_s=period_s, count=count,
        throughout=_is_throughout(family, kind, made, window_s),
    )  # fmt: skip


def _pieces(family: str, shape: Shape, depth: float, window_s: float, rng: np.random.Generator) -> tuple[Piece, ...]:
    if family in ("host-stall", "garbage"):
        return share_of_window(shape, depth, window_s, rng)[2]
    if family == "compilation":
        moments = sorted(rng.uniform(0.1, 0.9, math.ceil(depth)) * window_s)
        return tuple(Piece(float(at_s), float(at_s)) for at_s in moments)
    length = log_uniform(rng, _SHORTEST_S if family != "neighbour-late" else 0.05, window_s)
    begin_s = float(rng.uniform(0.0, window_s - (length if shape is Shape.PULSE else 0.0)))
    if shape in (Shape.STEP, Shape.SINE) and rng.random() < 0.5:
        begin_s = 0.0
    return pieces(shape, begin_s, length, window_s, rng)


def _is_throughout(family: str, kind: str, made: tuple[Piece, ...], window_s: float) -> bool:
    if family in ("sleep-rhythm", "neighbour-slices", "neighbour-copies", "neighbour-holds", "hogs") or kind.startswith(
        "every-"
    ):
        return True
    whole = len(made) == 1 and made[0].begin_s <= 0.0 and made[0].end_s >= window_s - 1e-6
    return whole and family in ("eased-data", "work-growth", "own-stream", "own-other-work")


class Course:
    """The level of a disturbance along the window, queried at increasing times."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        self._left = deque(pieces)

    def level(self, at_s: float) -> float:
        while self._left and self._left[0].end_s <= at_s:
            self._left.popleft()
        return self._left[0].level if self._left and self._left[0].begin_s <= at_s else 0.0

    def due(self, at_s: float) -> Piece | None:
        """Return the next piece once after its start, else None."""
        return self._left.popleft() if self._left and self._left[0].begin_s <= at_s else None


def turns(work: Work, window: gpuwatch.Window, disturbance: Disturbance | None) -> tuple[Turn, Turn]:
    """Return the disturbance's actions between calls and inside calls."""
    if disturbance is None:
        return _nothing, _nothing
    of, course = disturbance, Course(disturbance.pieces)
    match of.family:
        case "host-stall":
            return (lambda at_s, _: _stall(course.due(at_s), of.kind)), _nothing
        case "sleep-rhythm":
            return _rhythm(work, of), _nothing
        case "eased-data":
            return (lambda at_s, _: work.ease(of.depth if course.level(at_s) else 0.0)), _nothing
        case "work-growth":
            return _nothing, lambda at_s, _: work.add(of.depth * course.level(at_s))
        case "work-modes":
            every = {"every-second": 2, "every-eighth": 8}.get(of.kind)
            return _nothing, lambda at_s, call: work.add(
                of.depth * (course.level(at_s) if every is None else call % every == 0)
            )
        case "own-stream":
            return (lambda at_s, _: work.add(of.depth * course.level(at_s), aside=True)), _nothing
        case "own-other-work":
            return _other_work(work, window, of, course), _nothing
        case "garbage":
            return (_allocating(of) if of.kind == "litter" else _collecting(course)), _nothing
        case "compilation":
            return (lambda at_s, _: _compile(work, of.kind, course.due(at_s))), _nothing
    return _nothing, _nothing  # the worker or other processes make these disturbances


def _nothing(at_s: float, call: int) -> None: ...


def _stall(piece: Piece | None, kind: str) -> None:
    if piece is None:
        return
    until_s = time.perf_counter() + piece.end_s - piece.begin_s
    if kind == "sleep":
        time.sleep(piece.end_s - piece.begin_s)
    while time.perf_counter() < until_s:
        pass


def _rhythm(work: Work, of: Disturbance) -> Turn:
    next_s = 0.0

    def turn(at_s: float, _: int) -> None:
        nonlocal next_s
        if at_s >= next_s:
            next_s = at_s + of.period_s
            work.synchronize()
            time.sleep(of.depth * of.period_s)

    return turn


def _other_work(work: Work, window: gpuwatch.Window, of: Disturbance, course: Course) -> Turn:
    def turn(at_s: float, _: int) -> None:
        if level := course.level(at_s):
            with window.other_work("check") if of.kind == "declared" else contextlib.nullcontext():
                work.add(of.depth * level)

    return turn


def _collecting(course: Course) -> Turn:
    def turn(at_s: float, _: int) -> None:
        if course.due(at_s) is not None:
            gc.collect()

    return turn


def _allocating(of: Disturbance) -> Turn:
    """Return an action that creates and keeps objects from the first piece on; CPython's thresholds start the collector."""
    kept: list[object] = []
    last_s = of.pieces[0].begin_s

    def turn(at_s: float, _: int) -> None:
        nonlocal last_s
        if at_s > last_s:
            kept.extend([each] for each in range(int((at_s - last_s) * of.depth * _ALLOCATED_A_S)))
            last_s = at_s

    return turn


def _compile(work: Work, kind: str, piece: Piece | None) -> None:
    if piece is not None:
        work.compile(kind, time.monotonic_ns() % 10**9)
