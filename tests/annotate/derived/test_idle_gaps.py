"""Tests of idle time by gaps between entries, on simulated windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.derived.idle_gaps import IdleGaps, Span, entry_gaps, overlap_ratios
from annotate.evidence import Timings, Values, WindowRecord
from tests.annotate.builders import BEGIN_NS
from tests.examples import share_of

few = settings(max_examples=share_of(60))
MS = 1_000_000


def loop(gaps_s: Values, took_s: float = 1e-3) -> tuple[Timings, WindowRecord]:
    """Return entries of equal length with these gaps before, between and after them, and their window."""
    begins_s = np.cumsum(gaps_s[:-1] + took_s) - took_s
    at_ns = BEGIN_NS + np.round(begins_s * 1e9).astype(np.int64)
    length_s = float(gaps_s.sum() + took_s * (len(gaps_s) - 1))
    window = WindowRecord(begin_ns=BEGIN_NS, end_ns=BEGIN_NS + round(length_s * 1e9))
    return Timings(at_ns, np.full(len(at_ns), took_s)), window


def gaps_of(gaps_s: Values, *, covered: Sequence[Span] = (), stamp_s: float = 0.0) -> IdleGaps:
    found = entry_gaps(*loop(gaps_s), covered=covered, timer_s=stamp_s)
    assert found is not None
    return found


def usual(count: int) -> Values:
    return np.random.default_rng(count).uniform(5e-6, 15e-6, count)


@few
@given(count=st.integers(20, 400), place=st.floats(0, 1), stall_s=st.floats(2e-3, 2.0))
def test_one_stall_is_its_share_of_the_window(count: int, place: float, stall_s: float) -> None:
    """A stall at any place, the edges included, is found with its length."""
    gaps_s = usual(count)
    gaps_s[int(place * (count - 1))] = stall_s
    found = gaps_of(gaps_s)
    assert found.irregular.sum() == 1
    assert found.irregular_ratio * found.window_s == pytest.approx(stall_s, abs=30e-6)
    assert found.error_ratio * found.window_s == pytest.approx(20e-6)


@few
@given(seed=st.integers(0, 999), count=st.integers(2, 200))
def test_idle_time_and_work_fill_the_window(seed: int, count: int) -> None:
    """Regular and irregular idle time add up to all gaps."""
    gaps_s = np.random.default_rng(seed).lognormal(-8.0, 2.0, count)
    found = gaps_of(gaps_s)
    idle_s = (found.regular_ratio + found.irregular_ratio) * found.window_s
    assert idle_s == pytest.approx(float(gaps_s.sum()), abs=1e-6)


@few
@given(seed=st.integers(0, 999), factor=st.integers(1, 5))
def test_longer_stall_never_counts_less(seed: int, factor: int) -> None:
    gaps_s = usual(100)
    gaps_s[seed % 100] = 5e-3
    longer_s = gaps_s.copy()
    longer_s[seed % 100] *= factor
    shorter, longer = gaps_of(gaps_s), gaps_of(longer_s)
    assert longer.irregular_ratio >= shorter.irregular_ratio


def test_rhythm_of_a_loop_is_regular() -> None:
    """Sleeps of 5 ms after every call or every tenth call are regular; sleeps at random places are irregular."""
    assert gaps_of(np.full(200, 5e-3)).irregular_ratio == 0.0
    every_tenth = usual(400)
    every_tenth[10::10] = 5e-3
    assert gaps_of(every_tenth).irregular.sum() == 0
    scattered = usual(400)
    scattered[np.random.default_rng(1).choice(np.arange(1, 399), 20, replace=False)] = 5e-3
    assert gaps_of(scattered).irregular.sum() == 20


@pytest.mark.parametrize("count", [6, 30, 70])
def test_stall_among_few_gaps_is_irregular(count: int) -> None:
    """A stall among few gaps is irregular although the 99th percentile of 70 gaps is nearly the longest."""
    gaps_s = usual(count)
    gaps_s[count // 2] = 0.06
    assert gaps_of(gaps_s).irregular.sum() == 1


@pytest.mark.parametrize(("part", "host_s", "is_proportional"), [(0.02, 6e-6, True), (0.0, 26e-6, False), (0.2, 6e-6, False)])
def test_gaps_that_grow_with_their_calls(part: float, host_s: float, is_proportional: bool) -> None:
    """Gaps that grow by 2 % of their call are proportional; gaps of the same mean that grow by 0 or 20 % are not."""
    rng = np.random.default_rng(4)
    took_s = 1e-3 * (1.0 + 0.005 * rng.standard_normal(2000))
    gaps_s = host_s * (1.0 + 0.05 * rng.standard_normal(2000)) + 0.02e-3 * (part > 0.0) + part * (took_s - 1e-3)
    at_ns = BEGIN_NS + np.round(np.concatenate([[0.0], np.cumsum(took_s + gaps_s)[:-1]]) * 1e9).astype(np.int64)
    window = WindowRecord(begin_ns=BEGIN_NS, end_ns=BEGIN_NS + round(float((took_s + gaps_s).sum()) * 1e9))
    found = entry_gaps(Timings(at_ns, took_s), window)
    assert found is not None
    assert found.is_even
    assert found.is_proportional is is_proportional


def test_declared_work_is_not_a_gap() -> None:
    """A declared flush of 50 ms leaves no gap; a declaration of its first half leaves 25 ms."""
    gaps_s = usual(50)
    gaps_s[25] = 0.05
    begin_ns = BEGIN_NS + round((gaps_s[:25].sum() + 25 * 1e-3) * 1e9)
    assert gaps_of(gaps_s, covered=[(begin_ns, begin_ns + 50 * MS)]).irregular.sum() == 0
    half = gaps_of(gaps_s, covered=[(begin_ns, begin_ns + 25 * MS), (begin_ns + 5 * MS, begin_ns + 10 * MS)])
    assert half.irregular_ratio * half.window_s == pytest.approx(0.025, abs=1e-4)


def test_stamps_are_not_idle_time() -> None:
    """Gaps as long as a pair of stamps leave no regular idle time."""
    assert gaps_of(np.full(100, 6e-6), stamp_s=6e-6).regular_ratio < 1e-4


def test_entries_out_of_order_and_across_edges_are_one_loop() -> None:
    """Entries in any order give the same gaps, and an entry across the window's start leaves no gap there."""
    timings, window = loop(usual(50))
    order = np.random.default_rng(0).permutation(len(timings.at_ns))
    mixed = entry_gaps(Timings(timings.at_ns[order], timings.took_s[order]), window)
    plain = entry_gaps(timings, window)
    later = entry_gaps(timings, WindowRecord(begin_ns=int(timings.at_ns[3]) + 1000, end_ns=window.end_ns))
    assert mixed is not None
    assert plain is not None
    assert later is not None
    assert mixed.idle_s.tolist() == plain.idle_s.tolist()
    assert later.idle_s[0] == 0.0


def test_times_without_start_times_have_no_gaps() -> None:
    """Times laid end to end, and a window without times, have no gaps."""
    timings, window = loop(np.zeros(50))
    assert entry_gaps(timings, window) is None
    assert entry_gaps(Timings(np.empty(0, np.int64), np.empty(0)), window) is None


spans = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 200)).map(lambda each: (each[0], each[0] + each[1])), max_size=8
)


@few
@given(gaps=spans, others=spans)
def test_overlap_agrees_with_counting(gaps: list[Span], others: list[Span]) -> None:
    """The share of each gap under any span equals a count of single nanoseconds."""
    covered = np.zeros(1300, np.bool_)
    for begin, end in others:
        covered[begin:end] = True
    counted = [covered[begin:end].sum() / max(end - begin, 1) for begin, end in gaps]
    assert overlap_ratios(gaps, others).tolist() == pytest.approx(counted)
