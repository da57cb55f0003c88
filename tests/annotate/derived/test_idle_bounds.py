"""Tests of the bounds of regular pauses, which raise the clock if power is near its limit."""

from __future__ import annotations

import numpy as np
import pytest

from annotate.budget import Group
from annotate.case import Case
from annotate.derived.idle_bounds import duty_bounds, keeps_period
from annotate.derived.idle_gaps import STAMP_S
from annotate.evidence import Evidence, Timings
from tests.annotate.builders import BEGIN_NS, Signal, capped_ns, evidence

PERIOD_S = 4e-3
CAPPED: dict[str, Signal] = {"power_w": 690.0, "power_cap_ns": capped_ns(), "power_violation_ns": capped_ns()}


def paced(signals: dict[str, Signal], share: float = 0.7) -> Evidence:
    """Return a window of a loop that works this share of every 4 ms."""
    at_ns = BEGIN_NS + np.round(np.arange(1000) * PERIOD_S * 1e9).astype(np.int64)
    return evidence(length_s=4.0, signals=signals, timings=Timings(at_ns, np.full(1000, share * PERIOD_S)))


def bounds(about: Evidence, *, is_burst: bool = False, every_s: float | None = None) -> list[float]:
    case = Case(about)
    assert case.gaps is not None
    found = duty_bounds(about, case.gaps, case.timings, is_burst=is_burst, every_s=every_s)
    assert all(each.group is Group.DUTY for each in found)
    return [each.ratio or 0.0 for each in found]


def test_regular_pauses_count_if_they_raise_the_clock() -> None:
    """If power is near its limit, a third of the pauses counts, after the timer's part and the books' error are subtracted."""
    assert bounds(paced(CAPPED)) == pytest.approx([(0.3 - STAMP_S / PERIOD_S - 0.013) / 3.0] * 3, abs=1e-4)
    assert bounds(paced({"power_w": 300.0})) == []
    assert bounds(paced({})) != []  # 566 W on average are about 760 W while the GPU works
    assert bounds(paced({**CAPPED, "power_w": None})) != []
    unseen: dict[str, Signal] = {"power_cap_ns": None, "power_violation_ns": None, "event_reasons_mask": None}
    assert bounds(paced(unseen)) != []  # an unobserved cap may have held
    assert bounds(paced(CAPPED, share=0.99)) == []


def test_events_of_short_calls_are_not_pauses() -> None:
    """Gaps of 6 µs, the GPU's time for a pair of events per call, are not pauses, also in batches."""
    for calls_count in (1, 10):
        at_ns = BEGIN_NS + np.arange(20_000 // calls_count, dtype=np.int64) * 206_000 * calls_count
        events = Timings(at_ns, np.full(len(at_ns), 200e-6), calls_count=calls_count)
        assert bounds(evidence(length_s=4.12, signals=CAPPED, timings=events)) == []


def test_regular_pauses_are_explained_by_the_claim() -> None:
    """A burst claim or a period that the loop keeps explains regular pauses; another period does not."""
    about = paced(CAPPED)
    assert bounds(about, is_burst=True) == []
    assert bounds(about, every_s=PERIOD_S) == []
    assert bounds(about, every_s=2 * PERIOD_S) == bounds(about)


def test_keeps_period_needs_a_period() -> None:
    one = Timings(np.array([BEGIN_NS]), np.array([1e-3]))
    assert not keeps_period(one, PERIOD_S)
    assert not keeps_period(paced({}).timings or one, 0.0)
