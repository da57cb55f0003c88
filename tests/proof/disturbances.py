"""Disturbances of a window, drawn from random processes; the table of families is frozen."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np

from tests.proof.chance import generator, log_uniform
from tests.proof.shapes import REPEATS_COUNT, Piece, Shape, pieces

NOTHING, COMBINED = "nothing", "combined"
_SHORTEST_S, _BEFORE_S = 1e-3, 3.0
_ALL = tuple(Shape)
_ONE = (Shape.STEP, Shape.PULSE, Shape.DRIFT)
_TRAINS = (Shape.PULSE, Shape.SQUARE, Shape.TELEGRAPH, Shape.BURSTS)

Kinds: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family of disturbances: the meaning and range of the depth, the shapes, and the kinds.

    ``stalls``: the depth is the share of the window that the pieces fill.
    ``blind``: the disturbance changes neither the work nor the times handed over, so the true deviation is zero.
    """

    name: str
    says: str  # part of FREEZE_ID: a new wording would change the id
    depth: tuple[float, float]
    shapes: tuple[Shape, ...]
    kinds: Kinds
    stalls: bool = False
    blind: bool = False

    @property
    def weight(self) -> float:
        return 2.0 if self.name == NOTHING else 0.6 if self.blind else 1.2


_FAMILIES = (
    Family(name=NOTHING, says="nothing happens", depth=(1e-4, 1.0), shapes=(Shape.STEP,), kinds=("nothing",), blind=True),
    Family(name="sm-clock", says="the SM clock is lower by this share", depth=(3e-4, 0.6), shapes=_ALL,
           kinds=("silent", "locked", "slowdown", "power-brake", "sync-boost")),
    Family(name="mem-clock", says="the memory clock is lower by this share", depth=(3e-4, 0.6),
           shapes=(Shape.STEP, Shape.PULSE, Shape.SQUARE, Shape.TELEGRAPH), kinds=("shown",)),
    Family(name="thermal", says="heat takes this share of the clock", depth=(1e-3, 0.5), shapes=_ALL,
           kinds=("software", "hardware", "hot-air")),
    Family(name="power-cap", says="somebody moves the power limit by this share", depth=(1e-3, 0.6),
           shapes=(Shape.STEP, Shape.PULSE, Shape.SQUARE, Shape.DRIFT), kinds=("lowered", "raised")),
    Family(name="neighbour-slices", says="another process computes for this share of its time slices", depth=(1e-3, 1.0),
           shapes=_ALL, kinds=("listed", "listed", "hidden")),
    Family(name="neighbour-bandwidth", says="another process's copies slow the work by this share", depth=(3e-4, 0.6),
           shapes=_ALL, kinds=("listed", "listed", "hidden")),
    Family(name="neighbour-holds", says="another process holds this share of the memory, and sleeps", depth=(1e-3, 0.5),
           shapes=_ONE, kinds=("listed", "hidden"), blind=True),
    Family(name="host-stall", says="the launching process is held up for this share of the window", depth=(1e-4, 0.6),
           shapes=_TRAINS, kinds=("sleep", "preempted", "paging", "throttled", "stopped"), stalls=True),
    Family(name="garbage-pauses", says="a garbage collector takes this share of the window", depth=(1e-4, 0.6),
           shapes=(Shape.SQUARE, Shape.BURSTS), kinds=("collector",), stalls=True),
    Family(name="idle-stretch", says="the work leaves the GPU idle for this share of the window", depth=(1e-4, 0.8),
           shapes=_TRAINS, kinds=("waits",), stalls=True),
    Family(name="pause-before", says="the GPU rests for this share of the window before it begins", depth=(1e-3, 1.0),
           shapes=(Shape.PULSE,), kinds=("rest",)),
    Family(name="work-growth", says="the work itself changes by this share", depth=(1e-4, 1.0), shapes=_ALL,
           kinds=("grows", "shrinks", "easier-data")),
    Family(name="work-modes", says="some of the iterations take longer by this share", depth=(1e-4, 1.0),
           shapes=(Shape.SQUARE, Shape.TELEGRAPH), kinds=("dwells", "every-second", "every-third", "every-eighth")),
    Family(name="own-other-work", says="undeclared other work of the same process slows it by this share", depth=(1e-4, 0.6),
           shapes=_ALL, kinds=("stream",)),
    Family(name="times-wrong", says="the times handed over are too short by this share", depth=(1e-4, 0.9),
           shapes=(Shape.STEP,), kinds=("scaled", "miscounted")),
    Family(name="evidence-gap", says="sampling stops for this share of the window", depth=(1e-3, 1.0),
           shapes=(Shape.PULSE, Shape.SQUARE, Shape.BURSTS), kinds=("all", "rows", "processes", "power"),
           stalls=True, blind=True),
    Family(name="records-short", says="the readings lack this share of the window", depth=(1e-3, 1.0), shapes=(Shape.STEP,),
           kinds=("begin-late", "end-early", "no-lead", "no-tail"), blind=True),
    Family(name="records-missing", says="this share of what is observed is not answered", depth=(1e-2, 1.0),
           shapes=(Shape.STEP,), kinds=("signals", "host", "dense-power", "slow-lane", "edges"), blind=True),
    Family(name="coarse-refresh", says="the driver or the watcher is slower by this factor, less one", depth=(1e-1, 20.0),
           shapes=(Shape.STEP,), kinds=("page", "rows", "late"), blind=True),
    Family(name="lists-missing", says="this share of the process lists is missing", depth=(1e-2, 1.0), shapes=(Shape.STEP,),
           kinds=("some", "none", "namespace", "no-utilisation"), blind=True),
)  # fmt: skip

FAMILIES: Mapping[str, Family] = {family.name: family for family in _FAMILIES}
_COMBINED_WEIGHT = 5.0
_WEIGHTS = np.array([*(family.weight for family in _FAMILIES), _COMBINED_WEIGHT])
FREEZE_ID = hashlib.sha256(repr((_FAMILIES, _WEIGHTS.tolist())).encode()).hexdigest()[:16]
_NAMES = (*FAMILIES, COMBINED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """One disturbance of one window; times are seconds since the window began."""

    family: str
    kind: str
    shape: Shape
    begin_s: float
    length_s: float
    depth: float
    pieces: tuple[Piece, ...]
    visible_s: float = 0.0  # time for which another process holds a context before its work starts
    inside: bool = False  # a stall lies inside an iteration's time, not between two iterations

    @property
    def words(self) -> str:
        says = FAMILIES[self.family].says
        return (
            f"{self.family} ({self.kind}): {says}: {self.depth:.4%}, {self.shape.value} from {self.begin_s:.4f} s, "
            f"length {self.length_s:.4f} s, {len(self.pieces)} pieces"
        )


def is_inside(each: Disturbance) -> bool:
    """Return True if a stall lies inside an iteration's time; idle stretches always lie between iterations."""
    return each.inside and each.family in ("host-stall", "garbage-pauses")


def family_name(seed: int) -> str:
    """Draw the family of a pair, combinations included."""
    return str(generator(seed, "family").choice(_NAMES, p=_WEIGHTS / _WEIGHTS.sum()))


@cache  # a page's tables use each window's disturbances several times
def drawn(family: str, seed: int, window_s: float) -> tuple[Disturbance, ...]:
    """Draw the disturbances of a window of this family: one, but none for ``nothing`` and two for ``combined``."""
    if family == NOTHING:
        return ()
    if family != COMBINED:
        return (_draw(FAMILIES[family], generator(seed, "disturbance"), window_s),)
    rng = generator(seed, "combination")
    happening = [name for name, each in FAMILIES.items() if not each.blind]
    first = str(rng.choice(happening))
    second = str(rng.choice([name for name in FAMILIES if name not in (NOTHING, first)]))
    return (
        _draw(FAMILIES[first], generator(seed, "disturbance"), window_s),
        _draw(FAMILIES[second], generator(seed, "second disturbance"), window_s),
    )


def _draw(family: Family, rng: np.random.Generator, window_s: float) -> Disturbance:
    # An index draws the same as ``rng.choice``, without an array of texts: a page draws 30 000 disturbances.
    kind = family.kinds[rng.integers(len(family.kinds))]
    depth = log_uniform(rng, *family.depth)
    shape = family.shapes[rng.integers(len(family.shapes))]
    visible_s = log_uniform(rng, 0.1, 3.0)
    inside = bool(rng.random() < 0.25)
    if family.name == "pause-before":
        begin_s, length_s = -depth * window_s, depth * window_s
        made: tuple[Piece, ...] = (Piece(begin_s, 0.0),)
    elif family.stalls:
        begin_s, length_s, made = share_of_window(shape, depth, window_s, rng)
    else:
        length_s = log_uniform(rng, _SHORTEST_S, window_s)
        room_s = window_s - (length_s if shape is Shape.PULSE else 0.0)
        begin_s = float(rng.uniform(0.0, max(room_s, 0.0)))
        if shape in (Shape.STEP, Shape.SINE) and rng.random() < 0.5:
            begin_s = -_BEFORE_S  # already active when the window begins
        made = pieces(shape, begin_s, length_s, window_s, rng)
    return Disturbance(
        family=family.name, kind=kind, shape=shape, begin_s=begin_s, length_s=length_s, depth=depth, pieces=made,
        visible_s=visible_s, inside=inside,
    )  # fmt: skip


def share_of_window(
    shape: Shape, depth: float, window_s: float, rng: np.random.Generator
) -> tuple[float, float, tuple[Piece, ...]]:
    """Return the start, the mean length and the pieces that fill this share: one piece, or a train of equal or random pieces."""
    total_s = depth * window_s
    if shape is Shape.PULSE or total_s < 2 * _SHORTEST_S:
        begin_s = float(rng.uniform(0.0, window_s - total_s))
        return begin_s, total_s, (Piece(begin_s, begin_s + total_s),)
    length_s = log_uniform(rng, max(_SHORTEST_S, total_s / REPEATS_COUNT), total_s)
    count = max(1, round(total_s / length_s))
    lengths_s = np.full(count, total_s / count)
    if shape is not Shape.SQUARE:
        lengths_s = rng.exponential(1.0, count)
        lengths_s *= total_s / lengths_s.sum()
    rests_s = np.ones(count + 1) if shape is Shape.SQUARE else rng.exponential(1.0, count + 1)
    rests_s *= (window_s - total_s) / rests_s.sum()
    begins_s = np.cumsum(rests_s[:-1]) + np.concatenate([[0.0], np.cumsum(lengths_s[:-1])])
    made = tuple(Piece(float(at_s), float(at_s + for_s)) for at_s, for_s in zip(begins_s, lengths_s, strict=True))
    return made[0].begin_s, float(lengths_s.mean()), made
