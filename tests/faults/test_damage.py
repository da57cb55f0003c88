"""Tests of stores with randomly damaged files: errors have one line, and later windows are stored and judged."""

from __future__ import annotations

import pytest

from tests.faults import damage


def test_randomly_damaged_stores_are_usable() -> None:
    """A damaged store is read with one-line errors, written again and judged, or refused as written by a newer gpuwatch."""
    assert damage.campaign(8, seed=11).total() == 8


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_thousand_damaged_stores_are_usable() -> None:
    damage.campaign(1000, seed=1)
