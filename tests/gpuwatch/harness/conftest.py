"""Fixture with a new harness session for a single test, on the shared daemon."""

from __future__ import annotations

import pytest

from gpuwatch.config.settings import Settings
from gpuwatch.harness import quiet_log, session


@pytest.fixture
def fresh(copying: Settings, monkeypatch: pytest.MonkeyPatch) -> session.HarnessSession:
    """Return a new session on the shared daemon, which replaces the process's session during the test."""
    for name in ("source", "state", "socket"):
        monkeypatch.setenv(f"GPUWATCH_{name.upper()}", str(getattr(copying, name)))
    monkeypatch.delenv("GPUWATCH", raising=False)
    made = session.HarnessSession()
    monkeypatch.setattr(session, "_session", made)
    quiet_log.take_messages()
    return made
