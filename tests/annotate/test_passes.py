"""Tests of the three passes: no declared fact lowers a witnessed cause, and stamps replace only unresolved parts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from annotate.budget import Bound, Estimate, Group, Replaces
from annotate.passes import AskingPass, merge_passes
from tests.annotate import bounds as made
from tests.annotate.bounds import cause

WITNESSED, TIMED, DECLARED = AskingPass


def keyed(causes: tuple[Bound, ...]) -> dict[tuple[str, str, str], Bound]:
    found = {(bound.rule, bound.number.value, bound.group.value): bound for bound in causes}
    assert len(found) == len(causes)
    return found


def rejecting(bound: Bound) -> float:
    return bound.estimate.nearer_ratio if bound.can_reject and bound.estimate else 0.0


def seen(bound: Bound) -> float:
    return float("inf") if bound.seen_ratio is None else bound.seen_ratio


def check_kept(earlier: tuple[Bound, ...], later: tuple[Bound, ...]) -> None:
    after = keyed(later)
    for key, bound in keyed(earlier).items():
        assert after[key].size_ratio >= bound.size_ratio
        assert seen(after[key]) >= seen(bound)
        assert rejecting(after[key]) >= rejecting(bound)


@given(made.causes, made.causes, made.causes)
def test_declared_pass_lowers_nothing(
    witnessed: tuple[Bound, ...], timed: tuple[Bound, ...], declared: tuple[Bound, ...]
) -> None:
    """Every cause stays at least as large with declared facts as without them."""
    without = {WITNESSED: witnessed, TIMED: timed}
    check_kept(merge_passes(without), merge_passes({**without, DECLARED: declared}))


@given(made.causes, made.causes)
def test_timed_pass_without_replacement_lowers_nothing(witnessed: tuple[Bound, ...], timed: tuple[Bound, ...]) -> None:
    plain = tuple(replace(bound, replaces=Replaces.NOTHING) for bound in timed)
    check_kept(merge_passes({WITNESSED: witnessed}), merge_passes({WITNESSED: witnessed, TIMED: plain}))


@given(made.causes, made.causes)
def test_stamps_never_lower_the_seen_part(witnessed: tuple[Bound, ...], timed: tuple[Bound, ...]) -> None:
    """Stamps replace the unresolved part only: each cause keeps at least its witnessed part."""
    stamped = tuple(replace(bound, replaces=Replaces.UNRESOLVED) for bound in timed)
    after = keyed(merge_passes({WITNESSED: witnessed, TIMED: stamped}))
    for key, bound in keyed(merge_passes({WITNESSED: witnessed})).items():
        assert after[key].size_ratio >= seen(bound)
        assert rejecting(after[key]) >= rejecting(bound)


@pytest.mark.parametrize(("replaces", "ratio"), [(Replaces.NOTHING, 0.015), (Replaces.UNRESOLVED, 0.004)])
def test_timed_pass_replaces_the_stated_part(replaces: Replaces, ratio: float) -> None:
    """A timed 0.2 % replaces nothing or the unseen part of a 1.5 % cause; the declared pass replaces nothing."""
    witnessed = replace(cause("clock-levels", Group.CLOCK, 0.015), seen_ratio=0.004)
    found = replace(cause("clock-levels", Group.CLOCK, 0.002), replaces=replaces)
    (timed,) = merge_passes({WITNESSED: [witnessed], TIMED: [found]})
    assert timed.ratio == ratio
    (declared,) = merge_passes({WITNESSED: [witnessed], DECLARED: [found]})
    assert declared.ratio == 0.015


@pytest.mark.parametrize(("seen_ratio", "ratio"), [(0.0, 0.003), (None, None)])
def test_times_bound_an_unseen_cause_without_a_bound(seen_ratio: float | None, ratio: float | None) -> None:
    """The times bound a neighbour of unknown size if no witness saw a part of its effect."""
    listed = replace(cause("contention-process", Group.INSIDE, None), seen_ratio=seen_ratio)
    timed = replace(cause("contention-process", Group.INSIDE, 0.003), replaces=Replaces.UNRESOLVED)
    (merged,) = merge_passes({WITNESSED: [listed], TIMED: [timed]})
    assert merged.ratio == ratio


def test_constant_stamps_resolve_the_clock_under_any_rule() -> None:
    """Stamps at a constant clock reduce a ramp of 1.5 % to its seen 0.4 %, and leave other groups alone."""
    ramp = replace(cause("clock-ramp", Group.CLOCK, 0.015), seen_ratio=0.004)
    stall = replace(cause("idle-stretch", Group.IDLE, 0.02), seen_ratio=0.0)
    still = replace(cause("clock-levels", Group.CLOCK, 0.0), replaces=Replaces.UNRESOLVED)
    merged = {bound.rule: bound.ratio for bound in merge_passes({WITNESSED: [ramp, stall], TIMED: [still]})}
    assert merged == {"clock-ramp": 0.004, "idle-stretch": 0.02, "clock-levels": 0.0}


def test_merge_keeps_causes_that_later_passes_lack() -> None:
    stall = cause("idle-stretch", Group.IDLE, 0.05, -0.05)
    assert merge_passes({WITNESSED: [stall], TIMED: [], DECLARED: []}) == (stall,)


def test_rejecting_estimate_outlives_a_larger_bound() -> None:
    """A larger bound that has no estimate or cannot reject keeps the earlier rejection."""
    surely = cause("clock-levels", Group.CLOCK, 0.07, 0.06)
    vague = replace(cause("clock-levels", Group.CLOCK, 0.2), estimate=Estimate(0.1, 0.15, 0.2), can_reject=False)
    for later in (vague, replace(vague, estimate=None)):
        (merged,) = merge_passes({WITNESSED: [surely], DECLARED: [later]})
        assert (merged.ratio, merged.estimate, merged.can_reject) == (0.2, surely.estimate, True)
