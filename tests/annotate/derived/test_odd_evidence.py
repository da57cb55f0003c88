"""Property tests of the proofs' quantities on arbitrary evidence: shares lie between 0 and 1, and nothing raises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.derived.clock_blocks import CYCLE_NS, clock_blocks
from annotate.derived.dark_time import clock_intervals, dark_ratio, list_intervals, power_intervals
from annotate.derived.idle_gaps import IdleGaps, entry_gaps
from annotate.derived.load_time import EXCESS, load_time
from annotate.derived.power_dips import power_dips
from annotate.evidence import Evidence, Timings
from annotate.stats.long_run import mean_within, median_within
from annotate.times.durations import inside, usable
from tests.annotate import strategies
from tests.examples import share_of

many = settings(max_examples=share_of(150))
idle = st.none() | st.floats(50.0, 800.0)


def is_share(ratio: float) -> bool:
    return -1e-9 <= ratio <= 1.0 + 1e-6


def gaps_are_sound(gaps: IdleGaps | None) -> bool:
    if gaps is None:
        return True
    ordered = (gaps.end_ns >= gaps.begin_ns).all() and (gaps.idle_s >= 0.0).all()
    return bool(ordered) and is_share(gaps.irregular_ratio) and is_share(gaps.irregular_ratio + gaps.regular_ratio)


@many
@given(about=strategies.evidences(), idle_w=idle)
def test_quantities_of_arbitrary_evidence_are_in_range(about: Evidence, idle_w: float | None) -> None:
    gaps = power_dips(about.trace.dense_power, about.window, idle_w=idle_w)
    assert gaps_are_sound(gaps)
    load = load_time(about, gaps.spans_ns() if gaps else ())
    assert 0.0 <= load.excess_ratio(EXCESS["NVIDIA H200"]) <= EXCESS["NVIDIA H200"].most_ratio
    span = load.steady_span_ns()
    assert span is None or about.window.begin_ns <= span[0] < span[1] <= about.window.end_ns
    for stretches in (clock_intervals(about), power_intervals(about, idle_w=idle_w), list_intervals(about, 1.0)):
        assert is_share(dark_ratio(stretches, about.window.length_ns))
    blocks = clock_blocks(about)
    if blocks is not None:
        assert sum(each.count for each in blocks.levels()) == int(blocks.known.sum())
        assert blocks.variance() > 0.0


@many
@given(about=strategies.evidences(), timings=strategies.timings())
def test_quantities_of_arbitrary_times_are_in_range(about: Evidence, timings: Timings) -> None:
    kept = usable(timings, about.window)
    if kept is None:
        return
    assert gaps_are_sound(entry_gaps(kept, about.window))
    loop = inside(replace(about, timings=kept))
    for cycle_ns in (None, CYCLE_NS):
        for within in (mean_within, median_within):
            found = within(loop.at_ns, loop.took_s, cycle_ns=cycle_ns)
            assert found is None or (found.half_ratio >= 0.0 and found.blocks_count >= 2)
    blocks = clock_blocks(replace(about, timings=kept))
    assert blocks is None or bool(np.isfinite(blocks.mhz[blocks.known]).all())
