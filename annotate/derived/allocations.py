"""Memory asked of the driver inside a window: by what the allocator reports, and by how the memory in use moved."""

from dataclasses import dataclass

import numpy as np

from annotate.derived.presence import presences
from annotate.evidence import Evidence
from annotate.evidence.asked import kept


@dataclass(frozen=True, slots=True)
class Moved:
    """The movement of the device memory in use within a window, from one refresh of the driver's figure to the next."""

    refreshes_count: int
    changes_count: int
    range_bytes: float

    @property
    def changed_ratio(self) -> float:
        """The share of refreshes that differ from the one before."""
        return self.changes_count / (self.refreshes_count - 1)


@kept
def moved(evidence: Evidence) -> Moved | None:
    """Measure the movement; None where it was hardly read, no process list was, or another process may have caused it."""
    if not evidence.trace.process_lists:
        return None
    values = evidence.within("memory_used_bytes", step_ns=evidence.trace.refresh_of_ns("memory_used_bytes")).observed.values
    if len(values) < 5 or any(not presence.own for presence in presences(evidence)):
        return None
    return Moved(len(values), int((np.diff(values) != 0).sum()), float(np.ptp(values)))
