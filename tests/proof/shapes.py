"""Shapes of a disturbance over time, as pieces of constant level."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, takewhile

import numpy as np

REPEATS_COUNT = 100  # most pieces of a periodic or random train
_SINE_COUNT, _SAW_COUNT, _DRIFT_COUNT, _PIECES_COUNT = 12, 8, 40, 240


class Shape(StrEnum):
    """The course of a disturbance's level."""

    STEP = "step"  # begins and stays
    PULSE = "pulse"  # begins and ends
    SQUARE = "square"  # on and off, periodic
    SINE = "sine"
    SAW = "saw"
    TELEGRAPH = "telegraph"  # on and off for random times
    DRIFT = "drift"  # grows in a straight line to the end
    BURSTS = "bursts"  # a few pulses at random times


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of constant level, in seconds since the window began; level 1 is the full depth."""

    begin_s: float
    end_s: float
    level: float = 1.0


def pieces(shape: Shape, begin_s: float, length_s: float, until_s: float, rng: np.random.Generator) -> tuple[Piece, ...]:
    """Return the pieces of one disturbance, cut at ``until_s``.

    ``length_s`` is the length of a pulse, the mean on-time of a train, or the period of a sine or saw.
    A step and a drift last until ``until_s``.  Each maker yields pieces in the order of their start times.
    """
    made = takewhile(lambda each: each.begin_s < until_s, _MAKERS[shape](begin_s, length_s, until_s, rng))
    cut = (each if each.end_s <= until_s else Piece(each.begin_s, until_s, each.level) for each in made)
    return tuple(islice((each for each in cut if each.end_s - each.begin_s > 1e-6 and each.level > 0.0), _PIECES_COUNT))


def _step(begin_s: float, length_s: float, until_s: float, rng: np.random.Generator) -> Iterator[Piece]:
    yield Piece(begin_s, until_s)


def _pulse(begin_s: float, length_s: float, until_s: float, rng: np.random.Generator) -> Iterator[Piece]:
    yield Piece(begin_s, begin_s + length_s)


def _square(begin_s: float, length_s: float, until_s: float, rng: np.random.Generator) -> Iterator[Piece]:
    period_s = length_s * (1.0 + math.exp(rng.uniform(math.log(0.3), math.log(10.0))))
    for i in range(REPEATS_COUNT):
        yield Piece(begin_s + i * period_s, begin_s + i * period_s + length_s)


def _sine(begin_s: float, length_s: float, until_s: float, rng: np.random.Generator) -> Iterator[Piece]:
    step_s = max(length_s / _SINE_COUNT, (until_s - begin_s) / _PIECES_COUNT)
    for i in range(_PIECES_COUNT):
        phase = (i + 0.5) * step_s / length_s
        yield Piece(begin_s + i * step_s, begin_s + (i + 1) * step_s, 0.5 - 0.5 * math.cos(2.0 * math.pi * phase))


def _saw(begin_s: float, length_s: float, until_s: float, rng: np.random.Generator) -> Iterator[Piece]:
    step_s = length_s / _SAW_COUNT
    for i in range(_PIECES_COUNT):
        yield Piece(begin_s + i * step_s, begin_s + (i + 1) * step_s, (i % _SAW_COUNT + 0.5) / _SAW_COUNT)


def _telegraph(begin_s: float, length_s: float, until_s: float, rng: np.random.Generator) -> Iterator[Piece]:
    at_s = begin_s
    for _ in range(REPEATS_COUNT):
        on_s, off_s = rng.exponential(length_s, 2)
        yield Piece(at_s, at_s + on_s)
        at_s += on_s + off_s


def _drift(begin_s: float, length_s: float, until_s: float, rng: np.random.Generator) -> Iterator[Piece]:
    step_s = (until_s - begin_s) / _DRIFT_COUNT
    for i in range(_DRIFT_COUNT):
        yield Piece(begin_s + i * step_s, begin_s + (i + 1) * step_s, (i + 0.5) / _DRIFT_COUNT)


def _bursts(begin_s: float, length_s: float, until_s: float, rng: np.random.Generator) -> Iterator[Piece]:
    at_s = begin_s
    for begins_s in sorted(rng.uniform(begin_s, until_s, int(rng.integers(2, 13)))):
        at_s = max(at_s, float(begins_s))
        ends_s = at_s + float(rng.exponential(length_s))
        yield Piece(at_s, ends_s)
        at_s = ends_s


_MAKERS = {
    Shape.STEP: _step,
    Shape.PULSE: _pulse,
    Shape.SQUARE: _square,
    Shape.SINE: _sine,
    Shape.SAW: _saw,
    Shape.TELEGRAPH: _telegraph,
    Shape.DRIFT: _drift,
    Shape.BURSTS: _bursts,
}
