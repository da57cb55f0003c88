"""Handling of a terminal's hangup: discard further output, and exit the app.

The kernel sends SIGHUP and, to a stopped process, SIGCONT.  Textual takes SIGCONT for a return from Ctrl-Z and redraws a
terminal that refuses every write.  Textual's writer thread then dies, and an exit would wait for that thread forever.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_STANDARD = (0, 1, 2)


@contextlib.contextmanager
def exit_on_hangup(leave: Callable[[], Any]) -> Iterator[None]:
    """Call ``leave`` at a hangup, from a signal handler in the main thread."""

    def gone(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGCONT, _nothing)
        if not all(map(os.isatty, _STANDARD)):  # after a user's SIGHUP the terminal exists, and textual restores it
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in _STANDARD:
                os.dup2(nowhere, descriptor)
            os.close(nowhere)
        leave()

    before = signal.signal(signal.SIGHUP, gone)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: Python handles pending signals in numeric order, so SIGHUP was handled already."""
