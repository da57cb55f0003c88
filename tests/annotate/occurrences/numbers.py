"""Windows with hazards that show in the times of iterations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from annotate.evidence import Evidence, Timings, Values
from tests.annotate.builders import BEGIN_NS, evidence


def timed(took_s: Values, *, clock_mhz: Values | None = None, gap_s: float = 5e-6) -> Timings:
    begins_s = np.concatenate([[0.0], np.cumsum(took_s + gap_s)[:-1]])
    return Timings(BEGIN_NS + np.round(begins_s * 1e9).astype(np.int64), took_s, clock_mhz)


def even(count: int = 6000, took_s: float = 1e-3, noise_ratio: float = 0.002, seed: int = 1) -> Values:
    noise = np.random.default_rng(seed).standard_normal(count)
    return np.asarray(took_s * (1.0 + noise_ratio * noise), np.float64)


def window(took_s: Values) -> Evidence:
    """Return a quiet window, 0.1 s longer than the sum of these times."""
    timings = timed(took_s)
    return evidence(length_s=float(took_s.sum()) + 0.1, timings=timings)


def scenes() -> Iterator[Evidence]:
    turns = np.arange(3000) // 100 % 2
    yield window(even(40, noise_ratio=0.4, took_s=20e-3))  # few, and widely scattered
    yield window(even(3))
    slices = even()
    slices[::700] += 2.3e-3
    yield window(slices)
    yield window(even(3000) * np.where(turns, 1.1, 1.0))
    wander = 1.0 + 0.03 * np.sin(np.arange(6000) / 160.0)
    yield window(even() * wander)
    late = even()
    late[::40] = 63e-3
    yield window(late)
    cold = even(300)
    cold[:3] = 0.5, 0.02, 0.004
    yield window(cold)
    compiled = even()
    compiled[2000] = 0.2
    yield window(compiled)
