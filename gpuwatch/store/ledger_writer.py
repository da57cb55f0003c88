"""The way of everything else into the ledger: windows, devices, events, timings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gpuwatch.store.ledger import Ledger
from gpuwatch.store.retries import Failure, Retries
from gpuwatch.store.state_folder import StateFolder

RETRIED_COUNT = 10_000  # writes that wait for room on a full disk


@dataclass(frozen=True, slots=True)
class LedgerWrite:
    """One change of the ledger.  ``known_as``: the fact and GPU that a ledger begun later must be told again."""

    apply: Callable[[Ledger], None]
    known_as: tuple[str, str] | None = None


class LedgerWriter:
    """Writes in order, a transaction for all of a commit.  It belongs to the writer's thread."""

    def __init__(self, folder: StateFolder, retries: Retries) -> None:
        self._folder = folder
        self._retries = retries
        self._waiting: list[LedgerWrite] = []
        self._known: dict[tuple[str, str], LedgerWrite] = {}
        self._informed = folder.ledger  # has every known fact, written or waiting
        self.dropped_count = 0

    def put(self, write: LedgerWrite) -> None:
        """Add a change to the next commit."""
        if write.known_as is not None:
            self._known[write.known_as] = write
        self._waiting.append(write)

    def write(self) -> bool:
        """Commit every change in one transaction; if one is at fault, each in its own, without it."""
        if self._folder.ledger is not self._informed:  # a new one knows nothing yet
            self._informed, self._waiting = self._folder.ledger, [*self._known.values(), *self._waiting]
        writes, self._waiting = self._waiting, []
        if not writes or self._retries.succeeds(partial(self._commit, writes)):
            return True
        if self._retries.failure is not Failure.VALUE:
            self._waiting = writes[-RETRIED_COUNT:]
            self.dropped_count += max(0, len(writes) - RETRIED_COUNT)
            return False
        for write in writes:
            if not self._retries.succeeds(partial(self._commit, [write])):
                if self._retries.failure is Failure.VALUE:
                    self.dropped_count += 1
                else:
                    self._waiting.append(write)
        return not self._waiting

    def _commit(self, writes: list[LedgerWrite]) -> None:
        ledger = self._folder.ledger
        with ledger.database.atomic():
            for write in writes:
                write.apply(ledger)
