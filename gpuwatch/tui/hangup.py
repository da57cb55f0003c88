"""A terminal that goes away: what is still written goes nowhere, and who called us hears of it once.

The kernel sends SIGHUP and, in case we were stopped, SIGCONT.  Textual takes the latter for a return from Ctrl-Z and starts to
draw anew, on a terminal that refuses every write; its thread that writes dies of that, and leaving would wait for it for ever.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def noticed(leave: Callable[[], Any]) -> Iterator[None]:
    """Calls ``leave`` from a signal's handler, in the main thread."""

    def gone(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGCONT, _nothing)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
        leave()

    before = signal.signal(signal.SIGHUP, gone)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Lower numbers are handled first: by now SIGHUP was."""
