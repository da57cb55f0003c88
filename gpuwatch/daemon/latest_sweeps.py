"""The last sweep of every GPU and lane, for screens; and the last process list of every GPU, for windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from annotate.evidence import Lane, ProcessList
from gpuwatch.interfaces import Sweep


class LatestSweeps:
    """A sink that keeps the last sweep of each lane.  Written by sampling threads, read by any."""

    def __init__(self) -> None:
        self._sweeps: dict[tuple[str, Lane], Sweep] = {}
        self._process_lists: dict[str, ProcessList] = {}
        self._with_use: dict[str, ProcessList] = {}  # by GPU, the last that told how busy each process was

    def take(self, sweep: Sweep) -> None:
        if isinstance(sweep.observed, ProcessList):
            self._process_lists[sweep.uuid] = sweep.observed
            sweep = replace(sweep, observed=self._add_use(sweep.observed))
        elif sweep.lane is Lane.PROCESSES:  # lost: the list before is no answer for a window
            self._process_lists.pop(sweep.uuid, None)
        self._sweeps[(sweep.uuid, sweep.lane)] = sweep

    def by_lane(self) -> Mapping[tuple[str, Lane], Sweep]:
        """Return the last sweep of every GPU and lane; process lists with how busy each process was when that was last read."""
        return self._sweeps

    def process_list(self, uuid: str) -> ProcessList | None:
        """Return the last list as the driver gave it, None if it did not answer the last question."""
        return self._process_lists.get(uuid)

    def _add_use(self, listed: ProcessList) -> ProcessList:
        if listed.tells_use:
            self._with_use[listed.uuid] = listed
        return listed.with_use(self._with_use.get(listed.uuid, listed))
