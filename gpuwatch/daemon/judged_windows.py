"""Judged windows of a daemon: the latest from memory, earlier ones from the store."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from annotate.status import Status
from gpuwatch.errors import StoreError
from gpuwatch.interfaces import Run
from gpuwatch.store.run_reader import RunReader

REMEMBERED_COUNT = 200


class JudgedWindows:
    """A lookup of judged windows.  Methods named ``read…`` open the store; a serving daemon calls them in a thread."""

    def __init__(self, state: Path, boot_id: str) -> None:
        self._state = state
        self._boot_id = boot_id
        self._runs: dict[str, Run] = {}

    def __reversed__(self) -> Iterator[Run]:
        return reversed(self._runs.values())

    def add(self, run: Run) -> None:
        """Remember a window, and forget the oldest beyond ``REMEMBERED_COUNT``."""
        self._runs[run.id] = run
        while len(self._runs) > REMEMBERED_COUNT:
            del self._runs[next(iter(self._runs))]

    def add_earlier(self, runs: Iterable[Run]) -> None:
        """Remember windows that were judged before the windows in memory."""
        self._runs = {run.id: run for run in runs} | self._runs

    def get(self, run_id: str) -> Run | None:
        """Return a window from memory; None for any other window."""
        return self._runs.get(run_id)

    def read(self, run_id: str) -> Run | None:
        """Return a judged window from the store, which an earlier daemon may have closed; None without a verdict there."""
        try:
            with RunReader(self._state) as reader:
                run = reader.run(run_id)
        except StoreError:
            return None
        return run if run.id == run_id and run.status in list(Status) else None

    def read_xids(self) -> list[tuple[str, int, float]]:
        """Return the last Xids of this boot from the store: GPU, number and wall time."""
        try:
            with RunReader(self._state) as reader:
                return reader.last_xids(self._boot_id)
        except StoreError:
            return []

    def read_recent(self) -> list[Run]:
        """Return the last windows of this boot from the store, oldest first."""
        try:
            with RunReader(self._state) as reader:
                runs = reader.runs(status=list(Status), limit=REMEMBERED_COUNT)
        except StoreError:
            return []
        return [run for run in reversed(runs) if run.boot_id == self._boot_id]
