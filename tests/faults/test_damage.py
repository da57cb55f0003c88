"""Tests of randomly damaged files: reported in one line, set aside, and later windows stored and judged."""

from __future__ import annotations

import pytest

from tests.faults import damage


def test_randomly_damaged_store_is_read_and_written_on() -> None:
    """A randomly damaged store can be read, with one line per error, and written again."""
    assert damage.campaign(8, seed=11).total() == 8


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_thousand_of_them() -> None:
    damage.campaign(1000, seed=1)
