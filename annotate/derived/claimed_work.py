"""Numbers that untrusted code claims, and the witnessed busy time and energy that bound them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from annotate.declared import amount
from annotate.derived.busy_share import REST_RATIO, BusyShare, foreign_most_ratio, gauge_share
from annotate.derived.idle_gaps import SAMPLE_NS
from annotate.derived.roofline import arithmetic_bound, traffic_bound
from annotate.derived.time_accounts import BOOKS_ERROR_RATIO, GAUGE_ERROR_RATIO, SHORTEST_NS
from annotate.derived.whole_program import FACT as WHOLE_PROGRAM
from annotate.evidence import Evidence
from annotate.stats.robust import centre

FACT = "untrusted"
_LATE_NS, _TAIL_NS = 60_000_000, 240_000_000  # after the end: beyond the power record's lag, until the daemon's last read
_WORK_RATIO = 0.25  # part of the range from rest to the power of the work, as for whole programs


@dataclass(frozen=True, slots=True)
class ClaimedCalls:
    """A claimed number of calls and their total time; ``together_s`` is None if only the count is claimed."""

    count: int
    together_s: float | None

    @property
    def call_s(self) -> float:
        return (self.together_s or 0.0) / self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessedWork:
    """The witnessed work of a window: bounds of the busy time that the calls can have had, and the energy above rest."""

    least_s: float
    most_s: float
    energy_j: float | None
    power_ratio: float | None  # mean power above rest over the busy time, as a share of the range from rest to limit


def is_untrusted(evidence: Evidence) -> bool:
    """Return whether the caller stated that the measured code may cheat."""
    return evidence.declared.get(FACT) is True


def list_claims(evidence: Evidence) -> tuple[ClaimedCalls, ...]:
    """Return the declared claim (none for a count below 1), else claims of the mean and the median of any times."""
    count = amount(evidence.declared, "claimed_calls_count")
    if count is not None:
        call_s = amount(evidence.declared, "claimed_call_s")
        return (ClaimedCalls(int(count), None if call_s is None else int(count) * call_s),) if count >= 1.0 else ()
    return tuple(_timed_claims(evidence))


def _timed_claims(evidence: Evidence) -> Iterator[ClaimedCalls]:
    if (timings := evidence.timings) is None or not len(took_s := timings.took_s[timings.timed]):
        return
    count = len(took_s) * timings.calls_count
    yield ClaimedCalls(count, float(took_s.sum()) * timings.calls_count)
    yield ClaimedCalls(count, centre(took_s) * count)


def is_nonsense(evidence: Evidence) -> bool:
    """Return whether a claimed number is invalid, or a time was claimed without a count."""
    declared = evidence.declared
    names = [name for name in ("claimed_calls_count", "claimed_call_s") if declared.get(name) is not None]
    if not names:
        return False
    return not all(amount(declared, name) for name in names) or names == ["claimed_call_s"] or not list_claims(evidence)


def witnessed_work(evidence: Evidence, shares: Sequence[BusyShare], idle_w: float | None) -> WitnessedWork | None:
    """Return the witnessed work; None below a second or without utilisation."""
    window, busy = evidence.window, gauge_share(shares)
    if busy is None or window.length_ns < SHORTEST_NS:
        return None
    least_ratio = busy.least_ratio - foreign_most_ratio(evidence) - BOOKS_ERROR_RATIO
    # A whole program may have worked for up to a power sample beyond each edge of its judged part.
    edges_s = 2e-9 * SAMPLE_NS if evidence.declared.get(WHOLE_PROGRAM) is True else 0.0
    most_s = min(1.0, busy.most_ratio + GAUGE_ERROR_RATIO) * window.length_s + edges_s
    energy_j, power_ratio = _above_rest(evidence, idle_w, busy.ratio * window.length_s)
    return WitnessedWork(
        least_s=max(0.0, least_ratio) * window.length_s, most_s=most_s, energy_j=energy_j, power_ratio=power_ratio
    )


def _above_rest(evidence: Evidence, idle_w: float | None, busy_s: float) -> tuple[float | None, float | None]:
    """Return the energy above rest, and its power over the busy time as a share of the range from rest to limit, if known.

    Without an observed idle power, rest is the usual share of the limit.
    """
    rise, limit_w = evidence.increase("energy_j"), evidence.device.power_limit_w if evidence.device is not None else None
    if rise is None or limit_w is None or 2 * rise.span_ns > 3 * evidence.window.length_ns:
        return None, None
    rest_w = idle_w if idle_w is not None else REST_RATIO * limit_w
    energy_j = max(0.0, rise.amount - rest_w * rise.span_ns / 1e9)
    return energy_j, energy_j / (busy_s * (limit_w - rest_w)) if busy_s > 0.0 and limit_w > rest_w else None


def least_call_s(evidence: Evidence) -> float | None:
    """Return the least time of one call of the stated work on this GPU, or None if unknown or zero."""
    clock_mhz = evidence.device.sm_clock_max_mhz if evidence.device is not None else None
    bounds = (arithmetic_bound(evidence, clock_mhz), traffic_bound(evidence))
    return max((bound.least_s for bound in bounds if bound is not None), default=0.0) or None


def works_after_end(evidence: Evidence, idle_w: float | None) -> bool:
    """Return whether the power record shows work after the window's end, when its calls should be done."""
    window, dense = evidence.window, evidence.trace.dense_power
    begin, end, after, until = np.searchsorted(
        dense.at_ns, (window.begin_ns, window.end_ns, window.end_ns + _LATE_NS, window.end_ns + _TAIL_NS)
    )
    if idle_w is None or end - begin < 2 or until - after < 2:
        return False
    work_w = float(np.quantile(dense.values[begin:end], 0.9))
    return float(np.median(dense.values[after:until])) > idle_w + _WORK_RATIO * max(0.0, work_w - idle_w)
