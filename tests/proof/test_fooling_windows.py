"""The windows meant to fool the judge: that they are what they are said to be, whatever the judge makes of them."""

from __future__ import annotations

import pytest

from tests.proof import (
    fooling_clocks,
    fooling_honest,
    fooling_honest_more,
    fooling_idle,
    fooling_inputs,
    fooling_neighbours,
    fooling_times,
)
from tests.proof.fooling_table import Entry

_FILES = (
    fooling_clocks, fooling_honest, fooling_honest_more, fooling_idle, fooling_inputs, fooling_neighbours, fooling_times,
)  # fmt: skip
_ENTRIES = [entry for file in _FILES for entry in file.ENTRIES]


def _name(entry: Entry) -> str:
    return entry.name


def test_each_window_has_its_own_name() -> None:
    names = [entry.name for entry in _ENTRIES]
    assert len(set(names)) == len(names)
    assert sum(not entry.honest for entry in _ENTRIES) >= 28
    assert sum(entry.honest for entry in _ENTRIES) >= 12


@pytest.mark.parametrize("entry", _ENTRIES, ids=_name)
def test_window_is_as_far_off_as_it_says(entry: Entry) -> None:
    """An honest window's numbers are right to 0.3 %; of another, one is off by 2 %, or is not what it is said to be."""
    attempt = entry.make()
    assert len(attempt.evidence.trace.columns) > 3
    largest = max((abs(each) for each in attempt.truth.values()), default=1.0)
    assert largest < 0.003 if entry.honest else largest > 0.02
    assert set(entry.covers) <= set(attempt.truth)
