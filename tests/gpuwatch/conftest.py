"""Daemons shared by the tests of a module, and the signals that tests need."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from gpuwatch.config.settings import Settings
from tests.gpuwatch.live import running

# Tests need SIGINT and SIGHUP.  A background job can start with SIGINT ignored, and nohup ignores SIGHUP.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="module")
def copying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Run a daemon on a simulated GPU that copies without end."""
    with running(tmp_path_factory.mktemp("copying")) as live:
        yield live.settings


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Run a daemon on two simulated GPUs: the first copies alone, the second has a neighbour."""
    with running(tmp_path_factory.mktemp("two"), "simulated:steady-copy,neighbour") as live:
        yield live.settings
