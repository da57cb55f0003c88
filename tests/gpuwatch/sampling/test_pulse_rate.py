"""Tests that whole rows every 50 ms with pulses every 10 ms change no status and no hazard of windows recorded on an H200.

The driver's page changes every 100 ms.  The dense power record and the reads at a window's edges do not depend on the rows.
The windows are those of ``h200-windows.capsule`` and ``scenarios.npz``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from annotate.capsule.unpack import unpack
from annotate.evidence import SIGNALS, Evidence, Lane
from annotate.judge import judge
from gpuwatch.sampling.plan import PULSE, ROW_NS
from gpuwatch.sources import recordings
from tests.campaign import clean
from tests.examples import SHARE
from tests.gpuwatch.slower import slower

TRACES = Path(__file__).parents[2] / "traces"
MS = 1_000_000
PHASES_NS = tuple(range(0, ROW_NS, 10 * MS))[:: 1 if SHARE == 1.0 else 2]  # phase of the rows in their period


def windows() -> Iterator[tuple[Evidence, bool]]:
    """Yield every window of both recordings, and True if the recording lacks repeated rows."""
    for each in unpack((TRACES / "h200-windows.capsule").read_bytes()):
        yield each, True
    for each in recordings.load(TRACES / "scenarios.npz"):
        yield each, False


def outcome(evidence: Evidence) -> tuple[str, frozenset[tuple[str, str | None]]]:
    verdict = judge(evidence)
    return verdict.status.value, frozenset((finding.rule, finding.severity) for finding in verdict.hazards)


@pytest.mark.parametrize(("window", "changes_only"), [pytest.param(*each, id=str(each[0].window.label)) for each in windows()])
def test_recorded_window_keeps_its_status_and_hazards(window: Evidence, changes_only: bool) -> None:
    before = outcome(window)
    for phase_ns in PHASES_NS:
        assert outcome(slower(window, phase_ns=phase_ns, changes_only=changes_only)) == before, phase_ns


def test_intervals_of_clean_windows_keep_status_and_hazards() -> None:
    moved = set()
    for label, interval in clean.recorded(step_s=0.5):
        window, before = interval.window, outcome(interval)
        for phase_ns in PHASES_NS[::2]:
            if outcome(slower(interval, phase_ns=phase_ns, changes_only="_" not in label)) != before:
                moved.add((label, round(window.length_s, 1), window.begin_ns))
    assert moved == set()


def test_slower_removes_rows_and_adds_no_values() -> None:
    for window, changes_only in windows():
        thinned = slower(window, changes_only=changes_only)
        inside = (window.window.begin_ns + ROW_NS, window.window.end_ns - ROW_NS)
        for name, column in thinned.trace.columns.items():
            if SIGNALS[name] is not Lane.FAST or name in PULSE:
                assert column is window.trace.columns[name]
                continue
            at_ns = column.at_ns[(column.at_ns > inside[0]) & (column.at_ns < inside[1])]
            assert len(at_ns) <= max(0, inside[1] - inside[0]) / ROW_NS + 2, name
            known = column.values[~np.isnan(column.values)]
            assert np.isin(known, window.trace.columns[name].values).all(), name
