"""The destination of a daemon's messages: standard error, or a log in the state folder for a daemon started on demand."""

import contextlib
import faulthandler
import logging
import os
import stat
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from gpuwatch import clock
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError
from gpuwatch.wire import store_owner

INTERVAL_S = 60.0
PLACE_COUNT = 30  # different messages per line of code and interval
_KNOWN_COUNT = 1000  # messages whose repetitions are counted at a time


@dataclass(slots=True)
class _Occurrence:
    since_ns: int
    passed_count: int = 1
    held_count: int = 0


class Repeats(logging.Filter):
    """A limit on a log's rate: each message once per interval, and a bounded number of different ones per line of code.

    The next similar message that passes reports the number held back.  Debug messages always pass.
    """

    def __init__(self, *, now_ns: Callable[[], int] = clock.now_ns) -> None:
        super().__init__()
        self._now_ns = now_ns
        self._texts: dict[Hashable, _Occurrence] = {}
        self._places: dict[Hashable, _Occurrence] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return True
        text = record.getMessage()
        held_count = self._held_before(self._texts, (record.name, record.levelno, text), 1)
        if held_count is None:
            return False
        place_held_count = self._held_before(self._places, (record.pathname, record.lineno), PLACE_COUNT)
        if place_held_count is None:
            return False
        if count := held_count + place_held_count:
            record.msg, record.args = f"{text} ({count} similar messages suppressed)", ()
        return True

    def _held_before(self, known: dict[Hashable, _Occurrence], key: Hashable, most_count: int) -> int | None:
        """Return the number of messages held back before this one, or None if this one is held back too."""
        now_ns = self._now_ns()
        seen = known.get(key)
        if seen is None or now_ns - seen.since_ns >= INTERVAL_S * 1e9:
            if len(known) >= _KNOWN_COUNT:
                known.clear()
            known[key] = _Occurrence(now_ns)
            return seen.held_count if seen is not None else 0
        if seen.passed_count < most_count:
            seen.passed_count += 1
            return 0
        seen.held_count += 1
        return None


def log_to(settings: Settings, *, on_demand: bool) -> None:
    """Send log messages to their destination.

    Raises UsageError: when the log cannot be opened.
    """
    if on_demand:
        log = _emptied(settings.log)
        # The log receives standard error too, because a daemon started on demand has no terminal.
        os.dup2(log.fileno(), 2)
        faulthandler.enable(log)  # also for a crash inside a driver's library
    handler = logging.StreamHandler(log if on_demand else sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(Repeats())
    root = logging.getLogger("gpuwatch")
    root.addHandler(handler)
    logging.getLogger("asyncio").addHandler(handler)  # errors that asyncio reports only through its logger
    root.setLevel(settings.log_level.upper())


def _emptied(log: Path) -> TextIO:
    """Open a new, empty log, never through a link, which could lead to another file.  Raises UsageError: if that fails.

    The previous daemon's log is kept: it may explain that daemon's end.  If a daemon of another socket owns the
    store, the log belongs to that daemon, and this one appends the reason for its own exit.
    """
    taken = store_owner.is_alive(log.parent)
    with contextlib.suppress(OSError):
        if not taken and stat.S_ISREG((before := log.lstat()).st_mode) and before.st_size:
            log.replace(log.with_name(f"{log.name}.old"))
    try:
        # Append: the judge's worker writes to the same file.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | (0 if taken else os.O_TRUNC)
        descriptor = os.open(log, flags, 0o600)
    except OSError as error:
        raise UsageError(
            f"{log}: expected a log file that can be written, found: {error.strerror}; choose another folder with --state"
        ) from error
    return os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace")
