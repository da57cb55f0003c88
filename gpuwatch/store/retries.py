"""Writes that may fail: tried again with room made for them, put off, or given up; what stands in their way is known."""

import logging
import sqlite3
from collections.abc import Callable
from enum import Enum

import msgspec

from gpuwatch.errors import StoreError
from gpuwatch.store import files

_log = logging.getLogger("gpuwatch.store")

# What one bad value or a bad disk can raise: it costs its own rows, never the thread.
UNSTORABLE = (
    sqlite3.Error, OSError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, MemoryError, StoreError,
    RecursionError, msgspec.MsgspecError,
    SystemError,  # what the binding of SQLite says without memory
)  # fmt: skip


class Failure(Enum):
    """Why the last write did not succeed, as far as it matters for what becomes of it."""

    FULL = "the disk is full"
    PASSING = "not now"
    VALUE = "never"


class Retries:
    """``make_room`` frees some of a full disk, if it can; ``replace`` sets broken files aside, if any are."""

    def __init__(self, *, make_room: Callable[[], bool], replace: Callable[[BaseException], bool]) -> None:
        self._make_room = make_room
        self._replace = replace
        self.failure: Failure | None = None
        self.refused: str | None = None  # why nothing can be stored for now
        self._logged: set[str] = set()  # kinds of errors that values caused

    def succeeds(self, work: Callable[[], object]) -> bool:
        """Do it; make room and do it again while the disk is full; replace the file that broke, if one did."""
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
        """Nothing waits any more."""
        if self.refused is not None:
            _log.info("stored again, after: %s", self.refused)
        self.failure = self.refused = None

    def _log_value(self, error: BaseException) -> None:
        """Once for each kind of error: a program's name may be in every list of processes."""
        kind = type(error).__name__
        if kind not in self._logged:
            self._logged.add(kind)
            _log.error("not stored: %s: %s; more of this kind are counted and not logged", kind, error)

    def _refuse(self, failure: Failure, why: str) -> None:
        """Said once, however often it is tried again."""
        if self.refused is None:
            _log.error("nothing can be stored for now: %s", why)
        self.failure, self.refused = failure, why
