"""Tests of the causes of idle stretches, by overlap and by run-queue wait."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from annotate.derived.idle_gaps import IdleGaps
from annotate.derived.pause_causes import OVERLAP, WAITED, idle_causes
from annotate.evidence import Pause

MS = 1_000_000


def gaps(*spans_ms: tuple[int, int]) -> IdleGaps:
    begin, end = (np.array([span[side] * MS for span in spans_ms], np.int64) for side in (0, 1))
    return IdleGaps(begin, end, (end - begin) / 1e9, np.ones(len(begin), np.bool_), 0.0, np.full(len(begin), 20e-6), 20e-6, 4.0)


def pause(begin_ms: int, end_ms: int, cause: str) -> Pause:
    return Pause(begin_ms * MS, end_ms * MS, cause)


def test_idle_causes_need_half_of_a_stretch() -> None:
    """Pauses over 45 of 100 ms are not a cause; 55 ms in two pieces are, before another cause with 52 ms."""
    assert idle_causes(gaps((0, 100)), [pause(0, 45, "collector")])[0].cause == "unknown"
    pieces = [pause(0, 30, "collector"), pause(50, 75, "collector"), pause(0, 52, "compilation")]
    found = idle_causes(gaps((0, 100)), pieces)
    assert (found[0].cause, found[0].by, round(found[0].overlap_ratio, 2)) == ("collector", OVERLAP, 0.55)


def test_idle_causes_are_ordered_by_idle_time() -> None:
    """Causes are ordered by idle time; run-queue wait explains the rest if it is at least half as long."""
    about = gaps((0, 100), (200, 500), (600, 640))
    found = idle_causes(about, [pause(0, 100, "collector"), pause(190, 510, "compilation")], 0.03)
    assert [(each.cause, each.gaps_count) for each in found] == [("compilation", 1), ("collector", 1), ("run-queue", 1)]
    assert found[-1].by == WAITED
    assert idle_causes(about, [], 0.1)[0].cause == "unknown"


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(1, 200), st.sampled_from(["collector", "hand-over"])), max_size=6))
def test_idle_causes_cover_all_stretches(given_pauses: list[tuple[int, int, str]]) -> None:
    about = gaps((0, 100), (200, 500), (600, 640))
    found = idle_causes(about, [pause(begin, begin + length, cause) for begin, length, cause in given_pauses])
    assert sum(each.gaps_count for each in found) == 3
    assert abs(sum(each.idle_s for each in found) - float(about.idle_s.sum())) < 1e-9
