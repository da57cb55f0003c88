"""Series as plot data: seconds since the window's start, thinned to the resolution of a screen."""

from collections.abc import Iterable
from math import isfinite
from typing import Any

import numpy as np

from annotate.evidence import Evidence, Times, Values

_MOST_LINE_POINTS = 4000  # two for each pixel of a wide screen
_MOST_POINTS = 1500  # each is an element of the page, which slows the browser


def plot_series(name: str, at_ns: Times, values: Values, evidence: Evidence, *, shape: str = "line") -> dict[str, Any]:
    places = thinned(values, most=_MOST_POINTS) if shape == "points" else thinned(values)
    return {
        "name": name,
        "shape": shape,
        "count": len(values),
        "x": (np.rint((at_ns[places] - evidence.window.begin_ns) / 1e3) / 1e6).tolist(),  # rounded as by seconds_since
        "y": [rounded(each) if isfinite(each) else None for each in values[places].tolist()],
    }


def thinned(values: Values, *, most: int = _MOST_LINE_POINTS) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the indices to draw: all, or both ends, the first missing values, and each interval's lowest and highest value."""
    if len(values) <= most:
        return np.arange(len(values))
    filled = np.nan_to_num(values, nan=float(np.nanmedian(values)) if np.isfinite(values).any() else 0.0)
    edges = np.linspace(0, len(values), most // 2 + 1).astype(np.int64)
    begins = edges[:-1]
    # One row per interval; a shorter one repeats its last value, and argmin and argmax pick the first of equal values.
    places = np.minimum(begins[:, None] + np.arange(np.diff(edges).max()), edges[1:, None] - 1)
    rows = filled[places]
    gaps = np.flatnonzero(np.isnan(values))[: most // 4]
    return np.unique(np.concatenate([[0, len(values) - 1], gaps, begins + rows.argmin(axis=1), begins + rows.argmax(axis=1)]))


def seconds_since(evidence: Evidence, at_ns: int) -> float:
    """Return the seconds since the window began, to the microsecond."""
    return round((at_ns - evidence.window.begin_ns) / 1e9, 6)


def rounded(value: float) -> float:
    """Round to seven digits: different last bits of another machine then do not change the page."""
    return float(f"{value:.7g}")


def all_rounded(values: Iterable[float]) -> list[float]:
    return [rounded(float(each)) for each in values]
