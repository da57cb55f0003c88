"""Events that separate two states: the power cap engaged or let go, or a pause ended before the window."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from annotate.derived.held import began_ns, by_violation, power_cap, running
from annotate.evidence import Evidence, Reason, Values
from annotate.evidence.asked import kept
from annotate.stats.robust import centre

# The spacing of the driver's dense power record, which is also its lag.
_DENSE_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class OnsetTurn:
    """A change of the power cap: a description, its time, and whether it changed more than once."""

    what: str
    at_ns: int
    again: bool = False


def cap_turn(evidence: Evidence, *, capped_ratio: float, free_ratio: float) -> OnsetTurn | None:
    """Find the time at which the cap engaged or let go.

    Return None unless parts of the window certainly differ, or one part certainly held both states.
    """
    window = evidence.window
    # The counter's error, a refresh at each edge, still separates capped from free over a second.
    # At most 300 parts: for a day these are 5 min long, and each may still be certainly mixed.
    count = min(max(1, window.length_ns // 1_000_000_000), 300)
    edges_ns = [window.begin_ns + window.length_ns * i // count for i in range(count + 1)]
    blocks = [power_cap(evidence.part(begin_ns, end_ns)) for begin_ns, end_ns in pairwise(edges_ns)]
    known = [held for held in (*blocks, power_cap(evidence)) if held is not None]
    loose = any(held.most_ratio < capped_ratio for held in known)
    bound = any(held.least_ratio > free_ratio for held in known)
    return _turn(evidence) if loose and bound else None


def _turn(evidence: Evidence) -> OnsetTurn:
    window = evidence.window
    on = running(evidence, "power_cap_ns", Reason.SW_POWER_CAP)
    states = _settled(on.values)
    turns = np.flatnonzero(np.diff(states)) + 1
    if not len(turns):
        # Each refresh holds some of both states.
        return OnsetTurn("the power cap came and went", window.begin_ns, again=True)
    at_ns = int(on.at_ns[turns[0]])
    if len(turns) > 1:
        return OnsetTurn("the power cap came and went, first", at_ns, again=True)
    if states[0]:
        return OnsetTurn("the power cap let go", at_ns)
    return OnsetTurn("the power cap engaged", engaged_ns(evidence, began_ns(evidence, "power_cap_ns") or at_ns))


def engaged_ns(evidence: Evidence, at_ns: int) -> int:
    """Return the time at which a cap that held to the window's end engaged: by violation time if it agrees with ``at_ns``.

    The counter steps once per refresh, which is too coarse in a window of a second.
    """
    held = by_violation(evidence, "power_violation_ns")
    if held is None:
        return at_ns
    exact_ns = evidence.window.end_ns - round(held.ratio * evidence.window.length_ns)
    near_ns = 3 * evidence.trace.refresh_of_ns("power_cap_ns") // 2
    return exact_ns if abs(exact_ns - at_ns) <= near_ns else at_ns


def _settled(values: Values) -> Values:
    """Remove runs of a single refresh: a counter read at jittering times skips a refresh now and then."""
    if len(values) < 3:
        return values
    inner = values[:-2] + values[1:-1] + values[2:] >= 2
    return np.concatenate([inner[:1], inner, inner[-1:]]).astype(np.float64)


@kept
def last_pause_end_ns(evidence: Evidence, *, within_s: float, longest_s: float) -> int | None:
    """Return the end of the last pause of ``longest_s`` or more within ``within_s`` before the window; None without one.

    A pause is dense power below half of the window's median.  Without that record it is a low refresh of a gauge:
    utilisation below 0.75 or power below 0.5 of the median.
    """
    window, trace = evidence.window, evidence.trace
    since_ns = window.begin_ns - int(within_s * 1e9)
    dense = trace.dense_power
    before = (dense.at_ns >= since_ns) & (dense.at_ns <= window.begin_ns + _DENSE_NS)
    during = (dense.at_ns > window.begin_ns + _DENSE_NS) & (dense.at_ns <= window.end_ns)
    if 2 * int(before.sum()) * _DENSE_NS >= within_s * 1e9 and during.any():
        low = dense.values[before] < 0.5 * centre(dense.values[during])
        return _last_run_end_ns(dense.at_ns[before], low, longest_s)
    ends_ns = [
        _gauge_pause_end_ns(evidence, name, since_ns, share) for name, share in (("utilization_ratio", 0.75), ("power_w", 0.5))
    ]
    return max((end_ns for end_ns in ends_ns if end_ns is not None and end_ns > since_ns), default=None)


def _gauge_pause_end_ns(evidence: Evidence, name: str, since_ns: int, share: float) -> int | None:
    window, refresh_ns = evidence.window, evidence.trace.refresh_of_ns(name)
    during = evidence.within(name).observed.values
    if not len(during):
        return None
    # The first refresh of the window still covers the time before.
    before = evidence.trace.within(name, since_ns, min(window.begin_ns + refresh_ns, window.end_ns))
    low = before.values < share * centre(during)
    # The gauge shows the refresh before: its lag must not make a long enough warm-up look too short.
    return min(window.begin_ns, int(before.at_ns[low][-1]) - refresh_ns) if low.any() else None


def _last_run_end_ns(at_ns: npt.NDArray[np.int64], low: npt.NDArray[np.bool_], longest_s: float) -> int | None:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], low.astype(np.int8), [0]])))
    for first, end in reversed(list(zip(edges[::2], edges[1::2], strict=True))):
        if (end - first) * _DENSE_NS >= longest_s * 1e9:
            return int(at_ns[end - 1])
    return None
