"""Tests of curves in braille."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import Column, Gap
from gpuwatch.tui.text import plot, words
from gpuwatch.tui.text.plot import GUTTER_COUNT, LINE, Band, PlotStyle, Span, band, lines, scale
from gpuwatch.tui.text.words import Tone
from tests.examples import share_of

S = 1_000_000_000
EMPTY = Column(np.empty(0, np.int64), np.empty(0))


def column(*rows: tuple[float, float]) -> Column:
    """Return a column of these rows of (second, value)."""
    return Column(np.array([round(at * S) for at, _ in rows], np.int64), np.array([value for _, value in rows], np.float64))


def drawn(of: Column, span: Span, rows_count: int = 4, low: float = 0.0, high: float = 100.0, **look: float) -> list[str]:
    within = plot.Scale(low, high, (high - low) / 2)
    style = PlotStyle(plot.plain_tones(span.slices_count), **look)  # type: ignore[arg-type]
    return words.text(list(lines(band(of, span.dots()), within, rows_count, style))).split("\n")


_numbers = st.floats(width=64) | st.sampled_from([0.0, 1e308, 5e-324, -1e308, math.nan])
_rows = st.lists(st.tuples(st.integers(0, 2**60), _numbers), max_size=40)
columns = _rows.map(
    lambda rows: Column(
        np.array(sorted(at for at, _ in rows), np.int64), np.array([value for _, value in rows], np.float64)
    )
)  # fmt: skip


@settings(max_examples=share_of(200))
@given(
    columns, st.integers(0, 2**60), st.integers(0, 2**45), st.integers(1, 90), st.integers(1, 12), st.integers(-3, 100),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip
def test_plot_stays_in_its_box_for_any_column(
    of: Column, begin_ns: int, length_ns: int, width: int, height: int, cursor: int, line: float | None
) -> None:
    found = band(of, Span(begin_ns, begin_ns + length_ns, width).dots())
    low, high = found.ends() or (0.0, 1.0)
    seen = [*lines(found, scale(low, high, ticks_count=height), height, PlotStyle(plot.plain_tones(width), line, cursor))]
    assert len(seen) == height
    for row in seen:
        assert len("".join(piece.text for piece in row)) == GUTTER_COUNT + width


@settings(max_examples=share_of(200))
@given(st.floats(-1e9, 1e9), st.floats(0, 1e9), st.floats(0.001, 1e6), st.integers(1, 12))
def test_scale_holds_its_values_with_few_ticks(low: float, more: float, least: float, count: int) -> None:
    """A scale covers its values, with at most one tick more than requested."""
    found = scale(low, low + more, least=least, ticks_count=count)
    slack = 1e-6 * max(abs(low), more, least, 1.0)
    assert found.low <= low + slack
    assert found.high >= low + more - slack
    assert found.high - found.low >= least * (1 - 1e-6) - slack
    assert len(found.ticks()) <= count + 1


def test_band_holds_least_and_most_of_every_moment() -> None:
    of = column(*((second / 100, 50.0) for second in range(400)), (4.001, 0.0), (4.002, 100.0), (4.01, 50.0))
    found = band(of, Span(0, 8 * S, 8))
    assert (found.low[4], found.high[4]) == (0.0, 100.0), "two rows of four hundred are not averaged away"
    assert (found.low[3], found.high[3]) == (50.0, 50.0)


def test_value_holds_until_next_row_or_stale() -> None:
    of = column((0, 10.0), (1, 20.0), (5, 30.0))
    found = band(of, Span(0, 6 * S, 12))
    assert found.high[:2].tolist() == [10.0, 10.0]
    assert found.high[2:5].tolist() == [20.0] * 3
    assert np.isnan(found.high[6:10]).all(), "the value was not repeated for more than a heartbeat and a half"
    assert found.low[2] == 10.0, "a step is drawn from the previous value"


def test_unobserved_signal_is_a_gap_and_never_zero() -> None:
    of = column((0, 80.0), (1, math.nan), (2, 80.0), (3, 80.0))
    rows = drawn(of, Span(0, 4 * S, 8))
    text = [row[GUTTER_COUNT:].ljust(8) for row in rows]
    assert all(row[2:4] == "  " for row in text), rows
    assert all(row.strip() == "" for row in text[2:]), "nothing was ever below 80"
    assert drawn(EMPTY, Span(0, 4 * S, 8)) == ["   100┤", "      │", "    50┤", "     0┤"]


def test_sampler_gap_is_a_gap_of_the_curve() -> None:
    of = column(*((second / 10, 50.0) for second in range(100)))
    holed = plot.without(of, [Gap(begin_ns=3 * S, end_ns=6 * S)])
    found = band(holed, Span(0, 10 * S, 10))
    assert np.isnan(found.low[3:6]).tolist() == [False, True, True], "the slice in which the gap starts has a last value"
    assert np.isfinite(found.low[6:]).all()
    assert plot.without(of, []) is of


def test_curve_rises_from_low_to_high() -> None:
    rows = drawn(column(*((i / 10, float(i)) for i in range(101))), Span(0, 10 * S, 10))
    tops = [
        next(r for r, row in enumerate(rows) if len(row) > GUTTER_COUNT + x and row[GUTTER_COUNT + x] != " ") for x in range(10)
    ]
    assert tops == sorted(tops, reverse=True)
    assert (tops[0], tops[-1]) == (3, 0)


def test_limit_line_fills_free_cells_and_has_a_label() -> None:
    rows = drawn(column((0, 10.0), (1, 10.0)), Span(0, 2 * S, 6), line=80.0)
    assert rows[0].startswith("    80┤" + 6 * LINE) or rows[1].startswith("    80┤" + 6 * LINE)
    assert not any(LINE in row for row in drawn(column((0, 1.0)), Span(0, S, 6), line=500.0)), "outside the range"


def test_cursor_fills_the_blank_cells_of_its_column() -> None:
    rows = drawn(column((0, 10.0)), Span(0, S, 6), cursor=2)
    assert sum(row[GUTTER_COUNT + 2] == plot.CURSOR for row in rows) == 3


def test_tones_follow_the_cells() -> None:
    loud = plot.toned(plot.plain_tones(4), np.array([False, True, True, False]), Tone.WARN)
    of = band(column((0, 50.0), (1, 50.0)), Span(0, 2 * S, 4).dots())
    row = next(lines(of, plot.Scale(0, 100, 50), 1, PlotStyle(tones=loud)))[1:]
    assert [(piece.tone, len(piece.text)) for piece in row] == [(Tone.PLAIN, 1), (Tone.WARN, 2), (Tone.PLAIN, 1)]


def test_empty_slices_are_filled_from_another_band() -> None:
    dense, sampled = Band(np.array([1.0, np.nan]), np.array([2.0, np.nan])), Band(np.array([7.0, 8.0]), np.array([7.0, 9.0]))
    found = dense.over(sampled)
    assert (found.low.tolist(), found.high.tolist()) == ([1.0, 8.0], [2.0, 9.0])


@pytest.mark.parametrize(
    ("value", "step", "said"),
    [(1980, 500, "1980"), (0.5, 0.5, "0.5"), (0.25, 0.25, "0.25"), (-3, 1, "-3"), (123_456, 1, "1e+05")],
)
def test_tick_label_fits_its_step_and_the_gutter(value: float, step: float, said: str) -> None:
    assert plot.label(value, step) == said


def test_moment_lies_in_at_most_one_cell() -> None:
    span = Span(10, 20, 3)
    assert [span.index(at) for at in (9, 10, 13, 14, 19, 20)] == [None, 0, 0, 1, 2, None]
