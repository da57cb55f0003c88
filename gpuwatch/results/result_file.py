"""The content of a result file in one form for all tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from annotate.evidence import Device, Evidence, Times, Timings, Values, WindowRecord

NO_TELEMETRY = "a result file holds no telemetry"
_LONGEST_S = 31 * 86_400.0  # the longest window


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResultSeries:
    """One measured series: its times in order of execution, and the figures in the file.

    ``took_s`` is empty if the file holds only figures.  An entry covers ``calls_count`` calls and holds the mean time
    of one.  ``figures`` are seconds by name: mean, median, min, max, stdev.
    """

    name: str
    took_s: Values = field(default_factory=lambda: np.empty(0))
    at_ns: Times | None = None  # start times on CLOCK_MONOTONIC; None if the file has none
    sm_clock_mhz: Values | None = None
    calls_count: int = 1
    figures: Mapping[str, float] = field(default_factory=dict)
    gpu: str | None = None  # the model's name in the file
    remarks: tuple[str, ...] = ()

    def timings(self, end_ns: int | None = None) -> Timings | None:
        """Return the times as iterations, without start times back to back until ``end_ns`` or from 0; None without times."""
        if not len(self.took_s):
            return None
        if self.at_ns is not None:
            return Timings(self.at_ns, self.took_s, self.sm_clock_mhz, self.calls_count).in_order()
        ends_ns = np.cumsum(np.where(self.took_s > 0.0, self.took_s, 0.0)) * self.calls_count * 1e9
        begins_ns = np.concatenate([[0.0], ends_ns[:-1]]) + (0 if end_ns is None else end_ns - float(ends_ns[-1]))
        return Timings(begins_ns.astype(np.int64), self.took_s, self.sm_clock_mhz, self.calls_count)

    def evidence(self) -> Evidence:
        """Return evidence with these times only, which proves nothing."""
        timings = self.timings()
        begin_ns, end_ns = 0, 0
        if timings is not None:
            begin_ns = int(timings.at_ns[0])
            end_ns = int((timings.at_ns + timings.took_s * timings.calls_count * 1e9).max())
        return Evidence(
            window=WindowRecord(begin_ns=begin_ns, end_ns=max(begin_ns, end_ns), label=self.name),
            device=None if self.gpu is None else Device(uuid=f"named in a file: {self.gpu}", name=self.gpu),
            timings=timings,
            absence=NO_TELEMETRY,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServedRequests:
    """The successful requests of a serving benchmark, in the order of their start times if the file has them."""

    ttft_s: Values  # time to the first token
    latency_s: Values
    at_ns: Times | None = None  # start times on CLOCK_MONOTONIC
    failed_count: int = 0
    duration_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResultFile:
    """A result file: its tool, its series or requests, and the list of missing facts."""

    tool: str
    series: tuple[ResultSeries, ...] = ()
    requests: ServedRequests | None = None
    cannot: tuple[str, ...] = ()
    wall_s: tuple[float, float] | None = None  # start and end in seconds since 1970, if the file has both
    written_s: float | None = None  # the stated time of writing
    pids: tuple[int, ...] = ()

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """Return first start and last end of the requests, else of the first series; None without start times."""
        asked = self.requests
        spans = [(each.at_ns, each.took_s * each.calls_count) for each in self.series]
        for at_ns, took_s in [(asked.at_ns, asked.latency_s)] if asked is not None else spans[:1]:
            if at_ns is not None and len(at_ns):
                return int(at_ns.min()), int((at_ns + took_s * 1e9).max())
        return None

    def only(self, name: str | None) -> ResultFile:
        """Return the file with the series of this name, else with those whose names contain it; for None, with all."""
        if name is None:
            return self
        exact = [each for each in self.series if each.name == name]
        return replace(self, series=tuple(exact or [each for each in self.series if name in each.name]))


def checked(series: ResultSeries) -> ResultSeries:
    """Return a series after a check.

    Raises ValueError: for arrays of different lengths, and for times of 31 days or more in total.
    """
    count = len(series.took_s)
    for name, values in (("start times", series.at_ns), ("clocks", series.sm_clock_mhz)):
        if values is not None and len(values) != count:
            raise ValueError(f"{series.name}: expected {count} {name}, one for each time, found {len(values)}")
    if count and not 0.0 <= float(np.nansum(np.abs(series.took_s))) * series.calls_count < _LONGEST_S:
        raise ValueError(f"{series.name}: expected times in seconds that sum up to at most 31 days, found more")
    return series
