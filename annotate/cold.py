"""Which iterations were cold: named, so that they can be trimmed in the open, with both figures shown.

Cold means slower because something was not yet there: the first calls of all, and the first after a pause.  An iteration
that is slow for any other reason is not cold, and a fast one never is.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt

from annotate.evidence import Times, Values
from annotate.statistics import centre, spread

BoolMask = npt.NDArray[np.bool_]


def slowness_floor_s(took_s: Values) -> float:
    """The least standard deviation to believe: events are quantised at half a microsecond, and a thousandth is nothing."""
    return max(0.25e-6, 1e-3 * centre(took_s))


def cold_prefix_count(
    took_s: Values,
    *,
    slow_sd: Annotated[float, "so far above the median no wander of the clock comes: 10 robust sd"] = 10.0,
    slow_ratio: Annotated[float, "or so many times the median, where the spread itself is wide"] = 1.3,
    usual_sd: Annotated[float, "what counts as settled"] = 3.0,
    run_count: Annotated[int, "so many settled calls in a row end the prefix: a later stall does not prolong it"] = 5,
    share_ratio: Annotated[float, "a longer prefix is a drift, not a cold start, and there is nothing steady to keep"] = 0.5,
) -> int:
    """How many of the first iterations are cold: from the first, which must be far slower, to the first run of usual ones.

    Only the slow side counts: a card that starts fast and is capped later has no cold prefix.
    """
    if len(took_s) < 2:
        return 0
    usual_s = centre(took_s)
    noise_s = spread(took_s, floor=slowness_floor_s(took_s))
    if took_s[0] <= min(usual_s + slow_sd * noise_s, slow_ratio * usual_s):
        return 0
    settled = took_s <= usual_s + usual_sd * noise_s
    # Near the end a run cannot be whole; what is there must do.
    padded = np.concatenate([settled, np.ones(run_count - 1, np.bool_)])
    runs = np.lib.stride_tricks.sliding_window_view(padded, run_count).all(axis=1)
    starts = np.flatnonzero(runs)
    count = int(starts[0]) if len(starts) else len(took_s)
    if count > share_ratio * len(took_s) or took_s[count - 1] > took_s[0]:
        return 0
    return count


def cold(
    at_ns: Times,
    took_s: Values,
    *,
    pause_ratio: Annotated[float, "a gap so many times the usual step from one iteration to the next is a pause"] = 10.0,
    pause_s: Annotated[float, "shorter gaps are a hiccup of the host, in which nothing cools"] = 2e-3,
    slow_sd: Annotated[float, "a first iteration after a pause is cold only if it is slow: 5 robust sd"] = 5.0,
    run_count: Annotated[int, "after a pause at most so many iterations are looked at"] = 5,
) -> BoolMask:
    """True for the cold prefix, and for the slow iterations that follow a pause without a usual one between."""
    count = len(took_s)
    mask = np.zeros(count, np.bool_)
    if count < 2:
        return mask
    mask[: cold_prefix_count(took_s)] = True
    steps_s = np.diff(at_ns) / 1e9
    gaps_s = steps_s - took_s[:-1]
    pauses = np.flatnonzero(gaps_s > max(pause_s, pause_ratio * centre(steps_s))) + 1
    slow = took_s > centre(took_s) + slow_sd * spread(took_s, floor=slowness_floor_s(took_s))
    follows = np.zeros(count, np.bool_)
    follows[pauses] = True
    for _ in range(run_count):
        # An iteration is cold if it is slow and comes first after a pause, or right after a cold one that did.
        follows &= slow
        mask |= follows
        follows = np.concatenate([[False], follows[:-1]])
    return mask
