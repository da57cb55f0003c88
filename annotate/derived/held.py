"""The time for which a clock event reason held, by violation time, nanosecond counters or sampled bits.

Violation time advances continuously but is read only at a window's edges.  A nanosecond counter misses nothing but steps
once per refresh, so its readings lag by up to a refresh.  Sampled bits lag as much.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from annotate.evidence import EMPTY, SIGNALS, Column, Evidence, Lane, Reason, Times, grid
from annotate.evidence.asked import kept

# Over fully capped half seconds, an H200's violation time read 0.97 to 1.03 of the time: an error of 15 ms, rounded up.
_VIOLATION_ERROR_NS = 20_000_000
_MOSTLY_RATIO = 0.5
_FREE_RATIO = 0.02  # the specification: a window capped for at most this share counts as uncapped


@dataclass(frozen=True, slots=True)
class Held:
    """The share of an interval for which a reason held: best estimate, lower and upper bound.  ``by`` names the witness."""

    ratio: float
    least_ratio: float
    most_ratio: float
    by: str

    @staticmethod
    def of(amount: float, least: float, most: float, span: float, by: str) -> Held:
        """Return the shares for these amounts of time and their span, all in one unit."""
        least_ratio, most_ratio = (float(min(1.0, max(0.0, part / span))) for part in (least, most))
        return Held(float(min(most_ratio, max(least_ratio, amount / span))), least_ratio, most_ratio, by)

    @property
    def error_ratio(self) -> float:
        return (self.most_ratio - self.least_ratio) / 2


@kept
def power_cap(evidence: Evidence) -> Held | None:
    """Return the share of the window in which the power cap held the clocks down, or None if not observed."""
    return (
        by_violation(evidence, "power_violation_ns")
        or by_counter(evidence, "power_cap_ns")
        or by_bits(evidence, Reason.SW_POWER_CAP)
    )


def longest(witnesses: Iterable[Held | None]) -> Held | None:
    """Return the witness of the longest time; None without witnesses."""
    return max((held for held in witnesses if held is not None), key=lambda held: (held.ratio, held.most_ratio), default=None)


def may_be_capped(evidence: Evidence) -> bool:
    """Return whether the power cap held for more than 2 % of the window; True if not observed."""
    held = power_cap(evidence)
    return held is None or held.ratio > _FREE_RATIO


def is_mostly_capped(evidence: Evidence) -> bool:
    """Return whether the power cap certainly held for half of the window or more, so that its controller changed the clock."""
    held = power_cap(evidence)
    return held is not None and held.least_ratio >= _MOSTLY_RATIO


@kept
def by_violation(evidence: Evidence, name: str) -> Held | None:
    """Return the share by continuous violation time; None without a reading near each edge or after a reset."""
    begin_ns, end_ns = evidence.window.begin_ns, evidence.window.end_ns
    seen = evidence.trace.column(name).observed
    at_ns, values = seen.at_ns, seen.values
    if len(at_ns) < 2 or end_ns <= begin_ns:
        return None
    first, last = (int(np.argmin(np.abs(at_ns - edge_ns))) for edge_ns in (begin_ns, end_ns))
    off_ns = abs(int(at_ns[first]) - begin_ns) + abs(int(at_ns[last]) - end_ns)
    amount_ns, span_ns = float(values[last] - values[first]), int(at_ns[last] - at_ns[first])
    if last <= first or amount_ns < 0 or off_ns > max(_VIOLATION_ERROR_NS, span_ns // 20):
        return None
    # A counter that did not change over the whole window proves that the reason never held.
    covers = at_ns[first] <= begin_ns and at_ns[last] >= end_ns
    error_ns = 0 if covers and not amount_ns else _VIOLATION_ERROR_NS + off_ns
    return Held.of(amount_ns, amount_ns - error_ns, amount_ns + error_ns, span_ns, "violation time")


@kept
def by_counter(evidence: Evidence, name: str) -> Held | None:
    """Return the share by a nanosecond counter that steps once per refresh, or None if no readings bracket the window.

    Increases after the window's first refresh happened inside.  Increases up to a refresh after the end may have.
    """
    trace, window = evidence.trace, evidence.window
    rise = evidence.increase(name)
    if rise is None or window.length_ns <= 0:
        return None
    refresh_ns = trace.refresh_of_ns(name)
    seen = trace.column(name).observed
    if SIGNALS.get(name, Lane.FAST) == Lane.FAST:
        start, stop = trace.at(name, np.array([window.begin_ns + refresh_ns, window.end_ns], np.int64))
    else:  # read seconds apart: a value before the window's first refresh does not date the increase
        start, stop = _first(seen, window.begin_ns + refresh_ns), _last(seen, window.end_ns)
    bottom, top = _last(seen, window.begin_ns), _first(seen, window.end_ns + refresh_ns)
    least_ns = stop - start if not np.isnan(stop - start) and window.length_ns > refresh_ns else 0.0
    most_ns = top - bottom if not np.isnan(top - bottom) else rise.amount + rise.error_ns
    return Held.of(rise.ratio * window.length_ns, least_ns, max(least_ns, most_ns), window.length_ns, "counter")


@kept
def by_bits(evidence: Evidence, bits: Reason) -> Held | None:
    """Return the share by sampled event reasons; None in a window below three refreshes or if mostly unobserved.

    Return None too if no sample has the bits and the GPU cannot report all of them.
    """
    times, masks = reasons(evidence)
    if not len(times):
        return None
    hit_ns = float(((masks & int(bits)) != 0).sum()) / len(masks) * evidence.window.length_ns
    if not hit_ns and not reports(evidence, bits):
        return None
    refresh_ns = evidence.trace.refresh_of_ns("event_reasons_mask")
    # Samples miss at most the time between two refreshes.
    return Held.of(hit_ns, hit_ns - refresh_ns, hit_ns + refresh_ns if hit_ns else 0.0, evidence.window.length_ns, "samples")


def reports(evidence: Evidence, bits: Reason) -> bool:
    """Return whether the GPU can report all of these reasons; True if its supported reasons are not known."""
    known_mask = evidence.device.supported_reasons_mask if evidence.device else None
    return known_mask is None or int(bits) & ~known_mask == 0


@kept
def reasons(evidence: Evidence) -> tuple[Times, Times]:
    """Return grid times over the window and the event reasons at each, as integers.

    Both are empty in a window below three refreshes or if the reasons are mostly unobserved.
    """
    column = evidence.within("event_reasons_mask")
    known = column.observed
    if evidence.window.length_ns < 3 * evidence.trace.refresh_of_ns("event_reasons_mask") or 2 * len(known) < len(column):
        known = EMPTY
    return known.at_ns, known.values.astype(np.int64)


@kept
def began_ns(evidence: Evidence, name: str) -> int | None:
    """Return the time at which a nanosecond counter first ran in the window, from its first step, or None without a step."""
    window = evidence.window
    seen = evidence.trace.column(name).observed
    base = _last(seen, window.begin_ns)
    # Without an observed base (NaN) no value counts as later.
    later = seen.where((seen.at_ns > window.begin_ns) & (seen.at_ns <= window.end_ns) & (seen.values > base))
    if not len(later):
        return None
    return int(min(max(later.at_ns[0] - (later.values[0] - base), window.begin_ns), window.end_ns))


def _last(seen: Column, until_ns: int) -> float:
    index = int(np.searchsorted(seen.at_ns, until_ns, side="right")) - 1
    return float(seen.values[index]) if index >= 0 else float("nan")


def _first(seen: Column, from_ns: int) -> float:
    index = int(np.searchsorted(seen.at_ns, from_ns, side="left"))
    return float(seen.values[index]) if index < len(seen) else float("nan")


@kept
def running(evidence: Evidence, name: str, bits: Reason) -> Column:
    """Return 1.0 while a reason held and 0.0 otherwise: per refresh by its counter, else per grid time by sampled bits.

    A counter shows each stretch up to a refresh late.  Return an empty column if neither was observed.
    """
    trace, window = evidence.trace, evidence.window
    refresh_ns = trace.refresh_of_ns(name)
    edges_ns = grid(window.begin_ns, window.end_ns + 1, refresh_ns)
    step_ns = int(edges_ns[1] - edges_ns[0]) if len(edges_ns) > 1 else refresh_ns
    grown_ns = np.diff(trace.at(name, edges_ns))
    if len(grown_ns) and (grown_ns >= 0).all():  # neither unobserved anywhere nor set back
        return Column(edges_ns[:-1], (grown_ns > 0.02 * step_ns).astype(np.float64))
    times, masks = reasons(evidence)
    return Column(times, ((masks & int(bits)) != 0).astype(np.float64))
