"""Times as they come in, chunk by chunk."""

from __future__ import annotations

import numpy as np

from annotate.evidence import Timings


def span_s(timings: Timings) -> float:
    """From the beginning of the first entry to the end of the last."""
    return float(timings.at_ns[-1] - timings.at_ns[0]) / 1e9 + float(timings.took_s[-1]) * timings.calls_count


def mean_clock_mhz(timings: Timings) -> float | None:
    """The true mean clock while entries ran; None where none was stamped."""
    if timings.sm_clock_mhz is None:
        return None
    seen = np.isfinite(timings.sm_clock_mhz) & (timings.took_s > 0)  # what took nothing says nothing of the mean
    if not seen.any():
        return None
    return float(np.average(timings.sm_clock_mhz[seen], weights=timings.took_s[seen]))
