"""Reaction to a terminal's hangup: further output is discarded, and the app exits once.

The kernel sends SIGHUP and, for a stopped process, SIGCONT.  Textual takes the latter for a return from Ctrl-Z and starts to
redraw, on a terminal that refuses every write.  Its writer thread then dies, and an exit would wait for it forever.
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
        if not all(map(os.isatty, _STANDARD)):  # a user may have sent the signal: then textual can still restore the terminal
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
    """Do nothing: Python handles lower numbers first, so SIGHUP was handled already."""
