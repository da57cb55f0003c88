"""Times as they come in, chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from annotate.evidence import Timings


def joined(pieces: Sequence[Timings]) -> Timings:
    """One series of chunks of entries of the same number of calls."""
    clocks = [np.full(len(piece.at_ns), np.nan) if piece.sm_clock_mhz is None else piece.sm_clock_mhz for piece in pieces]
    clock = np.concatenate(clocks) if any(np.isfinite(one).any() for one in clocks) else None
    at_ns = np.concatenate([piece.at_ns for piece in pieces])
    return Timings(at_ns, np.concatenate([piece.took_s for piece in pieces]), clock, pieces[0].calls_count)


def span_s(timings: Timings) -> float:
    """From the beginning of the first entry to the end of the last."""
    return float(timings.at_ns[-1] - timings.at_ns[0]) / 1e9 + float(timings.took_s[-1]) * timings.calls_count


def mean_clock_mhz(timings: Timings) -> float | None:
    """The true mean clock while entries ran; None where none was stamped."""
    if timings.sm_clock_mhz is None:
        return None
    seen = np.isfinite(timings.sm_clock_mhz)
    if not seen.any():
        return None
    return float(np.average(timings.sm_clock_mhz[seen], weights=timings.took_s[seen]))
