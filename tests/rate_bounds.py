"""Bounds of a counted rate, for the campaign, the recordings and the benchmarks."""

from __future__ import annotations

from scipy.special import betaincinv  # not scipy.stats, because its import takes each worker of the suite a second


def clopper_pearson(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact bounds of a rate with ``hits`` in ``trials``, or (0, 1) without trials."""
    tail = (1.0 - confidence) / 2.0
    low = betaincinv(hits, trials - hits + 1, tail) if hits else 0.0
    high = betaincinv(hits + 1, trials - hits, 1.0 - tail) if hits < trials else 1.0
    return float(low), float(high)
