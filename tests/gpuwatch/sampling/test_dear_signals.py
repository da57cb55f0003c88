"""Energy and GPM in slow rows: in each near a window's edges, and every third late in a long window, which keeps its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from annotate.evidence import DEAR, Column, Evidence, Lane
from annotate.judge import judge
from gpuwatch.sampling.dear_signals import MOST_NS, DearSignals
from gpuwatch.sampling.plan import LanePeriods, unmeasured
from gpuwatch.sources.simulated import SCENES
from gpuwatch.sources.simulated.offline import simulate
from tests.gpuwatch.scripted import DEVICE

S = 1_000_000_000
LONG_S = 40.0


def asked_s(dear: DearSignals, begin_s: int, end_s: int) -> list[int]:
    """Return the seconds whose slow row holds the dear signals."""
    return [at_s for at_s in range(begin_s, end_s) if set(DEAR) <= set(dear.names(at_s * S))]


def periods(*, is_active: bool) -> LanePeriods:
    found = LanePeriods(unmeasured(DEVICE))
    found.is_active = is_active
    return found


def test_dear_signals_are_in_every_row_of_a_short_window() -> None:
    dear = DearSignals(periods(is_active=True))
    dear.note_edge(0)
    assert asked_s(dear, 0, 15) == list(range(15))


def test_dear_signals_are_rarer_as_a_window_grows_older() -> None:
    dear = DearSignals(periods(is_active=True))
    dear.note_edge(0)
    asked_s(dear, 0, 30)
    late = asked_s(dear, 30, 60)
    assert set(np.diff(late)) == {MOST_NS // S}


def test_dear_signals_are_read_at_each_edge() -> None:
    """Another window's edge has the next row hold them, and the rows of the seconds after it."""
    dear = DearSignals(periods(is_active=True))
    dear.note_edge(0)
    last_s = max(asked_s(dear, 0, 50))
    dear.note_edge((last_s + 1) * S)
    assert asked_s(dear, last_s + 1, last_s + 6) == list(range(last_s + 1, last_s + 6))


def test_dear_signals_are_in_every_row_without_a_window() -> None:
    """Without a window slow rows lie ten seconds apart, and each holds them; a row without them holds all others."""
    dear = DearSignals(periods(is_active=False))
    assert asked_s(dear, 0, 100)[::10] == list(range(0, 100, 10))
    active = DearSignals(periods(is_active=True))
    whole, rest = active.names(100 * S), active.names(101 * S)
    assert set(whole) - set(rest) == set(DEAR)
    assert Lane.SLOW in periods(is_active=True).plan.names


def rarer(evidence: Evidence) -> Evidence:
    """Return a window with the rows that the sampler takes: counters as read, means over the time since the last row."""
    begin_ns, end_ns = evidence.window.begin_ns, evidence.window.end_ns
    dear, columns = DearSignals(periods(is_active=True)), dict(evidence.trace.columns)
    dear.note_edge(begin_ns)
    at_ns = columns["energy_j"].at_ns
    kept = np.array([not begin_ns <= each <= end_ns or set(DEAR) <= set(dear.names(int(each))) for each in at_ns])
    for name in set(DEAR) & set(columns):
        values = columns[name].values
        if name != "energy_j":
            values = np.array(
                [values[first:last].mean() for first, last in zip(_after(kept.tolist()), range(1, len(kept) + 1), strict=True)]
            )
        columns[name] = Column(at_ns[kept], values[kept])
    return replace(evidence, trace=replace(evidence.trace, columns=columns))


def _after(kept: Sequence[bool]) -> list[int]:
    """Return, for each row, the first row after the last kept one before it."""
    found, first = [], 0
    for i, is_kept in enumerate(kept):
        found.append(first)
        first = i + 1 if is_kept else first
    return found


@pytest.mark.parametrize("scene", ["steady-gemm", "bursty", "setting-change"])
def test_long_window_keeps_its_verdict_with_rarer_dear_rows(scene: str) -> None:
    """A window of 40 s is judged as with a dear row each second."""
    known = SCENES[scene]
    (every,) = simulate(replace(known, bench=(known.bench[0], known.bench[0] + LONG_S)), seed=3)
    fewer = rarer(every)
    assert len(fewer.trace.columns["energy_j"]) < len(every.trace.columns["energy_j"]) - 10
    before, after = judge(every), judge(fewer)
    assert after.status is before.status
    assert {(each.rule, each.severity) for each in after.hazards} == {(each.rule, each.severity) for each in before.hazards}
