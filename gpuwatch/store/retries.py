"""Writes that may fail: retried after making room, postponed, or given up, with the reason."""

import logging
import sqlite3
from collections.abc import Callable
from enum import Enum

import msgspec

from gpuwatch.errors import StoreError
from gpuwatch.store import files

_log = logging.getLogger("gpuwatch.store")

# Errors from one bad value or a bad disk, which must never end the writer's thread.
UNSTORABLE = (
    sqlite3.Error, OSError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, MemoryError, StoreError,
    RecursionError, msgspec.MsgspecError,
    SystemError,  # raised by the sqlite3 module when memory is short
)  # fmt: skip


class Failure(Enum):
    """The kind of the last write's failure, which decides the next step."""

    FULL = "the disk is full"
    PASSING = "not now"
    VALUE = "never"


class Retries:
    """Retries of writes.  ``make_room`` frees space on a full disk if it can; ``replace`` sets broken files aside, if any."""

    def __init__(self, *, make_room: Callable[[], bool], replace: Callable[[BaseException], bool]) -> None:
        self._make_room = make_room
        self._replace = replace
        self.failure: Failure | None = None
        self.refused: str | None = None  # the reason why nothing can be stored for now
        self._logged: set[str] = set()  # kinds of errors caused by values

    def succeeds(self, work: Callable[[], object]) -> bool:
        """Write, and return whether that succeeded.  On a full disk, make room and retry; set a broken file aside."""
        while True:
            try:
                work()
            except UNSTORABLE as error:
                if files.is_full(error):
                    if self._make_room():
                        continue
                    self._refuse(Failure.FULL, f"the disk is full and no segment is left to drop: {error}")
                    return False
                if files.is_passing(error) or isinstance(error, StoreError):
                    self._refuse(Failure.PASSING, f"{type(error).__name__}: {error}")
                    return False
                replaced = files.is_broken(error) and self._replace(error)
                self.failure = Failure.PASSING if replaced else Failure.VALUE
                self._log_value(error)
                return False
            return True

    def all_stored(self) -> None:
        """Record that no write waits."""
        if self.refused is not None:
            _log.info("writes succeed again, after: %s", self.refused)
        self.failure = self.refused = None

    def _log_value(self, error: BaseException) -> None:
        """Log each kind of error once, because a bad process name may be in every process list."""
        kind = type(error).__name__
        if kind not in self._logged:
            self._logged.add(kind)
            _log.error("not stored: %s: %s; further errors of this kind are only counted", kind, error)

    def _refuse(self, failure: Failure, why: str) -> None:
        """Log a refusal once, even if the write is retried."""
        if self.refused is None:
            _log.error("nothing can be stored for now: %s", why)
        self.failure, self.refused = failure, why
