"""Tests of the source of a daemon's GPUs, and of the lifetime of a daemon without one."""

from __future__ import annotations

import pytest

from gpuwatch.clock import MonotonicClock
from gpuwatch.daemon.source_keeper import SourceKeeper


@pytest.mark.parametrize(
    ("spec", "stay_s"), [("simulated:idle", 900.0), ("simulated:nonsense", 15.0), ("replay:/no/file", 15.0)]
)
def test_source_that_is_misnamed_lets_the_daemon_leave(spec: str, stay_s: float) -> None:
    """A daemon of an unknown scene exits, because it can serve no window; before the first check its source is unknown."""
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
