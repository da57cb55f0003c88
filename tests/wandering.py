"""Autocorrelated noise, like that of clocks and times on a GPU under a power cap."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from annotate.evidence import Values


def wandering(shocks: Values, phi: float, before: float = 0.0) -> Values:
    """Return an AR(1) series: each value is its shock plus ``phi`` times the previous value."""
    series = accumulate(shocks.tolist(), lambda last, shock: shock + phi * last, initial=before)
    return np.fromiter(series, np.float64, len(shocks) + 1)[1:]
