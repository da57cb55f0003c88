"""The clock correction on held-out kernels of an H200: fitted on one window, applied to the next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from annotate.evidence import Timings
from annotate.stats.robust import centre
from annotate.times.clock_sensitivity import Sensitivity, sensitivity
from tests.hardware.wander import block_medians

HELD_OUT = Path(__file__).parents[1] / "traces/h200-held-out.npz"


def windows() -> Iterator[tuple[str, Timings, Timings]]:
    with np.load(HELD_OUT) as arrays:
        names = sorted({name.partition("/")[0] for name in arrays})
        for name in names:
            first, second = (
                Timings(
                    1_000_000_000_000 + np.cumsum(arrays[f"{name}/{number}/at_us"].astype(np.int64)) * 1000,
                    arrays[f"{name}/{number}/took_ns"] / 1e9,
                    arrays[f"{name}/{number}/mhz"] / 16.0,
                )
                for number in (0, 1)
            )
            yield name, first, second


def scatter_ratio(
    at_ns: np.ndarray[tuple[int], np.dtype[np.int64]], took_s: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> float:
    """Return the relative scatter of the medians of 0.1 s."""
    blocks = block_medians(at_ns, took_s, 100_000_000)
    return float(blocks.std(ddof=1) / blocks.mean())


@pytest.mark.parametrize(("name", "first", "second"), list(windows()), ids=lambda each: each if isinstance(each, str) else "")
def test_corrected_medians_of_100_ms_scatter_by_0_2_percent(name: str, first: Timings, second: Timings) -> None:
    fit = sensitivity(first)
    assert isinstance(fit, Sensitivity)
    assert second.sm_clock_mhz is not None
    raw = scatter_ratio(second.at_ns, second.took_s)
    corrected = scatter_ratio(second.at_ns, second.took_s * fit.factor(second.sm_clock_mhz, centre(second.sm_clock_mhz)))
    assert corrected <= 0.002
    assert corrected < raw / 3
