"""The marker ``soak`` of the long campaigns, which ``make soak`` runs; a short slice of each is an ordinary test."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "soak: hours of faults; run by make soak")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "soak" in item.keywords:
            item.add_marker(pytest.mark.slow)  # skipped by default, like every long test
