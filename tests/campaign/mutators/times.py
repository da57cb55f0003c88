"""Hazards in the times: cold calls, late calls, two speeds, growth and levels."""

from __future__ import annotations

import numpy as np

from annotate.claims import Claim
from annotate.evidence import Evidence, Timings, Values
from annotate.ranges import TOLERANCE_RATIO
from tests.campaign.edits import is_capped, timed
from tests.campaign.mutator import Mutator, limit_of


def _cold(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Slow the first five calls, most of all the first, so that the mean grows by 1.02 times the multiple of the tolerance."""
    cost_ratio = multiple * TOLERANCE_RATIO

    def change(timings: Timings, at_s: Values) -> Values:
        took_s = timings.took_s.copy()
        shares = np.array([0.5, 0.25, 0.125, 0.0625, 0.0625])[: len(took_s)]
        took_s[: len(shares)] += 1.02 * cost_ratio * timings.took_s.sum() * shares
        return took_s

    return timed(evidence, change)


def _late(evidence: Evidence, total_ratio: float, share: float, rng: np.random.Generator) -> Evidence | None:
    def change(timings: Timings, at_s: Values) -> Values:
        late = rng.random(len(timings.took_s)) < share
        if not late.any():
            late[rng.integers(1, len(late))] = True
        return np.asarray(timings.took_s + np.where(late, total_ratio * timings.took_s.sum() / late.sum(), 0.0))

    return timed(evidence, change)


def _apart(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    return _late(evidence, 1.05 * multiple * TOLERANCE_RATIO, 0.005, rng)


def _skewed(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Lengthen every tenth iteration, as a harness might: irregular late iterations belong to another rule."""
    total_ratio = 1.05 * multiple * limit_of("mean-vs-median-gap", "note_ratio")

    def change(timings: Timings, at_s: Values) -> Values:
        took_s = timings.took_s.copy()
        took_s[9::10] += total_ratio * took_s.sum() / len(took_s[9::10])
        return took_s

    return timed(evidence, change)


def _sliced(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Insert time slices of a neighbour: iterations longer by about 2.4 ms."""

    def change(timings: Timings, at_s: Values) -> Values:
        count = max(12, round(1.05 * multiple * TOLERANCE_RATIO * float(timings.took_s.sum()) / 2.4e-3))
        late = np.zeros(len(timings.took_s), np.bool_)
        late[rng.choice(len(late), count, replace=False)] = True
        return np.asarray(timings.took_s + np.where(late, rng.uniform(2.3e-3, 2.5e-3, len(late)), 0.0))

    return timed(evidence, change) if evidence.timings is not None and np.median(evidence.timings.took_s) < 1e-3 else None


def _two_speeds(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    return None if is_capped(evidence) else _turning(evidence, multiple * limit_of("bimodal", "separation_ratio"), rng)


def _two_speeds_capped(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Put two speeds into a capped window: the controller's swing merges closer speeds into one wide group."""
    return _turning(evidence, multiple * limit_of("bimodal", "swing_ratio"), rng) if is_capped(evidence) else None


def _turning(evidence: Evidence, apart: float, rng: np.random.Generator) -> Evidence | None:
    """Add a second speed for half of all iterations, in runs of five on average."""

    def change(timings: Timings, at_s: Values) -> Values:
        count = len(timings.took_s)
        turns = np.cumsum(rng.random(count) < 0.2) % 2
        return np.asarray(timings.took_s * (1.0 + (apart + 0.001) * turns))

    return timed(evidence, change)


def _growing(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Let times grow evenly at a steady clock: the mean lies two fifths of the growth from the first and last fifth."""
    growth_ratio = 2.5 * multiple * TOLERANCE_RATIO
    length_s = evidence.window.length_s
    return timed(evidence, lambda timings, at_s: timings.took_s * (1.0 + growth_ratio * at_s / length_s))


def _longer(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Lengthen the middle third at the same clock: the mean lies two thirds of the change from that level."""
    more_ratio, length_s = 1.6 * multiple * TOLERANCE_RATIO, evidence.window.length_s

    def change(timings: Timings, at_s: Values) -> Values:
        return timings.took_s * np.where(np.abs(at_s / length_s - 0.5) < 1 / 6, 1.0 + more_ratio, 1.0)

    return timed(evidence, change)


MUTATORS = (
    Mutator(rule="iteration-growth", inject=_growing, limit="times that grow by 2.5 % from start to end"),
    Mutator(rule="iteration-levels", inject=_longer, limit="times 1.6 % longer for a third of the window"),
    Mutator(rule="cold-start", inject=_cold, limit="first calls that make the mean 1 % longer"),
    Mutator(rule="mean-vs-median-gap", inject=_skewed, limit="a mean 3 % above the median, by every tenth iteration"),
    Mutator(rule="outliers", inject=_apart, limit="late iterations that cost 1 % of the time"),
    Mutator(rule="outliers", variant="time slices", inject=_sliced, limit="time slices of 2.4 ms that cost 1 % of the time"),
    Mutator(rule="bimodal", inject=_two_speeds, limit="two speeds 2 % apart, no cap", claim=Claim.BURST),
    Mutator(
        rule="bimodal", variant="under the cap", inject=_two_speeds_capped, limit="two speeds 7 % apart", claim=Claim.BURST
    ),
)
