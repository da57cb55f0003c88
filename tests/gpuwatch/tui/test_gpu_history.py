"""Tests of a GPU's history in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import Column, Gap, Trace
from gpuwatch.tui.gpu_history import SETTLE_NS, SLICE_NS, GpuHistory
from tests.examples import share_of
from tests.gpuwatch.tui.detail import Still
from tests.gpuwatch.tui.frozen import NOW_NS, S, gpu


def history(begin_s: int, end_s: int) -> Trace:
    at_ns = np.arange(begin_s * S, end_s * S, S // 2, dtype=np.int64)
    return Trace(columns={"sm_clock_mhz": Column(at_ns, at_ns / S)}, dense_power=Column(at_ns, at_ns / S))


def fill(known: GpuHistory, past: Still, begin_ns: int, end_ns: int, *, now_ns: int) -> int:
    """Query until nothing is missing; return the number of queries."""
    for count in range(100):
        if (next_query := known.next_query(begin_ns, end_ns)) is None:
            return count
        known.add_answer(past.trace("", *next_query), *next_query, now_ns=now_ns)
    raise AssertionError("the range is incomplete after 100 queries")


@settings(max_examples=share_of(100))
@given(st.lists(st.tuples(st.integers(0, 900), st.integers(1, 400)), min_size=1, max_size=6))
def test_history_equals_the_stored_readings(intervals: list[tuple[int, int]]) -> None:
    past, known = Still(history(0, 1400)), GpuHistory()
    for begin_s, length_s in intervals:
        begin_ns, end_ns = begin_s * S, (begin_s + length_s) * S
        fill(known, past, begin_ns, end_ns, now_ns=2000 * S)
        for column in (known.trace.column("sm_clock_mhz"), known.trace.dense_power):
            within = (column.at_ns >= begin_ns) & (column.at_ns <= end_ns)
            assert column.at_ns[within].tolist() == list(range(begin_ns, end_ns + 1, S // 2))
            assert (np.diff(column.at_ns) > 0).all()
            assert (column.values == column.at_ns / S).all()
        assert known.next_query(begin_ns, end_ns) is None


def test_long_range_is_queried_in_slices_from_its_end() -> None:
    past, known = Still(history(0, 1400)), GpuHistory()
    assert fill(known, past, 0, 600 * S, now_ns=2000 * S) == 5
    assert past.asked[0] == (480 * S, 600 * S)
    assert all(end_ns - begin_ns <= SLICE_NS for begin_ns, end_ns in past.asked)


def test_growing_range_queries_only_its_end() -> None:
    past, known = Still(history(0, 1400)), GpuHistory()
    fill(known, past, 0, 100 * S, now_ns=100 * S)
    past.asked.clear()
    assert known.next_query(2 * S, 100 * S + S // 2, every_ns=S) is None, "no query before every_ns has passed"
    fill(known, past, 2 * S, 102 * S, now_ns=102 * S)
    assert past.asked == [(100 * S - SETTLE_NS, 102 * S)]


def test_live_rows_stay_until_the_store_has_them() -> None:
    known = GpuHistory()
    readings = [replace(gpu(age_s=-ahead_s, sm_clock_mhz=1000 + ahead_s)) for ahead_s in range(4)]
    for each in readings:
        known.add_live(each)
        known.add_live(each)
    clock = known.trace.column("sm_clock_mhz")
    assert clock.values.tolist() == [1000.0, 1001.0, 1002.0, 1003.0]
    assert len(known.trace.process_lists) == 4
    stored = Column(np.array([NOW_NS, NOW_NS + S // 2, NOW_NS + S], np.int64), np.array([1.0, 2.0, 3.0]))
    known.add_answer(Trace(columns={"sm_clock_mhz": stored}), NOW_NS - S, NOW_NS + 3 * S, now_ns=NOW_NS + 3 * S)
    assert known.trace.column("sm_clock_mhz").values.tolist() == [1.0, 2.0, 3.0, 1002.0, 1003.0]


def test_signal_no_longer_observed_becomes_unknown() -> None:
    known = GpuHistory()
    known.add_live(gpu(age_s=2, power_w=None))
    assert "power_w" not in known.trace.columns
    known.add_live(gpu(age_s=1))
    known.add_live(gpu(age_s=0, power_w=None))
    assert np.isnan(known.trace.column("power_w").values).tolist() == [False, True]


def test_lasting_gap_is_known_once_with_its_latest_end() -> None:
    known = GpuHistory()
    for end_s in (11, 12):
        answer = replace(history(0, end_s), gaps=(Gap(begin_ns=10 * S, end_ns=end_s * S),))
        known.add_answer(answer, 0, end_s * S, now_ns=end_s * S)
    assert known.trace.gaps == (Gap(begin_ns=10 * S, end_ns=12 * S),)


def test_history_is_bounded_in_both_directions() -> None:
    """The history stays within ``kept_ns`` while the range moves far back and forth."""
    past, known = Still(history(0, 1400)), GpuHistory(kept_ns=300 * S)
    for begin_s, end_s in ((1200, 1300), (1000, 1100), (850, 950), (700, 800), (900, 1000), (1200, 1300)):
        fill(known, past, begin_s * S, end_s * S, now_ns=2000 * S)
        at_ns = known.trace.column("sm_clock_mhz").at_ns
        assert at_ns[-1] - at_ns[0] <= 300 * S, "the history is bounded"
        assert len(at_ns[(at_ns >= begin_s * S) & (at_ns <= end_s * S)]) == 2 * (end_s - begin_s) + 1
