"""Tests of an on-demand daemon's idle time, which depends on the daemon's source."""

from __future__ import annotations

import pytest

from gpuwatch.clock import MonotonicClock
from gpuwatch.daemon.source_keeper import SourceKeeper


@pytest.mark.parametrize(
    ("spec", "stay_s"), [("simulated:idle", 900.0), ("simulated:nonsense", 15.0), ("replay:/no/file", 15.0)]
)
def test_misnamed_source_shortens_the_idle_time(spec: str, stay_s: float) -> None:
    """An unknown scene or recording limits the idle time to 15 s, as does a source before the first look."""
    keeper = SourceKeeper(spec, MonotonicClock(), on_new=lambda _source, _device: None, sinks=list)
    assert keeper.stay_s(900.0) == 15.0
    keeper.look()
    try:
        assert keeper.stay_s(900.0) == stay_s
        assert keeper.stay_s(1.0) == 1.0
        assert (keeper.absence is None) == (stay_s == 900.0)
    finally:
        keeper.deafen()
        keeper.close()
