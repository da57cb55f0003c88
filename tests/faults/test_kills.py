"""Tests of kills at any moment: no committed row is torn or doubled, and the benchmark continues."""

from __future__ import annotations

import pytest

from tests.faults import kills


def test_a_daemon_killed_at_random_moments_tears_nothing() -> None:
    seen = kills.campaign(5, seed=7, longest_s=1.0, most_lost_ns=None)
    assert seen.rounds["work"] >= 2
    assert set(seen.verdicts) <= {"open: unproven", "short, opened", "short, not opened any more"}


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_hundred_of_them() -> None:
    kills.campaign(200, seed=1)
