"""Recorded kernels of an H200, split between two variants: pairs like those of an interleaved run of identical work.

The true difference of such variants is zero, or a chosen value by lengthening one variant's times.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from annotate.evidence import Timings, Values

TRACES = Path(__file__).parents[2] / "traces"
# Recordings of single iterations without stamps, with the number of iterations per block of about 3 ms (at least one).
SCENARIOS = {
    "clean_gemm4k": 15,
    "clean_gemm2k": 100,
    "power_cap_gemm16k": 1,
    "cold_start_gemm4k": 15,
    "clean_copy1g": 6,
}


def dealt(scenario: str, change: float, count: int, *, seconds: float = 3.0, seed: int = 0) -> Iterator[Values]:
    """Yield log ratios of ``count`` interleaved runs of at most ``seconds``, each from a random place of the recording.

    The runs are not independent, because all use one recording of a few seconds.
    """
    with np.load(TRACES / "scenarios.npz") as archive:
        took_ms = archive[f"timing_{scenario}"][:, 1]
    rng = np.random.default_rng(seed)
    calls_count = SCENARIOS[scenario]
    whole_count = min(len(took_ms), int(seconds * 1e3 / np.median(took_ms)))
    for _ in range(count):
        first = int(rng.integers(0, len(took_ms) - whole_count + 1))
        quads = whole_count // (4 * calls_count)
        blocks = took_ms[first : first + quads * 4 * calls_count].reshape(quads, 4, calls_count).mean(axis=2)
        signs = np.where(rng.random(quads) < 0.5, 1.0, -1.0)  # ABBA or BAAB
        logs = np.log([blocks[:, 1] / blocks[:, 0], blocks[:, 2] / blocks[:, 3]]) * signs
        yield np.asarray(logs.T.ravel() + np.log1p(change))


def halves(kernel: str) -> tuple[Timings, Timings]:
    """Return a stamped recording, without its first iteration, as two successive runs."""
    with np.load(TRACES / f"natural_{kernel}.npz") as archive:
        at_ns = np.asarray(archive["t_s"] * 1e9, np.int64)
        took_s, mhz = (np.asarray(archive[name], np.float64) for name in ("ms", "mhz"))
    middle = len(took_s) // 2
    first, second = (Timings(at_ns[part], took_s[part] / 1e3, mhz[part]) for part in (slice(1, middle), slice(middle, None)))
    return first, second
