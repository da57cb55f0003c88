"""Tests of the interval of a number at one clock on other cards, against recordings of two cards."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from annotate.budget import Number, NumberBudget
from annotate.capsule.pack import unpack
from annotate.case import Case
from annotate.evidence import Evidence
from annotate.judge import judge
from annotate.output.budget_words import number_words, shown_line
from annotate.times.durations import usable
from annotate.user_policy import Policy
from tests.annotate.derived.test_measured_numbers import STEADY, swinging
from tests.annotate.derived.test_time_levels import timed
from tests.truth_windows import with_times

TRACES = Path(__file__).parents[2] / "traces"


def at_clock(about: Evidence, reference_mhz: float | None = None) -> NumberBudget:
    return Case(about, reference_mhz=reference_mhz).numbers.number(Number.MEDIAN_AT_CLOCK)


def test_recorded_cards_lie_within_each_others_interval() -> None:
    """For five kernels with two windows on each of three H200s, every pair agrees within the interval of other cards.

    At least half of the pairs differ by more than the repeatability alone.
    """
    rows = json.loads((TRACES / "h200-cards.json").read_bytes())
    found = with_times(unpack((TRACES / "h200-cards.capsule").read_bytes()), (TRACES / "h200-cards-times.npz.xz").read_bytes())
    numbers = [at_clock(replace(each, timings=usable(each.timings, each.window))) for each in found]
    pairs = [
        (one, other)
        for (row, one), (row_of_other, other) in itertools.combinations(zip(rows, numbers, strict=True), 2)
        if row["condition"] == row_of_other["condition"] and row["card"] != row_of_other["card"]
    ]
    assert len(pairs) == 60
    beyond_own = 0
    for one, other in pairs:
        apart = abs(math.log((one.value or 0.0) / (other.value or 1.0)))
        assert apart <= min(one.other_cards_ratio or 0.0, other.other_cards_ratio or 0.0)
        beyond_own += apart > min(one.repeatability.ratio or 0.0, other.repeatability.ratio or 0.0)
    assert beyond_own >= len(pairs) // 2


def test_distant_reference_clock_widens_the_card_interval() -> None:
    """The interval widens with the distance from the window's clock, because exponents differ between cards."""
    took_s, clock_mhz = swinging()
    about = timed(took_s, mhz=clock_mhz, capped=True)
    near, far = (at_clock(about, mhz) for mhz in (1410.0, 1700.0))
    for found, moved in ((near, math.log(1410.0 / 1400.0)), (far, math.log(1700.0 / 1400.0))):
        spread = (found.other_cards_ratio or 0.0) - (found.repeatability.ratio or 0.0)
        assert spread == pytest.approx(math.hypot(0.0034, 0.1 * moved), rel=0.02)


def test_first_line_names_both_intervals() -> None:
    words = number_words(at_clock(timed(STEADY, mhz=1975.0)))
    assert words.startswith("median at 1975 MHz 999.9 µs ±0.06 % (other cards ±0.4 %)")


def test_unmeasured_model_has_an_interval_for_this_card_only() -> None:
    """A model without a recorded spread between cards has no interval for other cards."""
    about = timed(STEADY, mhz=1975.0)
    assert about.device is not None
    found = at_clock(replace(about, device=replace(about.device, name="NVIDIA B200")))
    assert found.other_cards_ratio is None
    assert number_words(found).endswith("±0.06 % (this card)")


def test_given_card_spread_replaces_the_models() -> None:
    """The policy's ``card_spread`` replaces the model's spread, changes no other number, and appears in the verdict."""
    about = timed(STEADY, mhz=1975.0)
    verdicts = [judge(about, Policy(card_spread_ratio=ratio)) for ratio in (0.02, None)]
    assert ["card spread 2.0 %)" in shown_line(verdict) for verdict in verdicts] == [True, False]
    given, plain = (verdict.budget for verdict in verdicts)
    assert given is not None
    assert plain is not None
    for number in Number:
        mine, other = given.number(number), plain.number(number)
        if number is not Number.MEDIAN_AT_CLOCK:
            assert mine == other
        elif mine is not None and other is not None:
            assert mine.other_cards_ratio == pytest.approx((mine.repeatability.ratio or 0.0) + 0.02)
            assert replace(mine, other_cards_ratio=None) == replace(other, other_cards_ratio=None)


def test_raw_numbers_have_no_interval_on_other_cards() -> None:
    raw = Case(timed(STEADY, mhz=1975.0)).numbers.number(Number.MEDIAN)
    assert raw.other_cards_ratio is None
    assert "card" not in number_words(raw)
