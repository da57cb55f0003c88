"""What the times themselves betray: cold calls, compilations, noise, late ones, two speeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import Evidence, Timings, Values
from annotate.rule import Severity
from tests.campaign.edits import is_capped, timed, told
from tests.campaign.mutator import Mutator, limit_of

# A wander of a quarter of the time is none of a clock.
_WIDEST = 0.25


def _cold(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """First calls, each half as slow as the one before, that make the mean so much longer."""
    cost_ratio = multiple * limit_of("cold-start", "flag_ratio")

    def change(timings: Timings, at_s: Values) -> Values:
        took_s = timings.took_s.copy()
        shares = np.array([0.5, 0.25, 0.125, 0.0625, 0.0625])[: len(took_s)]
        took_s[: len(shares)] += 1.02 * cost_ratio * timings.took_s.sum() * shares
        return took_s

    return timed(evidence, change)


def _compiled(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """One iteration somewhere in the middle that takes as long as makes the mean so much longer."""
    cost_ratio = multiple * limit_of("mid-run-compile", "cost_ratio")
    place = rng.uniform(0.2, 0.9)

    def change(timings: Timings, at_s: Values) -> Values:
        took_s = timings.took_s.copy()
        took_s[int(place * len(took_s))] += 1.02 * cost_ratio * took_s.sum()
        return took_s

    slow = timed(evidence, change)
    # By the rule's own limit a compilation takes ten medians: of long kernels one per cent of a window is less.
    if slow is None or slow.timings is None or slow.timings.took_s.max() < 10.5 * np.median(slow.timings.took_s):
        return None
    return slow


def _wandering(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Few iterations, so scattered that the median of independent ones is known to so little."""
    timings = evidence.timings
    if timings is None:
        return None
    width_ratio = multiple * limit_of("noisy", "flag_ratio")
    count = min(400, len(timings.at_ns))
    kept = np.linspace(0, len(timings.at_ns) - 1, count).astype(int)
    # The half width of a median's interval: 1.96 times 1.2533 standard errors.
    sd = width_ratio * np.sqrt(count) / (1.96 * 1.2533)
    took_s = timings.took_s[kept] * np.exp(rng.normal(0.0, sd, count))
    return replace(evidence, timings=Timings(timings.at_ns[kept], took_s))


def _resembling(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """A first-order wander whose iterations are worth a fifth of their number, divided by the multiple.

    It is so wide that the mean is known to 0.8 %, where the rule asks for 0.5; of short kernels no wander is.
    """
    if evidence.timings is None:
        return None
    worth = limit_of("autocorrelated", "least_ratio") / multiple
    memory = (1.0 - worth) / (1.0 + worth)
    sd = 1.6 * limit_of("autocorrelated", "error_ratio") * np.sqrt(worth * len(evidence.timings.took_s)) / 1.96
    if sd > _WIDEST:
        return None

    def change(timings: Timings, at_s: Values) -> Values:
        from scipy.signal import lfilter

        count = len(timings.took_s)
        wander = lfilter([np.sqrt(1.0 - memory**2)], [1.0, -memory], rng.normal(0.0, sd, count))
        return np.asarray(np.median(timings.took_s) * np.exp(wander))

    # What gpuwatch took itself comes with an interval that knows.
    wandering = timed(evidence, change)
    return wandering and told(wandering, timer="caller")


def _late(evidence: Evidence, total_ratio: float, share: float, rng: np.random.Generator) -> Evidence | None:
    def change(timings: Timings, at_s: Values) -> Values:
        late = rng.random(len(timings.took_s)) < share
        if not late.any():
            late[rng.integers(1, len(late))] = True
        return np.asarray(timings.took_s + np.where(late, total_ratio * timings.took_s.sum() / late.sum(), 0.0))

    return timed(evidence, change)


def _apart(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    return _late(evidence, 1.05 * multiple * limit_of("outliers", "cost_ratio"), 0.005, rng)


def _skewed(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Every tenth iteration longer, as by the harness: late ones in no order are a finding of another rule."""
    total_ratio = 1.05 * multiple * limit_of("mean-vs-median-gap", "flag_ratio")

    def change(timings: Timings, at_s: Values) -> Values:
        took_s = timings.took_s.copy()
        took_s[9::10] += total_ratio * took_s.sum() / len(took_s[9::10])
        return took_s

    return timed(evidence, change)


def _sliced(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """The turns of a neighbour: some iterations longer by about 2.4 ms."""

    def change(timings: Timings, at_s: Values) -> Values:
        late = rng.random(len(timings.took_s)) < 0.0008
        late[rng.choice(len(late), 12, replace=False)] = True
        return np.asarray(timings.took_s + np.where(late, rng.uniform(2.3e-3, 2.5e-3, len(late)), 0.0))

    return timed(evidence, change) if evidence.timings is not None and np.median(evidence.timings.took_s) < 1e-3 else None


def _too_few(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """So few iterations that six, or the spread's square, divided by the multiple is what there is."""
    timings = evidence.timings
    if timings is None:
        return None
    count = max(1, int(np.ceil(6 / multiple)) - 1)
    first = int(rng.integers(0, len(timings.at_ns) - count))
    part = slice(first, first + count)
    return replace(evidence, timings=Timings(timings.at_ns[part], timings.took_s[part]))


def _two_speeds(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    return None if is_capped(evidence) else _turning(evidence, multiple * limit_of("bimodal", "separation_ratio"), rng)


def _two_speeds_capped(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """The power controller's swing alone moves the times so far: two speeds nearer to each other are one wide group."""
    return _turning(evidence, multiple * limit_of("bimodal", "swing_ratio"), rng) if is_capped(evidence) else None


def _turning(evidence: Evidence, apart: float, rng: np.random.Generator) -> Evidence | None:
    """A second speed, in turns of five iterations on average, that lies so far off: half of them."""

    def change(timings: Timings, at_s: Values) -> Values:
        count = len(timings.took_s)
        turns = np.cumsum(rng.random(count) < 0.2) % 2
        return np.asarray(timings.took_s * (1.0 + (apart + 0.001) * turns))

    return timed(evidence, change)


MUTATORS = (
    Mutator(rule="cold-start", inject=_cold, limit="first calls that make the mean 1 % longer"),
    Mutator(
        rule="mid-run-compile", inject=_compiled, limit="one call that makes the mean 1 % longer, and takes ten others' time"
    ),
    Mutator(rule="noisy", inject=_wandering, limit="a median known to 2 %"),
    Mutator(
        rule="autocorrelated",
        inject=_resembling,
        limit="iterations of the caller worth a fifth of their number, divided by it",
        caught=Severity.NOTE,
    ),
    Mutator(rule="mean-vs-median-gap", inject=_skewed, limit="a mean 5 % above the median, by every tenth iteration"),
    Mutator(rule="too-few-samples", inject=_too_few, limit="six iterations, divided by it"),
    Mutator(rule="outliers", inject=_apart, limit="late iterations that cost 2 % of the time"),
    Mutator(rule="outliers", variant="time slices", inject=_sliced),
    Mutator(rule="bimodal", inject=_two_speeds, limit="two speeds 2 % apart, no cap"),
    Mutator(rule="bimodal", variant="under the cap", inject=_two_speeds_capped, limit="two speeds 7 % apart"),
)
