"""Coverage and sharpness of proof 3 on recorded windows and on pairs of odd seeds.

Constants were tuned on even seeds only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from functools import lru_cache

import numpy as np
import pytest

from annotate.budget import Number
from annotate.evidence import Evidence
from annotate.verdict import Status
from tests.annotate.proofs.clock_status import bound_ratio, decision
from tests.proof.disturbances import family_name
from tests.proof.pairs import Pair, pair
from tests.proof.testified import Variant
from tests.truth_windows import truth_windows

# Families with conditions as their only disturbance.
FAMILIES = ("sm-clock", "power-cap", "thermal", "mem-clock", "pause-before")
SEEDS_COUNT = 500
NUMBERS = (Number.THROUGHPUT, Number.MEAN, Number.MEDIAN)
# The specification's targets: the difference of two undisturbed windows of capped work.
REPEATABILITY = {Number.THROUGHPUT: 0.01, Number.MEAN: 0.006, Number.MEDIAN: 0.015}
LONG_S = 3.0


def bounds(about: Evidence) -> dict[Number, float]:
    """Return the bound of each number by conditions alone, over all passes."""
    made = decision(about)
    return {number: bound_ratio(made, number) for number in NUMBERS}


@lru_cache(maxsize=1)
def scored() -> list[tuple[Pair, dict[Number, float], dict[Number, float]]]:
    """Return pairs of odd seeds with the bounds of the disturbed and of the clean window."""
    seeds = [seed for seed in range(1, SEEDS_COUNT, 2) if family_name(seed) in FAMILIES]
    return [(each, bounds(each.disturbed), bounds(each.clean)) for each in map(pair, seeds)]


def uncovered(number: Number, more_ratio: float = 0.0) -> list[Pair]:
    return [each for each, found, _ in scored() if abs(asdict(each.truth)[number]) > found[number] + more_ratio + 1e-9]


def percents(ratios: Iterable[float]) -> tuple[float, float]:
    known = list(ratios)
    return 100.0 * float(np.median(known)), 100.0 * float(np.percentile(known, 95.0))


@pytest.mark.parametrize(("number", "bare"), [(Number.THROUGHPUT, 17), (Number.MEAN, 18), (Number.MEDIAN, 13)])
def test_true_deviation_lies_within_the_bound(number: Number, bare: int) -> None:
    """At least 58 of 59 pairs lie within the bound plus the repeatability of capped work, and 41 within the bound alone.

    In the exception (seed 291), the controller's swing hides the effect of a power limit that was raised by 3 %.
    """
    assert len(scored()) == 59
    assert len(uncovered(number)) <= bare
    assert [each.seed for each in uncovered(number, REPEATABILITY[number])] in ([], [291])


@pytest.mark.parametrize(("is_stamped", "middle_percent", "most_percent"), [(True, 0.15, 0.5), (False, 0.5, 1.5)])
def test_clean_windows_have_sharp_bounds(is_stamped: bool, middle_percent: float, most_percent: float) -> None:
    """Conditions take at most half of the specification's targets, which all groups share."""
    kept = [clean for each, _, clean in scored() if each.length_s >= LONG_S and (each.variant is Variant.STAMPED) == is_stamped]
    assert len(kept) >= 9
    for number in (Number.THROUGHPUT, Number.MEAN):
        middle, most = percents(found[number] for found in kept)
        assert middle <= middle_percent / 2
        assert most <= most_percent / 2


def test_recorded_clean_windows_are_valid_by_conditions() -> None:
    """All recorded clean windows except one are valid; that one ran 0.9 s at a 5 % higher clock.

    The true throughput of the exception differs by 1.4 % from that of its pair.  The bounds of the mean of timed windows are
    below 0.01 % in the median and 0.05 % in 95 %.
    """
    made = {(each.name, index): decision(about) for each in truth_windows().values() for index, about in enumerate(each.clean)}
    assert {key for key, found in made.items() if found.status is not Status.VALID} == {("nothing-train-plain", 1)}
    timed = [bound_ratio(found, Number.MEAN) for (name, _), found in made.items() if truth_windows()[name].is_timed]
    assert percents(timed)[0] < 0.01
    assert percents(timed)[1] < 0.05


@pytest.mark.parametrize(
    ("name", "status", "rule"),
    [
        ("neighbour-late-gemm4k", Status.REJECTED, "clock-levels"),
        ("zeros-for-a-fifth-gemm4k", Status.FLAGGED, "clock-levels"),
        ("grows-9%-gemm4k", Status.FLAGGED, "clock-levels"),
    ],
)
def test_recorded_clock_levels_change_the_status(name: str, status: Status, rule: str) -> None:
    """A neighbour, zeros and growth change the clock for a part of the window; ``clock-levels`` decides the status."""
    made = decision(truth_windows()[name].disturbed)
    assert made.status is status
    assert made.severities[rule].value == ("reject" if status is Status.REJECTED else "flag")


@pytest.mark.parametrize(("name", "true_ratio"), [("pause-3-gemm4k", 0.0092), ("pause-0.7-att", -0.0012)])
def test_bound_after_recorded_pause_is_the_models_excess(name: str, true_ratio: float) -> None:
    """A window of 3 s right after a pause has no steady cycle, so the model's excess of 0.88 % is the bound."""
    window = truth_windows()[name]
    assert window.throughput_ratio == pytest.approx(true_ratio, abs=1e-4)
    assert bound_ratio(decision(window.disturbed), Number.THROUGHPUT) == pytest.approx(0.0088, abs=4e-4)


@pytest.mark.parametrize(
    "name", ["nothing-gemm4k", "nothing-softmax", "nothing-fp32", "nothing-decode-plain", "garbage-softmax"]
)
def test_recorded_steady_conditions_have_small_bounds(name: str) -> None:
    assert bound_ratio(decision(truth_windows()[name].disturbed), Number.MEAN) < 0.005
