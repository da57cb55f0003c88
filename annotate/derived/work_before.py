"""Utilisation lost against the same loop's load right before the window."""

from typing import Annotated

import numpy as np

from annotate.evidence import Column, Evidence, WindowRecord
from annotate.evidence.asked import kept
from annotate.stats.robust import centre

_LEAD_NS = 5_000_000_000  # a trace begins this long before its window
_ROUNDED_RATIO = 0.01  # rounding error of the difference of two whole percents
_PAGE_RATIO = 0.005  # rounding error of one whole percent


@kept
def lost_since_before_ratio(
    evidence: Evidence,
    *,
    least_s: Annotated[float, "the specification: a cycle of the controller, or five refreshes of utilisation"] = 1.0,
    even_ratio: Annotated[float, "refreshes of a loop that never waits differ by 1 to 2 percentage points"] = 0.02,
    periods: Annotated[float, "load that lasts this many periods of a rhythm holds at least one of its pauses"] = 1.5,
    shared_ratio: Annotated[float, "if fewer refreshes of the window reach the level, the loop was another one"] = 0.05,
) -> float:
    """Return the most that utilisation lost against the even level of the load right before the window; 0 without loss.

    Pauses that begin with the window were not part of the work before, even if they are regular.  The level counts only if
    refreshes of the window reach the level.  A loop that waits for each call never reaches the level of its warm-up.
    """
    trace, window = evidence.trace, evidence.window
    refresh_ns = trace.refresh_of_ns("utilization_ratio")
    inside = trace.within("utilization_ratio", window.begin_ns + 2 * refresh_ns, window.end_ns).observed
    before = _even_before(trace.within("utilization_ratio", window.begin_ns - _LEAD_NS, window.begin_ns), even_ratio)
    if not len(inside) or not len(before) or window.begin_ns - before.at_ns[0] < least_s * 1e9:
        return 0.0
    usual = centre(before.values)
    reached = inside.values >= usual - _ROUNDED_RATIO
    if usual <= 0.0 or not shared_ratio <= float(reached.mean()) < 1.0:
        return 0.0
    fallen = inside.values < usual - even_ratio
    if not fallen.any():
        return 0.0
    begins_ns = inside.at_ns[np.diff(fallen.astype(np.int8), prepend=0) > 0]
    runs_count, even_ns = len(begins_ns), window.begin_ns - int(before.at_ns[0])
    if runs_count > 1 and even_ns < periods * centre(np.diff(begins_ns)):
        return 0.0
    lost = np.where(fallen, usual - inside.values, 0.0)
    unread_ns = max(0, _spacing_ns(trace.column("utilization_ratio"), window) - refresh_ns)
    return min(1.0, float(lost.mean()) / usual + _PAGE_RATIO + runs_count * unread_ns / window.length_ns)


def _spacing_ns(pages: Column, window: WindowRecord) -> int:
    at_ns = pages.at_ns[(pages.at_ns >= window.begin_ns) & (pages.at_ns <= window.end_ns)]
    return int(centre(np.diff(at_ns))) if len(at_ns) > 1 else 0


def _even_before(shown: Column, even_ratio: float) -> Column:
    """Return the last readings before the window, all within ``even_ratio`` of the median of their last 0.5 s.

    Return an empty column if the last 0.5 s before the window were not observed.
    """
    known = shown.observed
    if not len(known) or known.at_ns[-1] < shown.at_ns[-1] - 500_000_000:
        return known.where(np.zeros(len(known), np.bool_))
    apart = np.abs(known.values - centre(known.values[-50:])) > even_ratio
    since = int(np.flatnonzero(apart)[-1]) + 1 if apart.any() else 0
    return known.where(np.arange(len(known)) >= since)
