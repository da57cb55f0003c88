"""Bounds of a rate that was counted, for the campaign, the recordings and the benchmarks."""

from __future__ import annotations

from scipy.stats import binomtest


def clopper_pearson(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact bounds of a rate seen ``hits`` times in ``trials``; (0, 1) for no trials."""
    if trials == 0:
        return 0.0, 1.0
    bounds = binomtest(hits, trials).proportion_ci(confidence, method="exact")
    return float(bounds.low), float(bounds.high)
