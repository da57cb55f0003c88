"""Files damaged at random: said in one line, set aside, and what comes after is kept and judged."""

from __future__ import annotations

import pytest

from tests.faults import damage


def test_randomly_damaged_store_is_read_and_written_on() -> None:
    """A store damaged at random is read, with one line per error, and written on."""
    assert damage.campaign(8, seed=11).total() == 8


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_thousand_of_them() -> None:
    damage.campaign(1000, seed=1)
