"""Tests of the canary's record."""

from __future__ import annotations

from pathlib import Path

from annotate.declared import FACTS
from gpuwatch.measuring import canary_record


def test_canary_facts_hold_medians_on_record(tmp_path: Path) -> None:
    """The recorded medians are declared with this run's figures."""
    assert canary_record.facts(tmp_path, "GPU-1", clock_mhz=1900.0) == {"canary_clock_mhz": 1900.0}
    for mhz in (1970.0, 1980.0, 1400.0):
        canary_record.store(tmp_path, "GPU-1", clock_mhz=mhz, copy_bytes_count=None)
    told = canary_record.facts(tmp_path, "GPU-1", clock_mhz=1900.0, copy_bytes_count=4e12)
    assert told == {
        "canary_clock_mhz": 1900.0,
        "canary_copy_bytes_count": 4e12,
        "canary_record_clock_mhz": 1970.0,
        "canary_record_count": 3,
    }
    assert told.keys() <= FACTS.keys()
    assert canary_record.facts(tmp_path, "GPU-2") == {}


def test_canary_record_stays_short_and_survives_damage(tmp_path: Path) -> None:
    """The record keeps 50 runs, and starts again after damage."""
    (tmp_path / canary_record.FILE).write_text('{"schema":1,"canaries":{"GPU-1":7}}')
    for _ in range(60):
        canary_record.store(tmp_path, "GPU-1", clock_mhz=1970.0, copy_bytes_count=4e12)
    assert canary_record.facts(tmp_path, "GPU-1")["canary_record_count"] == 50
