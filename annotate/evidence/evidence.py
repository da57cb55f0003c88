"""The evidence of one window on one GPU, as the judge receives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from annotate.evidence.circumstances import OtherWindow, OtherWork, Pause, WorkRecord
from annotate.evidence.column import Column
from annotate.evidence.records import Device
from annotate.evidence.trace import Increase, Trace
from annotate.evidence.window_record import Fact, Host, Timings, WindowRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All evidence of one window on one GPU.

    ``declared`` holds declared facts by the names of ``annotate.declared``.  Except for the facts of the claim, declared facts
    can only worsen a verdict.  ``absence`` is the reason for missing telemetry, or None.  ``baseline`` is the evidence to
    compare the window with, or None.  The measured process also declares ``timings`` and ``other_work``.  ``pauses``
    name the causes of idle stretches and late iterations.  ``overlapping`` holds other windows on this GPU, and ``record``
    the earlier VALID windows of this work, or None.
    """

    window: WindowRecord
    device: Device | None = None
    trace: Trace = field(default_factory=Trace)
    host: Host = field(default_factory=Host)
    declared: Mapping[str, Fact] = field(default_factory=dict)
    timings: Timings | None = None
    absence: str | None = None
    baseline: Evidence | None = None
    other_work: OtherWork | None = None
    pauses: tuple[Pause, ...] = ()
    overlapping: tuple[OtherWindow, ...] = ()
    record: WorkRecord | None = None

    def observes(self, name: str) -> bool:
        """Return True if this evidence holds the named item.

        ``name`` is a signal, ``process_list``, ``dense_power``, ``timings``, ``baseline``, ``host.X``, ``declared.X`` or
        ``device.X``.  ``timings.`` with any suffix means stamped clocks.
        """
        root, _, fact = name.partition(".")
        match root:
            case "host":
                return getattr(self.host, fact) is not None
            case "declared":
                return self.declared.get(fact) is not None
            case "device":
                return self.device is not None and getattr(self.device, fact) is not None
            case "process_list":
                return bool(self.trace.process_lists)
            case "dense_power":
                return len(self.trace.dense_power) > 0
            case "timings" if not fact:
                return self.timings is not None
            case "timings":
                clock = self.timings.sm_clock_mhz if self.timings else None
                return clock is not None and bool(np.isfinite(clock).any())
            case "baseline":
                return self.baseline is not None
            case _:
                return self.trace.observes(name)

    def within(self, name: str, *, step_ns: int = 10_000_000) -> Column:
        """Return a signal on a regular grid over the window, without the signal's first refresh interval.

        A gauge can be one refresh old, so its first values may describe the time before the window.  The cut is at most
        half of the window.
        """
        lag_ns = min(self.trace.refresh_of_ns(name), self.window.length_ns // 2)
        return self.trace.within(name, self.window.begin_ns + lag_ns, self.window.end_ns, step_ns=step_ns)

    def increase(self, name: str) -> Increase | None:
        """Return the increase of a counter over the window; None if no readings bracket the window or the counter fell."""
        return self.trace.increase(name, self.window.begin_ns, self.window.end_ns)

    def part(self, begin_ns: int, end_ns: int) -> Evidence:
        """Return the same evidence with the window cut to an interval."""
        return replace(self, window=replace(self.window, begin_ns=begin_ns, end_ns=end_ns))
