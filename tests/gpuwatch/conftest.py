"""Daemons that several tests share: starting one takes a second."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from gpuwatch.config.settings import Settings
from tests.gpuwatch.live import running

# A shell's job in the background ignores SIGINT, and all it starts does: commands under test must be able to end by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def copying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A daemon on a simulated GPU that copies without end."""
    with running(tmp_path_factory.mktemp("copying")) as live:
        yield live.settings


@pytest.fixture(scope="session")
def two_gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A daemon on two simulated GPUs: the first copies alone, the second has a neighbour on it all the time."""
    with running(tmp_path_factory.mktemp("two"), "simulated:steady-copy,neighbour") as live:
        yield live.settings
