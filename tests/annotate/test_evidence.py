"""Tests of a trace's columns, values and counter increases, of the time grid, and of process lists."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.evidence import GRID_COUNT, Gap, Lane, Process, ProcessList, Reading, Trace, grid
from tests.annotate.builders import UUID
from tests.examples import share_of

SECOND_NS = 1_000_000_000


def row(at_s: float, lane: Lane = Lane.FAST, **values: object) -> Reading:
    return Reading(uuid=UUID, lane=lane, at_ns=round(at_s * SECOND_NS), took_ns=1, **values)  # type: ignore[arg-type]


def values_at(trace: Trace, name: str, *at_s: float) -> list[float]:
    return [float(v) for v in trace.at(name, np.array([round(t * SECOND_NS) for t in at_s], np.int64))]


def test_trace_edge_rows_add_to_the_fast_column() -> None:
    """A row at the window's edge adds to the fast column and does not replace it."""
    fast = [row(t / 10, sm_clock_mhz=1980) for t in range(20)]
    trace = Trace.of([*fast, row(0.55, Lane.EDGE, sm_clock_mhz=1455, power_violation_ns=7)])
    column = trace.column("sm_clock_mhz")
    assert len(column) == 21
    assert (np.diff(column.at_ns) > 0).all()
    assert values_at(trace, "sm_clock_mhz", 0.5, 0.56, 0.6) == [1980, 1455, 1980]


def test_column_has_no_rows_of_lanes_without_the_signal() -> None:
    trace = Trace.of(
        [row(0.0, sm_clock_mhz=1980), row(0.1, Lane.SLOW, energy_j=1.0), row(0.2, Lane.EDGE, power_violation_ns=1)]
    )
    assert len(trace.column("sm_clock_mhz")) == 1
    assert values_at(trace, "sm_clock_mhz", 0.5) == [1980]


def test_row_without_a_value_means_not_observed() -> None:
    trace = Trace.of([row(0.0, sm_clock_mhz=1980), row(0.1, power_w=500.0), row(0.2, sm_clock_mhz=1455)])
    clock_mhz = values_at(trace, "sm_clock_mhz", 0.05, 0.15, 0.25)
    assert clock_mhz[0] == 1980
    assert np.isnan(clock_mhz[1])
    assert clock_mhz[2] == 1455


def test_trace_value_is_unknown_when_stale_and_in_gaps() -> None:
    """A value of the fast lane is valid for 1.5 heartbeats, but not inside a gap."""
    trace = Trace.of([row(0.0, sm_clock_mhz=1980)], gaps=[Gap(begin_ns=SECOND_NS // 2, end_ns=SECOND_NS)])
    clock_mhz = values_at(trace, "sm_clock_mhz", -0.1, 0.4, 0.7, 1.4, 1.6)
    assert np.isnan([clock_mhz[0], clock_mhz[2], clock_mhz[4]]).all()
    assert clock_mhz[1] == clock_mhz[3] == 1980


def test_unobserved_signal_has_no_column() -> None:
    trace = Trace.of([row(0.0, sm_clock_mhz=1980)])
    assert not trace.observes("power_w")
    assert len(trace.column("power_w")) == 0
    assert np.isnan(values_at(trace, "power_w", 0.0)).all()


@pytest.mark.parametrize("counts", [[5, 3], [5], []])
def test_counter_that_fell_or_was_read_once_has_no_increase(counts: list[int]) -> None:
    trace = Trace.of([row(float(i), Lane.SLOW, ecc_corrected_count=count) for i, count in enumerate(counts)])
    assert trace.increase("ecc_corrected_count", 0, SECOND_NS) is None


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=30), st.floats(0.5, 3), st.floats(1, 5))
@settings(max_examples=share_of(60))
def test_increase_is_not_negative_and_has_a_ratio(steps: list[int], begin_s: float, length_s: float) -> None:
    """An increase is never negative, and the ratio uses the time between the two readings."""
    totals_ns = np.cumsum(steps)
    trace = Trace.of([row(0.3 * i, power_cap_ns=int(total_ns)) for i, total_ns in enumerate(totals_ns)])
    begin_ns, end_ns = round(begin_s * SECOND_NS), round((begin_s + length_s) * SECOND_NS)
    increase = trace.increase("power_cap_ns", begin_ns, end_ns)
    if increase is not None:
        first, last = (round(t / (0.3 * SECOND_NS)) for t in (increase.begin_ns, increase.end_ns))
        assert increase.amount == totals_ns[last] - totals_ns[first] >= 0
        assert increase.ratio == pytest.approx(increase.amount / (increase.end_ns - increase.begin_ns))


def test_grid_of_a_day_is_bounded() -> None:
    """A grid over a day has at most one time more than ``GRID_COUNT``."""
    assert (np.diff(grid(0, 10 * SECOND_NS, 10_000_000)) == 10_000_000).all()
    day = grid(0, 86_400 * SECOND_NS, 10_000_000)
    assert len(day) <= GRID_COUNT + 1
    assert (day[0], day[-1] < 86_400 * SECOND_NS) == (0, True)


def process_list(at_s: float, *processes: Process) -> ProcessList:
    return ProcessList(uuid=UUID, at_ns=round(at_s * SECOND_NS), took_ns=1, processes=processes)


def test_process_list_keeps_earlier_use() -> None:
    """An earlier utilisation holds for the same process until the next utilisation record is due."""
    hidden = Process(pid=9, utilization_ratio=0.3, listed=False)
    earlier = process_list(
        0, Process(pid=7, started_s=1.0, utilization_ratio=0.7), Process(pid=8, utilization_ratio=0.1), hidden
    )
    same, other = Process(pid=7, started_s=1.0, memory_bytes=5), Process(pid=7, started_s=2.0, memory_bytes=5)
    busy = Process(pid=7, started_s=1.0, memory_bytes=5, utilization_ratio=0.7)
    assert process_list(10, same).with_use(earlier).processes == (busy, hidden)
    assert process_list(10, other).with_use(earlier).processes == (other, hidden)
    assert process_list(13, same).with_use(earlier).processes == (same,)
    assert replace(process_list(10, same), use_asked=True).with_use(earlier).processes == (
        same,
    )  # a newer, empty utilisation record
    assert process_list(10, Process(pid=8, utilization_ratio=0.0)).with_use(earlier).processes == (
        Process(pid=8, utilization_ratio=0.0),
    )
