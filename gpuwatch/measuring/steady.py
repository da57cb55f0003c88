"""The steady state of the work: times and true clock of the last interval compared with the interval before it.

The benchmark does not read power, because the reading would disturb the measured process.  Power changes times only at the
cap, and there the clock shows the change.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from annotate.evidence import Timings, Values

_BLOCKS_COUNT = 5  # parts of an interval, to estimate its noise


def power_limited(
    timings: Timings,
    clock_max_mhz: float | None,
    *,
    limit_ratio: Annotated[float, "uncapped kernels ran at 0.996-1.000 of the maximum, capped ones at 0.65-0.93"] = 0.97,
    recent_s: Annotated[float, "the cap takes up to 0.1 s to engage"] = 0.5,
) -> bool | None:
    """Return True if the true clock under load is more than 3 % below the device's maximum; None for an unknown clock.

    Power, a lock or heat can be the reason.
    """
    if timings.sm_clock_mhz is None or clock_max_mhz is None:
        return None
    recent = timings.sm_clock_mhz[timings.at_ns >= timings.at_ns[-1] - int(recent_s * 1e9)]
    seen = recent[np.isfinite(recent)]
    return bool(np.median(seen) < limit_ratio * clock_max_mhz) if len(seen) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The least time to warm up and to measure."""

    interval_s: float  # compared with the previous interval
    warmup_s: float
    measure_s: float


# Under the cap the power controller swings with a period of about 1 s, and engages within the first 0.1 s.
QUICK = Patience(interval_s=0.5, warmup_s=1.0, measure_s=1.0)
CAPPED = Patience(interval_s=1.0, warmup_s=3.0, measure_s=3.0)


def is_steady(
    timings: Timings,
    patience: Patience,
    *,
    limit_ratio: Annotated[float, "medians of a second of one capped GEMM scatter by 0.1 %, so pairs by 0.14 %"] = 0.005,
    noise_sd: Annotated[float, "noisier work may differ by this many of its standard errors"] = 2.0,
    noise_most_ratio: Annotated[float, "the largest difference allowed for noisy work"] = 0.05,
) -> bool:
    """Return True if the last two intervals agree, after enough warm-up."""
    if not len(timings.at_ns):
        return False
    call_s = float(np.median(timings.took_s)) * timings.calls_count
    # At least three entries per interval, even slow ones.
    interval_s = max(patience.interval_s, 3.0 * call_s)
    end_ns = int(timings.at_ns[-1]) + int(timings.took_s[-1] * timings.calls_count * 1e9)
    if end_ns - int(timings.at_ns[0]) < 1e9 * max(patience.warmup_s, 2.0 * interval_s):
        return False
    now = timings.at_ns >= end_ns - int(interval_s * 1e9)
    before = ~now & (timings.at_ns >= end_ns - int(2.0 * interval_s * 1e9))
    signals: list[Values] = [timings.took_s] if timings.sm_clock_mhz is None else [timings.took_s, timings.sm_clock_mhz]
    return all(_agree(signal[before], signal[now], limit_ratio, noise_sd, noise_most_ratio) for signal in signals)


def _agree(before: Values, now: Values, limit_ratio: float, noise_sd: float, noise_most_ratio: float) -> bool:
    before, now = before[np.isfinite(before)], now[np.isfinite(now)]
    if len(before) < 2 or len(now) < 2:
        return not len(before) and not len(now)  # a missing signal counts as unchanged
    middle, middle_before = float(np.median(now)), float(np.median(before))
    if not middle or not middle_before:
        return middle == middle_before  # a timer too coarse for the work: a ratio to zero is undefined
    change_ratio = abs(middle / middle_before - 1.0)
    blocks = [
        float(np.median(block)) for part in (before, now) for block in np.array_split(part, min(_BLOCKS_COUNT, len(part)))
    ]
    # Differences of adjacent blocks, so that a slope does not count as noise.
    noise = float(np.std(np.diff(blocks))) / 2**0.5 / middle
    allowed_ratio = min(noise_most_ratio, noise_sd * noise * (2.0 / _BLOCKS_COUNT) ** 0.5)
    return bool(change_ratio <= max(limit_ratio, allowed_ratio))
