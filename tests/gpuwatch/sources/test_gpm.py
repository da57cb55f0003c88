"""Tests of activity read through GPM."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gpuwatch.sources.nvml.gpm import Gpm
from tests.gpuwatch.sources.nvml_double import UUID, Library, binding


def test_gpm_activity_needs_two_samples_100_ms_apart() -> None:
    """GPM gives no ratio before two samples are 100 ms apart, and drops NaN."""
    library, now = Library(), [0]
    api = binding(library)
    gpm = Gpm(api, UUID, None, now_ns=lambda: now[0])
    wanted = [("sm_activity_ratio", 2), ("sm_occupancy_ratio", 3)]

    def ask(at_ms: int) -> dict[str, Any]:
        now[0] = at_ms * 1_000_000
        values: dict[str, Any] = {}
        gpm.ask(wanted, values)
        return values

    assert ask(1) == {}
    assert ask(51) == {}
    assert ask(601) == {"sm_activity_ratio": pytest.approx(0.999), "sm_occupancy_ratio": pytest.approx(0.5)}
    library.gpm = [math.nan, 25.0]
    assert ask(1201) == {"sm_occupancy_ratio": 0.25}
    gpm.close()
    assert library.calls.count("nvmlGpmSampleAlloc") == library.calls.count("nvmlGpmSampleFree") == 2
