"""A measurement as plain data: every figure under its name, None where it is not known."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from annotate.times.clock_sensitivity import NoFit
from gpuwatch.measuring.attempt import Attempt
from gpuwatch.measuring.figures import RateFigures

SCHEMA = 1
_FIGURES = (
    "label", "timer", "cache", "timer_overhead_s", "issue_s", "host_bound", "first_call_s", "call_flops_count", "call_bytes",
    "dtype", "output_unchanged", "mean_s", "median_s", "trimmed_mean_s", "min_s", "p95_s", "p99_s", "sd_s", "cv_ratio", "iqr_s",
    "count", "calls_count", "effective_count", "clock_mhz", "flops_per_s", "flops_peak_ratio", "bytes_per_s", "bytes_peak_ratio",
)  # fmt: skip
_SENSITIVITY = (
    "beta", "beta_low", "beta_high", "r", "explained_ratio", "clock_low_mhz", "clock_high_mhz", "cold_count", "count",
)  # fmt: skip


def to_dict(measured: RateFigures) -> dict[str, Any]:
    """Return the data that ``docs/schemas/measurement.json`` describes."""
    device, match, fit = measured.device, measured.match, measured.clock_sensitivity
    return {
        "schema": SCHEMA,
        **{name: finite(getattr(measured, name)) for name in _FIGURES},
        "ci_s": None if measured.ci_s is None else list(measured.ci_s),
        "clock_sensitivity": (
            {"refused": fit.reason} if isinstance(fit, NoFit) else {name: getattr(fit, name) for name in _SENSITIVITY}
        ),
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
    return {
        "run": one.run,
        "status": one.verdict.status.value,
        "median_s": float(np.median(one.timings.took_s)),
        "ci_s": None if one.interval is None else [one.interval.low, one.interval.high],
        "took_s": one.took_s,
        "stopped": one.stopped.value,
        "busy_ratio": one.busy_ratio,
        "power_limited": one.power_limited,
        "warmup": asdict(one.warmup),
    }


def finite(value: Any) -> Any:
    """Return None for a number that is not finite: JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
