"""Coverage and sharpness of proofs 1 and 2, on recorded windows of an H200 and on the generator's odd seeds."""

from __future__ import annotations

import numpy as np

from annotate.budget import Number, ProofState
from tests.annotate.proofs.idle_and_books import shown
from tests.proof.disturbances import family_name
from tests.proof.pairs import Pair, length_s, pair
from tests.truth_windows import TruthWindow, truth_windows

REPEATS = 0.014  # throughput of two clean windows of an H200 differs by up to this
MEAN_REPEATS = 0.006
# Other disturbances also change throughput; launches of 15 µs next to 32 busy processes include launch gaps.
OWN = ("nothing", "stall", "periodic", "pause", "garbage")
FAMILIES = ("nothing", "host-stall", "idle-stretch", "garbage-pauses", "times-wrong")


def timed_clean() -> list[TruthWindow]:
    return [window for window in truth_windows().values() if window.is_timed and window.name != "hogs-small-kernel"]


def test_idle_bounds_cover_recorded_windows() -> None:
    """In all 13 windows disturbed by idle time or by nothing, the true change of throughput is within bound and repeatability."""
    own = [window for window in truth_windows().values() if window.name.startswith(OWN)]
    missed = [each.name for each in own if abs(each.throughput_ratio) > shown(each.disturbed).bound() + REPEATS]
    assert (len(own), missed) == (13, [])


def test_idle_bounds_are_sharp_on_recorded_windows() -> None:
    """Of 42 clean timed windows, the bounds of throughput are below 0.1 % in the median, and those of the mean below 0.4 %.

    The bounds of throughput are below 0.3 % in 40 windows, and both proofs are shown in all.
    """
    found = [shown(each) for window in timed_clean() for each in window.clean]
    throughput = sorted(each.bound() for each in found)
    assert len(throughput) == 42
    assert np.median(throughput) < 0.001
    assert throughput[39] < 0.003
    assert max(each.bound(Number.MEAN) for each in found) < 0.004
    assert all(each.work.state is each.books.state is ProofState.SHOWN for each in found)


def own_pairs() -> list[Pair]:
    """Return the pairs of odd seeds below 500 of these families, of 1 to 6 s, with stalls only between iterations."""
    seeds = [seed for seed in range(1, 500, 2) if family_name(seed) in FAMILIES and 1.0 <= length_s(seed) < 6.0]
    return [found for found in map(pair, seeds) if not any(each.inside for each in found.disturbances)]


def covers(of: Pair) -> bool:
    """Return whether the true change of throughput, or for wrong times that of the mean, is covered."""
    found = shown(of.disturbed)
    if of.family == "times-wrong" and of.disturbed.timings is not None:
        return abs(of.truth.mean) <= found.bound(Number.MEAN) + MEAN_REPEATS
    return abs(of.truth.throughput) <= found.bound() + REPEATS


def test_idle_bounds_cover_and_are_sharp_on_odd_seeds() -> None:
    """Bounds and repeatability cover at least 90 % of the windows.

    In clean windows of 3 s or more, half of the bounds are below 0.2 % and 95 % below 1 %.
    """
    pairs = own_pairs()
    covered = [covers(each) for each in pairs]
    # Regular pauses have a bound, too.
    clean = sorted(shown(each.clean).bound() for each in pairs if each.length_s >= 3.0 and each.workload != "sleeps between")
    assert len(pairs) >= 20
    assert np.mean(covered) >= 0.9, [each.seed for each, is_covered in zip(pairs, covered, strict=True) if not is_covered]
    assert np.median(clean) < 0.002
    assert clean[int(0.95 * len(clean))] < 0.01
