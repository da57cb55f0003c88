"""Series as plot data: seconds since the window began, thinned to the points that a screen shows."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from annotate.evidence import Evidence, Times, Values

_MOST_LINE_POINTS = 4000  # two for each pixel of a wide screen
_MOST_POINTS = 1500  # each is an element of the page: sixteen thousand took a second to draw


def plot_series(name: str, at_ns: Times, values: Values, evidence: Evidence, *, shape: str = "line") -> dict[str, Any]:
    """Return the data of one plotted series."""
    places = thinned(values, most=_MOST_POINTS) if shape == "points" else thinned(values)
    return {
        "name": name,
        "shape": shape,
        "count": len(values),
        "x": [seconds_since(evidence, each) for each in at_ns[places].tolist()],
        "y": [rounded(each) if np.isfinite(each) else None for each in values[places].tolist()],
    }


def thinned(values: Values, *, most: int = _MOST_LINE_POINTS) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the indices to draw: all, or the lowest and highest of each interval."""
    if len(values) <= most:
        return np.arange(len(values))
    filled = np.nan_to_num(values, nan=float(np.nanmedian(values)) if np.isfinite(values).any() else 0.0)
    edges = np.linspace(0, len(values), most // 2 + 1).astype(np.int64)
    picked = {0, len(values) - 1, *np.flatnonzero(np.isnan(values))[: most // 4].tolist()}
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = filled[begin:end]
        picked |= {begin + int(part.argmin()), begin + int(part.argmax())}
    return np.array(sorted(picked), np.int64)


def seconds_since(evidence: Evidence, at_ns: int) -> float:
    """Return the seconds since the window began, to the microsecond."""
    return round((at_ns - evidence.window.begin_ns) / 1e9, 6)


def rounded(value: float) -> float:
    """Round to seven digits, so that another processor's last bits do not change the page."""
    return float(f"{value:.7g}")


def all_rounded(values: Iterable[float]) -> list[float]:
    return [rounded(float(each)) for each in values]
