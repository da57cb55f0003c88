"""The marker of the long campaigns: ``make soak`` runs them, and a short slice of each is a test like any other."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "soak: hours of faults; run by make soak")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "soak" in item.keywords:
            item.add_marker(pytest.mark.slow)  # and so left out like every other long one
