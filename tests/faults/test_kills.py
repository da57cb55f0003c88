"""Tests of kills at any moment: committed rows stay whole and single, and the benchmark continues."""

from __future__ import annotations

import pytest

from tests.faults import kills


def test_store_survives_a_few_random_kills() -> None:
    seen = kills.campaign(5, seed=7, longest_s=1.0, most_lost_ns=None)
    assert seen.rounds["work"] >= 2
    assert set(seen.verdicts) <= {"open: unproven", "short, opened", "short, not opened any more"}


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_store_survives_two_hundred_random_kills() -> None:
    kills.campaign(200, seed=1)
