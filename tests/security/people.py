"""Another local user, for tests that run as root."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.systemd.test_service import as_another

NOBODY = 65534
only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


def as_nobody(work: Callable[[], str]) -> str:
    """Run a function as the user nobody; return the function's result, or the exception as text."""

    def work_or_report() -> str:
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - the caller is the parent process of a fork
            return f"{type(error).__name__}: {error}"

    return as_another(work_or_report)


@contextmanager
def open_folder() -> Iterator[Path]:
    """Yield a folder that other users may enter, unlike pytest's folders."""
    with tempfile.TemporaryDirectory(prefix="gw") as name:
        Path(name).chmod(0o755)
        yield Path(name)
