"""Tests of the strip of clock event reasons."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import Column, Gap, Reason
from gpuwatch.tui.text import plot, reason_strip
from gpuwatch.tui.text.plot import Span
from gpuwatch.tui.text.words import CHIPS
from tests.examples import share_of
from tests.gpuwatch.tui.text.test_plot import EMPTY, S, column, columns


def said(of: Column, span: Span) -> str:
    return "".join(piece.text for piece in reason_strip.pieces(reason_strip.letters(reason_strip.slices(of, span))))


def every(mask: int, begin_s: float, end_s: float) -> list[tuple[float, float]]:
    return [(second, float(mask)) for second in np.arange(begin_s, end_s, 0.1)]


def test_slice_has_the_letter_of_its_gravest_reason() -> None:
    of = column(*every(0, 0, 1), *every(0x4, 1, 2), *every(0x44, 2, 3), *every(0x1, 3, 4))
    assert said(of, Span(0, 4 * S, 4)) == "·PXi"
    assert said(of, Span(0, 4 * S, 2)) == "PX", "the gravest reason of each slice"


def test_reason_of_one_row_shows_in_an_hour() -> None:
    of = column(*((second, float(second == 1800) * 0x40) for second in range(3600)))
    assert said(of, Span(0, 3600 * S, 60)).count("X") == 1


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_its_own_letter(reason: Reason) -> None:
    assert said(column(*every(reason.value, 0, 1)), Span(0, S, 1)) == CHIPS[reason].letter


def test_unknown_bit_precedes_harmless_reasons() -> None:
    """An unnamed bit precedes harmless reasons, and is listed by number with its share."""
    of = column(*every(0x1001, 0, 2))
    assert said(of, Span(0, 2 * S, 2)) == "??"
    assert [(chip.name, ratio) for chip, ratio in reason_strip.shares(of, 0, 2 * S).items()] == [
        ("bits 0x1000", 1.0),
        ("idle", 1.0),
    ]


def test_silence_in_a_slice_is_a_dash() -> None:
    """Silence is a dash even if the rest of the slice had no reason."""
    of = column(*every(0, 0, 1), *every(0, 5, 6), *every(0x4, 6, 6.2))
    assert said(of, Span(0, 10 * S, 10)) == "··–––·PP––", "a value holds for a heartbeat and a half"
    assert said(EMPTY, Span(0, S, 3)) == "–––"
    assert said(column((0, math.nan), (1, 0.0), (2, math.nan)), Span(0, 3 * S, 3)) == "–·–"


def test_sampler_gap_is_a_dash() -> None:
    of = plot.without(column(*every(0, 0, 6)), [Gap(begin_ns=2 * S, end_ns=4 * S)])
    assert said(of, Span(0, 6 * S, 6)) == "··––··"


def test_shares_are_of_the_observed_time() -> None:
    of = column(*every(0x4, 0, 1), *every(0, 1, 3), (3, math.nan))
    (chip, ratio), = reason_strip.shares(of, 0, 100 * S).items()  # fmt: skip
    assert chip.letter == "P"
    assert ratio == pytest.approx(1 / 3)
    assert reason_strip.shares(EMPTY, 0, S) == {}
    assert reason_strip.shares(column(*every(0, 0, 1)), 0, S) == {}


@settings(max_examples=share_of(200))
@given(columns, st.integers(0, 2**60), st.integers(0, 2**45), st.integers(1, 90))
def test_strip_stays_in_its_box_for_any_column(of: Column, begin_ns: int, length_ns: int, width: int) -> None:
    assert len(said(of, Span(begin_ns, begin_ns + length_ns, width))) == width
    assert all(0 <= ratio <= 1 + 1e-9 for ratio in reason_strip.shares(of, begin_ns, begin_ns + length_ns).values())


@settings(max_examples=share_of(100))
@given(
    st.lists(st.tuples(st.integers(1, 3_000), st.sampled_from([0.0, 1.0, 4.0, 0x44, math.nan])), min_size=1, max_size=30),
    st.integers(1, 40),
)
def test_slices_agree_with_every_millisecond(steps: list[tuple[int, float]], width: int) -> None:
    at_ms = np.cumsum([step for step, _ in steps])
    of = Column(at_ms.astype(np.int64) * 1_000_000, np.array([value for _, value in steps], np.float64))
    length_ms = int(at_ms[-1]) + 2000
    length_ms += -length_ms % width
    times_ms = np.arange(length_ms)
    index = np.searchsorted(at_ms, times_ms, side="right") - 1
    values = np.where((index >= 0) & (times_ms - at_ms[index] < plot.HOLDS_NS // 1_000_000), of.values[index], np.nan)
    seen = reason_strip.slices(of, Span(0, length_ms * 1_000_000, width))
    for cell, part in enumerate(values.reshape(width, -1)):
        known = part[~np.isnan(part)].astype(int)
        assert seen.mask(cell) == (int(np.bitwise_or.reduce(known)) if len(known) else None)
        assert bool(seen.whole[cell]) == (len(known) == len(part))
