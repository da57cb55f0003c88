"""The export's columns of physics and median times, from a window's evidence and verdict on one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from annotate.budget import Number
from annotate.declared import amount
from annotate.derived.busy_share import busy_witnesses
from annotate.derived.sm_clock import measured, working
from annotate.evidence import Column, Evidence
from annotate.times.durations import inside

_CANARY = ("canary_clock_mhz", "canary_copy_bytes_count")


def physics(evidence: Evidence) -> dict[str, float | int | None]:
    """Return the columns computed from the evidence: means and extremes over the window, or None for unobserved values."""
    true, busy, window = measured(evidence), busy_witnesses(evidence), evidence.window
    energy = evidence.increase("energy_j")
    # The counter is read slightly outside the edges, so its mean power is scaled to the window's length.
    power_w = energy.amount / energy.span_ns * 1e9 if energy else None
    memory_c = evidence.within("memory_temperature_c").observed.values
    return {
        **_spread("sm_clock", "mhz", working(evidence)),
        "true_clock_mhz": true.clock_mhz if true else None,
        **_spread("mem_clock", "mhz", evidence.within("mem_clock_mhz")),
        **_spread("power", "w", evidence.within("power_w")),
        **_spread("temperature", "c", evidence.within("temperature_c")),
        "mem_temperature_max_c": float(memory_c.max()) if len(memory_c) else None,
        "energy_j": None if power_w is None else power_w * window.length_s,
        "busy_ratio": busy[0].ratio if busy else None,
        **{name: amount(evidence.declared, name) for name in _CANARY},
        "times_count": len(inside(evidence).at_ns) if evidence.timings is not None else None,
    }


def stated_number(verdict: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the median, the median's 95 % interval within this window, and the median at one clock; None if unknown."""
    numbers = {each.get("number"): each for each in (verdict.get("budget") or {}).get("numbers") or ()}
    median, at_clock = (numbers.get(name) or {} for name in (Number.MEDIAN, Number.MEDIAN_AT_CLOCK))
    median_s: float | None = median.get("value")
    within_ratio: float | None = (median.get("repeatability") or {}).get("within_ratio")
    half_s = None if median_s is None or within_ratio is None else median_s * within_ratio
    return {
        "time_median_s": median_s,
        "time_low_s": None if median_s is None or half_s is None else median_s - half_s,
        "time_high_s": None if median_s is None or half_s is None else median_s + half_s,
        "time_at_clock_s": at_clock.get("value"),
        "time_clock_mhz": at_clock.get("clock_mhz"),
    }


def _spread(name: str, unit: str, column: Column) -> dict[str, float | int | None]:
    known = column.observed.values
    kinds = {"mean": column.mean(), "min": known.min() if len(known) else None, "max": known.max() if len(known) else None}
    return {f"{name}_{kind}_{unit}": None if value is None else float(np.float64(value)) for kind, value in kinds.items()}
