"""Noise that remembers: what clocks and times do on a GPU that a power cap regulates."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from annotate.evidence import Values


def wandering(shocks: Values, phi: float, before: float = 0.0) -> Values:
    """An AR(1) series: each value is its shock and ``phi`` of the value before it; the import of scipy.signal takes a second."""
    series = accumulate(shocks.tolist(), lambda last, shock: shock + phi * last, initial=before)
    return np.fromiter(series, np.float64, len(shocks) + 1)[1:]
