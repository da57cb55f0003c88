"""Changes of the device memory in use within a window, as a sign of allocations."""

from dataclasses import dataclass

import numpy as np

from annotate.derived.presence import presences
from annotate.evidence import Evidence
from annotate.evidence.asked import kept


@dataclass(frozen=True, slots=True)
class MemoryChanges:
    """The changes of the device memory in use within a window, from refresh to refresh of the driver's gauge."""

    refreshes_count: int
    changes_count: int
    range_bytes: float

    @property
    def changed_ratio(self) -> float:
        """Return the share of refreshes that differ from the one before."""
        return self.changes_count / (self.refreshes_count - 1)


@kept
def memory_changes(evidence: Evidence) -> MemoryChanges | None:
    """Return the changes; None for fewer than five refreshes, without process lists, or with another process on the GPU."""
    if not evidence.trace.process_lists:
        return None
    values = evidence.within("memory_used_bytes", step_ns=evidence.trace.refresh_of_ns("memory_used_bytes")).observed.values
    if len(values) < 5 or any(not presence.own for presence in presences(evidence)):
        return None
    return MemoryChanges(len(values), int((np.diff(values) != 0).sum()), float(np.ptp(values)))
