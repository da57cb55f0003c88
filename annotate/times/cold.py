"""Detection of cold iterations, which callers trim and report.

A cold iteration is slow because something was not ready: in the first calls, and in the first calls after a pause.  An
iteration that is slow for another reason is not cold.
"""

from typing import Annotated

import numpy as np
import numpy.typing as npt

from annotate.evidence import Times, Values
from annotate.stats.robust import centre, spread

BoolMask = npt.NDArray[np.bool_]

# The start is compared with the calls right after it: on a card that is capped a second later, the whole run is slower.
_REFERENCE_COUNTS = (20, 200, 2000)


def noise_floor_s(took_s: Values, usual_s: float | None = None) -> float:
    """Return the least plausible standard deviation: the larger of half a tick of events and a thousandth of the usual time."""
    return max(0.25e-6, 1e-3 * (centre(took_s) if usual_s is None else usual_s))


def cold_prefix_count(
    took_s: Values,
    *,
    slow_sd: Annotated[float, "least distance of the first call above the following ones; the clock varies less"] = 10.0,
    slow_ratio: Annotated[float, "least ratio of the first call to the following ones; a cap alone changes it by less"] = 1.08,
    far_ratio: Annotated[float, "sufficient ratio of the first call, if the following ones scatter widely"] = 1.3,
    usual_sd: Annotated[float, "a call within this distance of the usual time is settled"] = 3.0,
    run_count: Annotated[int, "number of settled calls in a row that ends the prefix"] = 5,
    share_ratio: Annotated[float, "a longer prefix is a drift: too few steady calls are left"] = 0.5,
) -> int:
    """Count the cold iterations at the start: from the first call, which must be far slower, to the first usual ones.

    A card that starts fast and is capped later has no cold prefix.
    """
    if len(took_s) < 2:
        return 0
    counts = (*_REFERENCE_COUNTS, len(took_s))
    # If the first call is far slower than less than half of the calls, it is not far slower than their median.
    is_slower = took_s[0] > min(slow_ratio, far_ratio) * took_s
    if all(2 * int(is_slower[:count].sum()) < min(count, len(took_s)) for count in counts):
        return 0
    usual_s, place = min((centre(took_s[:count]), place) for place, count in enumerate(counts))
    if took_s[0] <= min(slow_ratio, far_ratio) * usual_s:
        return 0
    reference_s = took_s[: counts[place]]
    noise_s = spread(reference_s, floor=noise_floor_s(reference_s, usual_s), middle=usual_s)
    if took_s[0] <= min(max(usual_s + slow_sd * noise_s, slow_ratio * usual_s), far_ratio * usual_s):
        return 0
    settled = took_s <= min(usual_s + usual_sd * noise_s, far_ratio * usual_s)
    # Near the end, fewer settled calls are enough.
    padded = np.concatenate([settled, np.ones(run_count - 1, np.bool_)])
    runs = np.convolve(padded, np.ones(run_count), mode="valid") >= run_count
    count = int(np.argmax(runs)) if runs.any() else len(took_s)
    after_s = took_s[count : count + _REFERENCE_COUNTS[0]]
    if count > share_ratio * len(took_s) or centre(after_s) > slow_ratio * usual_s:
        return 0
    decays = took_s[count - 1] <= slow_ratio * took_s[0]
    return count if decays else 0


def cold(
    at_ns: Times,
    took_s: Values,
    *,
    pause_ratio: Annotated[float, "a gap of more than this many usual steps between iterations is a pause"] = 10.0,
    pause_s: Annotated[float, "shorter gaps are delays of the host, in which nothing cools"] = 2e-3,
    slow_sd: Annotated[float, "robust standard deviations above the usual time that make a call after a pause cold"] = 5.0,
    run_count: Annotated[int, "largest number of cold calls after a pause"] = 5,
) -> BoolMask:
    """Return a mask: True for the cold prefix, and for up to ``run_count`` slow iterations right after each pause."""
    count = len(took_s)
    mask = np.zeros(count, np.bool_)
    if count < 2:
        return mask
    mask[: cold_prefix_count(took_s)] = True
    steps_s = np.diff(at_ns) / 1e9
    pauses = np.flatnonzero(steps_s - took_s[:-1] > max(pause_s, pause_ratio * centre(steps_s))) + 1
    if not len(pauses):
        return mask
    usual_s = centre(took_s)
    slow_s = usual_s + slow_sd * spread(took_s, floor=noise_floor_s(took_s, usual_s), middle=usual_s)
    follows = pauses
    for _ in range(run_count):
        # A slow iteration is cold if it comes right after the pause or right after another cold one.
        follows = follows[follows < count]
        follows = follows[took_s[follows] > slow_s]
        mask[follows] = True
        follows = follows + 1
    return mask
