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
    """Everything that is known of one window on one GPU.

    ``declared`` holds facts only the measured process knows, by the names of ``annotate.declared``: they may worsen a verdict,
    never improve it.  ``absence`` says why there is no telemetry, where there is none.  ``baseline`` is what the window is
    compared with, where it is.  ``other_work``, like ``timings``, is declared; ``pauses`` only name causes.
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
        """Return whether it holds a signal, ``process_list``, ``dense_power``, ``timings``, ``baseline``, ``host.X``, ``declared.X``."""
        match name.partition("."):
            case ("host", _, fact):
                return getattr(self.host, fact) is not None
            case ("declared", _, fact):
                return self.declared.get(fact) is not None
            case ("device", _, fact):
                return self.device is not None and getattr(self.device, fact) is not None
            case ("process_list", _, _):
                return bool(self.trace.process_lists)
            case ("dense_power", _, _):
                return len(self.trace.dense_power) > 0
            case ("timings", "", _):
                return self.timings is not None
            case ("timings", _, _):
                clock = self.timings.sm_clock_mhz if self.timings else None
                return clock is not None and bool(np.isfinite(clock).any())
            case ("baseline", _, _):
                return self.baseline is not None
            case _:
                return self.trace.observes(name)

    def within(self, name: str, *, step_ns: int = 10_000_000) -> Column:
        """A signal on a regular grid over the window, shortened by one refresh at its start.

        A gauge shows what was true up to one refresh ago, so the window's first refresh still speaks of the time before.
        """
        lag_ns = min(self.trace.refresh_of_ns(name), self.window.length_ns // 2)
        return self.trace.within(name, self.window.begin_ns + lag_ns, self.window.end_ns, step_ns=step_ns)

    def increase(self, name: str) -> Increase | None:
        """Return how much a counter rose over the window; None where no readings bracket it."""
        return self.trace.increase(name, self.window.begin_ns, self.window.end_ns)

    def part(self, begin_ns: int, end_ns: int) -> Evidence:
        """The same evidence for a part of the window."""
        return replace(self, window=replace(self.window, begin_ns=begin_ns, end_ns=end_ns))
