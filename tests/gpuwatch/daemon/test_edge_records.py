"""Tests of the records around a window's end: power up to the end, and process lists before and after the end."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import gpuwatch
from gpuwatch.store import Reader
from tests.gpuwatch.live import running
from tests.waiting import sample_for

SAMPLE_NS = 20_000_000


def test_power_record_reaches_the_end_of_the_window(tmp_path: Path) -> None:
    """The stored power record has no gap up to the end, and process lists from before and after the end are stored."""
    with running(tmp_path) as daemon:
        for length_s in (0.3, 0.7, 1.1):  # different phases of the reads of each second
            with gpuwatch.window(settings=daemon.settings) as w:
                sample_for(length_s)
            assert w.verdict
            with Reader(daemon.settings.state) as reader:
                run = reader.run(w.run_id or "")
                evidence = reader.evidence(run, run.uuids[0])
            power = evidence.trace.dense_power
            assert power.at_ns[-1] >= evidence.window.end_ns
            inside = (power.at_ns >= evidence.window.begin_ns) & (power.at_ns <= evidence.window.end_ns + SAMPLE_NS)
            assert np.diff(power.at_ns[inside]).max() <= 2 * SAMPLE_NS
            listed_ns = [process_list.at_ns for process_list in evidence.trace.process_lists]
            assert min(listed_ns) <= evidence.window.end_ns <= max(listed_ns)
