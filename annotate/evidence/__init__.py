"""The nouns: the form in which evidence must be submitted to the judge.

Everything is frozen, and ``None`` (in arrays: NaN) means "not observed", never zero.  Times are CLOCK_MONOTONIC
nanoseconds of the machine that recorded; the unit of any other amount is the last word of its name.

A `Device` is read in lanes: `Reading`, `ProcessList`, `PowerRecord`, `Event`, `Gap`.  Around a `Window` they become a `Trace` of
columns.  With the `Host`'s facts, `Timings` and what was declared, that is the `Evidence`.
"""

from annotate.evidence.circumstances import OtherWindow, OtherWork, Pause, RecordedWindow, WorkRecord
from annotate.evidence.column import EMPTY, GRID_COUNT, Column, Times, Values, grid
from annotate.evidence.evidence import Evidence, Fact
from annotate.evidence.reading import COUNTERS, HEARTBEAT_NS, SIGNALS, STALE_NS, Lane, Reading, Reason, signals
from annotate.evidence.records import Device, Event, Gap, Ownership, PowerRecord, Process, ProcessList, Visibility
from annotate.evidence.trace import Increase, Trace
from annotate.evidence.window_record import Host, Timings, WindowRecord

__all__ = [
    "COUNTERS",
    "EMPTY",
    "GRID_COUNT",
    "HEARTBEAT_NS",
    "SIGNALS",
    "STALE_NS",
    "Column",
    "Device",
    "Event",
    "Evidence",
    "Fact",
    "Gap",
    "Host",
    "Increase",
    "Lane",
    "OtherWindow",
    "OtherWork",
    "Ownership",
    "Pause",
    "PowerRecord",
    "Process",
    "ProcessList",
    "Reading",
    "Reason",
    "RecordedWindow",
    "Times",
    "Timings",
    "Trace",
    "Values",
    "Visibility",
    "WindowRecord",
    "WorkRecord",
    "grid",
    "signals",
]
