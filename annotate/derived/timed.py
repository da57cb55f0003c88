"""The loop of timed calls: their times, the gaps between them, and utilisation meanwhile."""

from dataclasses import dataclass

import numpy as np

from annotate.declared import amount, text
from annotate.derived.presence import presences
from annotate.evidence import Evidence, Timings, Values
from annotate.evidence.asked import kept
from annotate.stats.robust import centre
from annotate.times.durations import inside

# For 15 kinds of kernel on an H200, every stamp reached every SM, and 95 % of the stamps spread over 0.13 µs or less.
SEEN_RATIO, SPREAD_S = 0.99, 0.25e-6

SEVERAL = "the process used several GPUs, and which one was timed is not known"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loop:
    """A window's timed entries, each of ``calls_count`` calls, as one loop.

    ``call_s`` is the median time of a call, and ``timed_s`` the sum of all entries.  ``span_s`` is the time from the start of
    the first entry to the end of the last.  ``utilization_ratio`` is the driver's over that span: None if mostly unobserved,
    for a short span, and for entries laid end to end without start times, whose gaps are unknown.
    """

    timings: Timings
    call_s: float
    timed_s: float
    span_s: float
    end_ns: int
    utilization_ratio: float | None

    @property
    def entries_count(self) -> int:
        return len(self.timings.at_ns)

    @property
    def calls_count(self) -> int:
        return self.timings.calls_count

    def gap_s(self) -> float:
        """Return the median gap between entries; negative if the host, which takes the start times, ran ahead of the GPU."""
        return centre(_gaps_s(self.timings)) if self.entries_count > 1 else 0.0

    @property
    def entry_s(self) -> float:
        """Return the median time of one reading of the timer."""
        return self.call_s * self.calls_count

    @property
    def round_s(self) -> float:
        """Return the mean time from the start of one entry to the start of the next."""
        return self.span_s / self.entries_count

    @property
    def batch_count(self) -> int:
        """Return the calls (20 to 1000) in a reading of 0.2 ms, long enough to make launches and ticks negligible."""
        return int(min(1000, max(20, 200e-6 / self.call_s)))

    @property
    def call_busy_s(self) -> float | None:
        """Return the mean busy time of the GPU per call; None without utilisation."""
        return None if self.utilization_ratio is None else self.utilization_ratio * self.round_s / self.calls_count


@kept
def loop(evidence: Evidence) -> Loop | None:
    """Return the loop of the window's times, or None without times or if any time is impossible."""
    timings = inside(evidence)
    if not len(timings.at_ns) or timings.calls_count < 1:
        return None
    calls_count = timings.calls_count
    # A time below a cycle of any clock or above the length of any window is invalid.
    if timings.took_s.min() < 1e-12 or timings.took_s.max() * calls_count > 1e7:
        return None
    begin_ns, end_ns = int(timings.at_ns[0]), int(timings.at_ns[-1] + timings.took_s[-1] * calls_count * 1e9)
    gaps_s = _gaps_s(timings)[:999]
    # Times declared without start times are laid end to end, to the nanosecond.
    laid_out = len(gaps_s) > 0 and bool((np.abs(gaps_s) < 5e-9).all())
    return Loop(
        timings=timings,
        call_s=centre(timings.took_s),
        timed_s=float(timings.took_s.sum()) * calls_count,
        span_s=max((end_ns - begin_ns) / 1e9, float(timings.took_s[-1]) * calls_count),
        end_ns=end_ns,
        utilization_ratio=None if laid_out else _utilization_ratio(evidence, begin_ns, end_ns),
    )


def _gaps_s(timings: Timings) -> Values:
    return np.asarray(np.diff(timings.at_ns) / 1e9 - timings.took_s[:-1] * timings.calls_count)


@kept
def elsewhere(evidence: Evidence) -> bool | None:
    """Return whether the calls may have run on a GPU other than the observed one, or None if unknown."""
    uuids = {uuid.strip() for uuid in (text(evidence.declared, "cuda_uuids") or "").split(",")} - {""}
    if not uuids or evidence.device is None:
        return None
    return not uuids <= {evidence.device.uuid, evidence.device.parent_uuid}


def untimed_because(evidence: Evidence, utilization_ratio: float) -> str | None:
    """Return an honest reason why the GPU was busier than the times show, or None if there is none."""
    if elsewhere(evidence):
        return SEVERAL
    # The driver shows 1-2 % for a process that does nothing.
    if any(not presence.own and (presence.most_ratio or 0.0) > 0.02 for presence in presences(evidence)):
        return "another process was computing, which explains why the GPU was busy"
    other = evidence.other_work
    if other is not None and float(other.took_s.sum()) > 0.5 * utilization_ratio * evidence.window.length_s:
        return "the harness declared the GPU's work between its times"
    told_ratio = amount(evidence.declared, "busy_ratio")
    if told_ratio is not None:
        return "the harness counted the GPU's work between its times" if told_ratio > utilization_ratio / 2 else None
    if amount(evidence.declared, "flush_bytes") or text(evidence.declared, "cache") == "cold":
        return "the cache was flushed between timed calls, and the duration of the flushes was not declared"
    return None


def beside(evidence: Evidence, *, seen_ratio: float = SEEN_RATIO, spread_s: float = SPREAD_S) -> bool | None:
    """Return whether the stamps around the iterations met other work of this process on the SMs; None without such facts."""
    seen, spread = amount(evidence.declared, "stamp_seen_ratio"), amount(evidence.declared, "stamp_spread_s")
    if seen is None and spread is None:
        return None
    return (seen is not None and seen < seen_ratio) or (spread is not None and spread > spread_s)


def _utilization_ratio(evidence: Evidence, begin_ns: int, end_ns: int) -> float | None:
    refresh_ns = evidence.trace.refresh_of_ns("utilization_ratio")
    # The first refresh covers the time before the loop, and readings after the end no longer cover the loop.
    begin_ns, end_ns = begin_ns + refresh_ns, min(end_ns, evidence.window.end_ns)
    # The driver refreshes utilisation about every 200 ms: over less than a second, the mean is too coarse.
    if end_ns - begin_ns < 1e9 - refresh_ns:
        return None
    return evidence.trace.within("utilization_ratio", begin_ns, end_ns).mean()
