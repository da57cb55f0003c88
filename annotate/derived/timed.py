"""The loop whose calls were timed: how long they took, what lay between them, how busy the GPU was meanwhile."""

from dataclasses import dataclass

import numpy as np

from annotate.declared import amount, text
from annotate.derived.presence import presences
from annotate.evidence import Evidence, Timings, Values
from annotate.evidence.asked import kept
from annotate.stats.robust import centre
from annotate.times.durations import inside

# 15 kinds of kernel on an H200 left every SM free for every stamp, and its threads began within 0.13 µs in 95 of 100.
SEEN_RATIO, SPREAD_S = 0.99, 0.25e-6

SEVERAL = "the process used several GPUs, and which one was timed is not known"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loop:
    """A window's timed entries, each of ``calls_count`` calls, seen as one loop.

    ``call_s`` is the median time of a call, ``timed_s`` all entries together, ``span_s`` from the first one's begin to the
    last one's end.  ``utilization_ratio`` is the driver's over that span, None if it is too short, or if entries lie so
    exactly end to end that nobody can have stamped them: then nothing tells what lay between them.
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
        """The median time from an entry's end to the next one's begin: negative where the host, which stamps, ran ahead."""
        return centre(_gaps_s(self.timings)) if self.entries_count > 1 else 0.0

    @property
    def entry_s(self) -> float:
        """Return what one reading of the timer spans."""
        return self.call_s * self.calls_count

    @property
    def round_s(self) -> float:
        """From the begin of one entry to the begin of the next, on average."""
        return self.span_s / self.entries_count

    @property
    def batch_count(self) -> int:
        """Return how many calls make a reading of a fifth of a millisecond, beside which launches and ticks are small."""
        return int(min(1000, max(20, 200e-6 / self.call_s)))

    @property
    def call_busy_s(self) -> float | None:
        """Return for how long the GPU worked in the time a call had, on average."""
        return None if self.utilization_ratio is None else self.utilization_ratio * self.round_s / self.calls_count


@kept
def loop(evidence: Evidence) -> Loop | None:
    """None if no time was taken in the window, or one that cannot be."""
    timings = inside(evidence)
    if not len(timings.at_ns) or timings.calls_count < 1:
        return None
    calls_count = timings.calls_count
    # What is shorter than a cycle of any clock, or longer than any window, is no time.
    if timings.took_s.min() < 1e-12 or timings.took_s.max() * calls_count > 1e7:
        return None
    begin_ns, end_ns = int(timings.at_ns[0]), int(timings.at_ns[-1] + timings.took_s[-1] * calls_count * 1e9)
    gaps_s = _gaps_s(timings)[:999]
    # Times handed over without beginnings are laid end to end, to the nanosecond.
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
    """Return whether the calls may have run on another GPU than the one this evidence is of; None if it is not declared."""
    uuids = {uuid.strip() for uuid in (text(evidence.declared, "cuda_uuids") or "").split(",")} - {""}
    if not uuids or evidence.device is None:
        return None
    return not uuids <= {evidence.device.uuid, evidence.device.parent_uuid}


def untimed_because(evidence: Evidence, utilization_ratio: float) -> str | None:
    """Why a GPU so busy may honestly have done more than was timed; None where nothing explains it."""
    if elsewhere(evidence):
        return SEVERAL
    # The driver shows 1-2 % for a process that does nothing.
    if any(not presence.own and (presence.most_ratio or 0.0) > 0.02 for presence in presences(evidence)):
        return "a neighbour was computing, which explains why the GPU was busy"
    other = evidence.other_work
    if other is not None and float(other.took_s.sum()) > 0.5 * utilization_ratio * evidence.window.length_s:
        return "the harness declared the GPU's work between its times"
    told_ratio = amount(evidence.declared, "busy_ratio")
    if told_ratio is not None:
        return "the harness counted the GPU's work between its times" if told_ratio > utilization_ratio / 2 else None
    if amount(evidence.declared, "flush_bytes") or text(evidence.declared, "cache") == "cold":
        return "the cache was flushed between timed calls, and how long that took was not declared"
    return None


def beside(evidence: Evidence, *, seen_ratio: float = SEEN_RATIO, spread_s: float = SPREAD_S) -> bool | None:
    """Return whether the stamps around the iterations met other work of this process on the SMs; None if there were none."""
    seen, spread = amount(evidence.declared, "stamp_seen_ratio"), amount(evidence.declared, "stamp_spread_s")
    if seen is None and spread is None:
        return None
    return (seen is not None and seen < seen_ratio) or (spread is not None and spread > spread_s)


def _utilization_ratio(evidence: Evidence, begin_ns: int, end_ns: int) -> float | None:
    refresh_ns = evidence.trace.refresh_of_ns("utilization_ratio")
    # What the gauge shows at first is of the time before, and what it shows after the end is no longer of the loop.
    begin_ns, end_ns = begin_ns + refresh_ns, min(end_ns, evidence.window.end_ns)
    # The driver refreshes utilisation about every 200 ms: over less than a second its mean says little to the point.
    if end_ns - begin_ns < 1e9 - refresh_ns:
        return None
    return evidence.trace.within("utilization_ratio", begin_ns, end_ns).mean()
