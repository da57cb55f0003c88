"""The table of families, and disturbances drawn from the table."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import kolmogorov

from tests.proof.chance import generator
from tests.proof.disturbances import COMBINED, FAMILIES, FREEZE_ID, NOTHING, Disturbance, drawn, family_name
from tests.proof.shapes import Shape, pieces

SEEDS = range(160)
WINDOW_S = 4.0
_STALLS = sorted(name for name, family in FAMILIES.items() if family.stalls)
_LEVELS = sorted(name for name, family in FAMILIES.items() if not family.stalls and name not in (NOTHING, "pause-before"))


@cache
def single(name: str) -> tuple[Disturbance, ...]:
    """Return the disturbances of one family, by seed."""
    return tuple(drawn(name, seed, WINDOW_S)[0] for seed in SEEDS)


def uniform_pvalue(values: np.ndarray) -> float:
    """Return the p-value of Kolmogorov's test for uniform values from 0 to 1, without the slow import of scipy.stats."""
    ordered, ranks = np.sort(values), np.arange(len(values) + 1) / len(values)
    distance = max(np.max(ranks[1:] - ordered), np.max(ordered - ranks[:-1]))
    return float(kolmogorov(math.sqrt(len(values)) * distance))


def test_families_are_frozen() -> None:
    """The table has not changed since the design of the proof: later judges may have been fitted on its pairs."""
    assert FREEZE_ID == "65de9df021bb4e8e"


def test_family_name_draws_every_family() -> None:
    counts = Counter(family_name(seed) for seed in range(600))
    assert counts.keys() == {*FAMILIES, COMBINED}
    assert min(counts.values()) > 4


def test_drawn_combines_two_families() -> None:
    combined = [drawn(COMBINED, seed, WINDOW_S) for seed in SEEDS]
    assert all(len({each.family for each in two}) == 2 for two in combined)
    # The second disturbance may blind the watcher to the first.
    assert any(FAMILIES[two[1].family].blind for two in combined)
    assert not any(FAMILIES[two[0].family].blind for two in combined)


def test_drawn_nothing_is_empty() -> None:
    assert drawn(NOTHING, 1, WINDOW_S) == ()


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {NOTHING}))
def test_drawn_depths_are_log_uniform(name: str) -> None:
    """The logarithms of a family's depths are uniform over the family's range."""
    low, high = (math.log(end) for end in FAMILIES[name].depth)
    depths = [math.log(each.depth) for each in single(name)]
    assert uniform_pvalue((np.array(depths) - low) / (high - low)) > 1e-3


@pytest.mark.parametrize("name", _LEVELS)
def test_drawn_lengths_are_log_uniform(name: str) -> None:
    lengths = np.log([each.length_s for each in single(name)])
    low, high = math.log(1e-3), math.log(WINDOW_S)
    assert uniform_pvalue((lengths - low) / (high - low)) > 1e-3


@pytest.mark.parametrize("name", _STALLS)
def test_stall_pieces_add_up_to_the_depth(name: str) -> None:
    for each in single(name):
        total_s = sum(piece.end_s - piece.begin_s for piece in each.pieces)
        assert total_s == pytest.approx(each.depth * WINDOW_S, rel=1e-6)
        assert all(0.0 <= piece.begin_s < piece.end_s <= WINDOW_S + 1e-9 for piece in each.pieces)
        assert all(a.end_s <= b.begin_s + 1e-9 for a, b in pairwise(each.pieces))


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {NOTHING}))
def test_drawn_covers_every_kind_and_shape(name: str) -> None:
    found = single(name)
    assert {each.kind for each in found} == set(FAMILIES[name].kinds)
    assert {each.shape for each in found} == set(FAMILIES[name].shapes)


@pytest.mark.parametrize("shape", list(Shape))
def test_pieces_are_in_order_inside_the_window(shape: Shape) -> None:
    for seed in range(50):
        rng = generator(seed, "test")
        made = pieces(shape, 0.5, float(rng.uniform(0.002, 3.0)), 4.0, rng)
        assert made
        assert made[0].begin_s >= 0.5
        assert all(0.0 < piece.level <= 1.0 and piece.begin_s < piece.end_s <= 4.0 for piece in made)
        assert all(a.end_s <= b.begin_s + 1e-9 for a, b in pairwise(made))
