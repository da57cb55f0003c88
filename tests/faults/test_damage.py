"""Files damaged at random: said in one line, set aside, and what comes after is kept and judged."""

from __future__ import annotations

import pytest

from tests.faults import damage


def test_a_store_damaged_at_random_is_read_in_one_line_and_written_on() -> None:
    assert damage.campaign(8, seed=11).total() == 8


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_thousand_of_them() -> None:
    damage.campaign(1000, seed=1)
