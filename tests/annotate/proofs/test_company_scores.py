"""Proof 4 on windows with known true values: recorded with real neighbours on an H200, and simulated."""

from __future__ import annotations

import numpy as np
import pytest

from annotate.budget import Number, ProofState
from annotate.case import Case
from annotate.evidence import Evidence
from annotate.proofs import nobody_else
from annotate.times.clock_sensitivity import Corrected, Sensitivity
from tests.annotate.proofs.company_builders import sizes
from tests.proof.pairs import Pair, pair
from tests.truth_windows import TruthWindow, truth_names, truth_windows

BESIDES, TIMED = ([name for name in truth_names(timed=timed) if name.startswith("neighbour")] for timed in (False, True))
# Odd seeds with listed neighbours; 555 has no times.
SEEDS = (541, 555, 625, 685)


def _mean_ratio(of: TruthWindow) -> float:
    means = [float(Case(each).timings.took_s.mean()) for each in (of.before, of.disturbed, of.after)]
    return means[1] / ((means[0] + means[2]) / 2) - 1.0


def _at_clock_ratio(of: TruthWindow) -> float | None:
    """Return the true change of the median at one clock, by the fit of the window before; None without this fit or one of the medians."""
    cases = [Case(each) for each in (of.before, of.disturbed, of.after)]
    fit, clock_mhz = cases[0].fit, cases[0].timings.sm_clock_mhz
    if not isinstance(fit, Sensitivity) or clock_mhz is None:
        return None
    found = [fit.at_clock(case.timings, float(np.nanmedian(clock_mhz))) for case in cases]
    known = [each.time_s for each in found if isinstance(each, Corrected)]
    return known[1] / ((known[0] + known[2]) / 2) - 1.0 if len(known) == 3 else None


def _estimate(of: Evidence, number: Number) -> tuple[float, float]:
    found = [bound.estimate for bound in nobody_else.bounds(Case(of)) if bound.number is number and bound.estimate]
    return sum(each.low_ratio for each in found), sum(each.high_ratio for each in found)


@pytest.mark.parametrize("name", BESIDES)
def test_nobody_else_covers_real_neighbours(name: str) -> None:
    """The true change of throughput lies within the bound.

    With times the proof is shown, and the bound is below 45 %; without times the proof is broken, without a bound.
    """
    of = truth_windows()[name]
    bounds = sizes(nobody_else.bounds(Case(of.disturbed)))
    state = nobody_else.prove(Case(of.disturbed), {}).state
    assert state is (ProofState.SHOWN if of.is_timed else ProofState.BROKEN)
    assert abs(of.throughput_ratio) <= bounds[Number.THROUGHPUT]
    assert (bounds[Number.THROUGHPUT] < 0.45) is of.is_timed


@pytest.mark.parametrize("name", TIMED)
def test_nobody_else_covers_times_with_neighbours(name: str) -> None:
    """The true changes of mean and median at one clock lie within bounds; those of mean and throughput lie within estimates."""
    of = truth_windows()[name]
    bounds, mean = sizes(nobody_else.bounds(Case(of.disturbed))), _mean_ratio(of)
    assert abs(mean) <= bounds[Number.MEAN] < 0.26
    assert abs(_at_clock_ratio(of) or 0.0) <= bounds[Number.MEDIAN_AT_CLOCK]
    for number, truth in ((Number.MEAN, mean), (Number.THROUGHPUT, of.throughput_ratio)):
        low, high = _estimate(of.disturbed, number)
        assert low <= truth <= high


@pytest.mark.parametrize("name", truth_names())
def test_nobody_else_is_shown_for_lone_windows(name: str) -> None:
    """Windows without neighbours show the proof and have no bounds."""
    of = truth_windows()[name]
    for each in of.clean if name in BESIDES else (of.disturbed, *of.clean):
        assert nobody_else.prove(Case(each), {}).says == "nobody else"
        assert nobody_else.bounds(Case(each)) == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_else_covers_simulated_neighbours(seed: int) -> None:
    made: Pair = pair(seed)
    case = Case(made.disturbed)
    bounds = sizes(nobody_else.bounds(case))
    assert abs(made.truth.throughput) <= bounds[Number.THROUGHPUT]
    if case.has_times:
        assert abs(made.truth.mean) <= bounds[Number.MEAN]
        assert abs(made.truth.median) <= bounds[Number.MEDIAN]
    assert nobody_else.prove(Case(made.clean), {}).state is ProofState.SHOWN
