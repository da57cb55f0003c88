"""The benefit of the clock's correction on one run: the scatter of short estimates of a kernel, raw and at one clock.

β is fitted on the first half of the run and applied to the second, so that no data is corrected with its own fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from annotate.evidence import Times, Timings, Values
from annotate.stats.robust import centre
from annotate.times.clock_sensitivity import NoFit, Sensitivity, sensitivity, warm_and_stamped


@dataclass(frozen=True, slots=True)
class Scatter:
    """The standard deviation of the medians of blocks of length ``block_s``, as a ratio of the medians' mean."""

    block_s: float
    blocks_count: int
    raw_ratio: float
    corrected_ratio: float | None  # None: the correction was refused, so ``raw_ratio`` counts


@dataclass(frozen=True, slots=True)
class Wander:
    """The result for one run: the whole run's time and clocks, the first half's fit, the second half's noise."""

    kernel: str
    count: int
    cold_count: int
    time_s: float
    clock_low_mhz: float  # 5 and 95 % quantiles over the warm iterations
    clock_high_mhz: float
    fit: Sensitivity | NoFit
    cv_raw_ratio: float
    cv_corrected_ratio: float | None
    scatters: tuple[Scatter, ...]


def wander(kernel: str, timings: Timings, *, blocks_s: Sequence[float] = (0.1, 0.3)) -> Wander:
    """Return the result for a run whose iterations have clocks; cold iterations are counted and left out.

    Raises ValueError: when fewer than four warm iterations have a clock.
    """
    warm, cold_count = warm_and_stamped(timings)
    if warm is None or warm.sm_clock_mhz is None or len(warm.took_s) < 4:
        found_count = 0 if warm is None or warm.sm_clock_mhz is None else len(warm.took_s)
        raise ValueError(f"expected at least four warm iterations with their clocks, found {found_count}; measure longer")
    half = len(warm.took_s) // 2
    fit = sensitivity(part(warm, 0, half))
    at_ns, raw_s = warm.at_ns[half:], warm.took_s[half:]
    clock_mhz = warm.sm_clock_mhz
    corrected_s = None
    if isinstance(fit, Sensitivity):
        corrected_s = raw_s * fit.factor(clock_mhz[half:], centre(clock_mhz[:half]))
    low_mhz, high_mhz = np.quantile(clock_mhz, [0.05, 0.95])
    return Wander(
        kernel=kernel,
        count=len(timings.took_s),
        cold_count=cold_count,
        time_s=centre(warm.took_s),
        clock_low_mhz=float(low_mhz),
        clock_high_mhz=float(high_mhz),
        fit=fit,
        cv_raw_ratio=_cv(raw_s),
        cv_corrected_ratio=None if corrected_s is None else _cv(corrected_s),
        scatters=tuple(_scatter(at_ns, raw_s, corrected_s, block_s) for block_s in blocks_s),
    )


def part(timings: Timings, first: int, end: int) -> Timings:
    """Return the iterations from one index up to another."""
    cut = slice(first, end)
    clock_mhz = timings.sm_clock_mhz
    return replace(
        timings,
        at_ns=timings.at_ns[cut],
        took_s=timings.took_s[cut],
        sm_clock_mhz=None if clock_mhz is None else clock_mhz[cut],
    )


def _scatter(at_ns: Times, raw_s: Values, corrected_s: Values | None, block_s: float) -> Scatter:
    raw = block_medians(at_ns, raw_s, round(block_s * 1e9))
    corrected = None if corrected_s is None else block_medians(at_ns, corrected_s, round(block_s * 1e9))
    return Scatter(block_s, len(raw), _cv(raw), None if corrected is None else _cv(corrected))


def _cv(values: Values) -> float:
    return float(values.std(ddof=1) / values.mean()) if len(values) > 1 else float("nan")


def block_medians(at_ns: Times, took_s: Values, width_ns: int) -> Values:
    """Return the medians of consecutive blocks of equal width; leave out empty blocks and an incomplete last block."""
    # The last iteration counts as one median step long.
    end_ns = int(at_ns[-1]) + int(np.median(np.diff(at_ns)))
    edges_ns = np.arange(at_ns[0], end_ns + 1, width_ns)
    bounds = pairwise(np.searchsorted(at_ns, edges_ns))
    return np.array([np.median(took_s[low:high]) for low, high in bounds if high > low])
