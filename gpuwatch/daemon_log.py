"""Where a daemon's messages go: to standard error, or to a log in its state folder where a window started it."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import stat
import sys
from pathlib import Path
from typing import TextIO

from gpuwatch import store_owner
from gpuwatch.config import Settings
from gpuwatch.errors import UsageError


def log_to(settings: Settings, *, on_demand: bool) -> None:
    """From here on.  Raises UsageError where there can be no log."""
    if on_demand:
        log = _emptied(settings.log)
        # Whatever ends us in a way nobody foresaw says so there: nobody else hears a daemon that a window started.
        os.dup2(log.fileno(), 2)
        faulthandler.enable(log)  # also a driver's library that crashes
    handler = logging.StreamHandler(log if on_demand else sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger("gpuwatch")
    root.addHandler(handler)
    root.setLevel(settings.log_level.upper())


def _emptied(log: Path) -> TextIO:
    """The log, begun anew; never through a link, which could lead to a file that is not ours.  Raises UsageError.

    That of the daemon before is kept: it may tell why it was not the last.  Where one that serves another socket keeps the
    same store, the log is its, and we say there why we cannot.
    """
    taken = store_owner.is_alive(log.parent)
    with contextlib.suppress(OSError):
        if not taken and stat.S_ISREG((before := log.lstat()).st_mode) and before.st_size:
            log.replace(log.with_name(f"{log.name}.old"))
    try:
        # At the end, wherever that is by then: the judge's worker writes there too.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | (0 if taken else os.O_TRUNC)
        descriptor = os.open(log, flags, 0o600)
    except OSError as error:
        raise UsageError(
            f"{log}: expected a file for messages, found: {error.strerror}; choose another with --state"
        ) from error
    return os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace")
