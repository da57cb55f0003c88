"""The types of evidence that the judge accepts.

All records are frozen.  A measured value of ``None`` (in arrays: NaN) means "not observed", never zero.  Names in ``_ns``
that hold instants are CLOCK_MONOTONIC nanoseconds of the recording machine.

The records of a `Device` are `Reading`, `ProcessList`, `PowerRecord`, `Event` and `Gap`.  A `Trace` holds the records around
a window.  `Evidence` joins the trace with `Host`, `Timings`, the declared facts and the window's circumstances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from annotate.evidence.circumstances import OtherWindow, OtherWork, Pause, RecordedWindow, WorkRecord
from annotate.evidence.reading import COUNTERS, HEARTBEAT_NS, SIGNALS, STALE_NS, Lane, Reading, Reason, signals
from annotate.evidence.records import Device, Event, Gap, Ownership, PowerRecord, Process, ProcessList, Visibility
from annotate.evidence.window_record import Fact, Host, Timings, WindowRecord

if TYPE_CHECKING:
    from annotate.evidence.column import EMPTY, GRID_COUNT, Column, Times, Values, grid
    from annotate.evidence.evidence import Evidence
    from annotate.evidence.trace import Increase, Trace

# Names that need numpy are imported at their first use: the daemon and `window()` do not need numpy.
_LATER = {
    **dict.fromkeys(("EMPTY", "GRID_COUNT", "Column", "Times", "Values", "grid"), "column"),
    "Evidence": "evidence",
    **dict.fromkeys(("Increase", "Trace"), "trace"),
}


def __getattr__(name: str) -> Any:  # the type depends on the name
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"annotate.evidence.{_LATER[name]}"), name)
    globals()[name] = value
    return value


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
