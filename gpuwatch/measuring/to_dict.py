"""A measurement as plain data: every figure under its name, None where it is not known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from annotate.times.clock_sensitivity import NoFit

if TYPE_CHECKING:
    from gpuwatch.measuring.attempt import Attempt
    from gpuwatch.measuring.measurement import Measurement

FIGURES = (
    "mean_s", "median_s", "trimmed_mean_s", "min_s", "p95_s", "p99_s", "sd_s", "cv_ratio", "iqr_s", "count", "calls_count",
    "effective_count", "clock_mhz", "flops_per_s", "flops_peak_ratio", "bytes_per_s", "bytes_peak_ratio",
)  # fmt: skip
_FACTS = (
    "label", "timer", "cache", "timer_overhead_s", "issue_s", "host_bound", "first_call_s", "call_flops_count", "call_bytes",
    "dtype", "output_unchanged",
)  # fmt: skip


def plain(measured: Measurement) -> dict[str, Any]:
    from gpuwatch.measuring.measurement import SCHEMA

    device, match = measured.device, measured.match
    return {
        "schema": SCHEMA,
        **{name: finite(getattr(measured, name)) for name in _FACTS},
        **{name: finite(getattr(measured, name)) for name in FIGURES},
        "ci_s": None if measured.ci_s is None else list(measured.ci_s),
        "clock_sensitivity": _sensitivity(measured),
        "device": None if device is None else {"uuid": device.uuid, "name": device.name},
        "reference": None if match is None else {"error_ratio": finite(match.error_ratio), "limit_ratio": match.limit_ratio},
        "run": measured.run,
        "status": measured.verdict.status.value,
        "why": measured.verdict.why,
        "verdicts": [verdict.to_dict() for verdict in measured.verdicts],
        "attempt": measured.attempts.index(measured.attempt),
        "attempts": [_attempt(one) for one in measured.attempts],
    }


def _attempt(one: Attempt) -> dict[str, Any]:
    took_s = one.timings.took_s
    return {
        "run": one.run,
        "status": one.verdict.status.value,
        "median_s": float(np.median(took_s)),
        "ci_s": None if one.interval is None else [one.interval.low, one.interval.high],
        "took_s": one.took_s,
        "stopped": one.stopped.value,
        "busy_ratio": one.busy_ratio,
        "power_limited": one.power_limited,
        "warmup": {"count": one.warmup.count, "took_s": one.warmup.took_s, "steady": one.warmup.steady},
    }


def _sensitivity(measured: Measurement) -> dict[str, Any]:
    found = measured.clock_sensitivity
    if isinstance(found, NoFit):
        return {"refused": found.reason}
    return {
        "beta": found.beta,
        "beta_low": found.beta_low,
        "beta_high": found.beta_high,
        "r": found.r,
        "explained_ratio": found.explained_ratio,
        "clock_low_mhz": found.clock_low_mhz,
        "clock_high_mhz": found.clock_high_mhz,
        "cold_count": found.cold_count,
        "count": found.count,
    }


def finite(value: Any) -> Any:
    """JSON has no infinity: what is not finite is not known."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
