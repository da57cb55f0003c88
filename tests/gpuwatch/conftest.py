"""Daemons that the tests of a module share.

Starting one takes 0.35 s of a processor, and one that runs on beside all later tests 1 % of it: the workers paid a minute.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from gpuwatch.config.settings import Settings
from tests.gpuwatch.live import running

# A shell's job in the background ignores SIGINT, one of nohup SIGHUP, and all that they start does: commands under test must end by them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="module")
def copying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A daemon on a simulated GPU that copies without end."""
    with running(tmp_path_factory.mktemp("copying")) as live:
        yield live.settings


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A daemon on two simulated GPUs: the first copies alone, the second has a neighbour on it all the time."""
    with running(tmp_path_factory.mktemp("two"), "simulated:steady-copy,neighbour") as live:
        yield live.settings
