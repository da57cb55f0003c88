"""Iteration times as plot data: distribution and drift, raw and at one clock, of one or several windows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from annotate.evidence import Evidence, Timings, Values
from annotate.times.clock_sensitivity import NoFit, Sensitivity, sensitivity
from gpuwatch.report.thinned_series import all_rounded, plot_series, rounded

_SHOWN_PERCENT = (0.5, 99.5)  # values outside are counted but not drawn
_FIT = ("beta", "beta_low", "beta_high", "r", "explained_ratio")
_LEAST_BINS, _MOST_BINS, _EACH_BIN = 8, 160, 8


def times(evidence: Evidence) -> dict[str, Any] | None:
    """Return the distribution and drift, raw and at one clock; None without times.  ``refused`` is the reason for raw times alone."""
    timings = evidence.timings
    if timings is None or not timings.timed.any():
        return None
    timed = timings.timed
    at_ns, took_ms = timings.at_ns[timed], timings.took_s[timed] * 1e3
    fit = sensitivity(timings)
    drift, series = [plot_series("measured", at_ns, took_ms, evidence, shape="points")], {"measured": took_ms}
    out: dict[str, Any] = {"count": len(took_ms), "median_ms": rounded(float(np.median(took_ms)))}
    if isinstance(fit, NoFit) or timings.sm_clock_mhz is None:
        out["refused"] = fit.reason if isinstance(fit, NoFit) else "the iterations have no clock stamps."
    else:
        seen = _stamped(timings)
        mhz = float(np.clip(np.median(timings.sm_clock_mhz[seen]), fit.clock_low_mhz, fit.clock_high_mhz))
        name = f"at {mhz:.0f} MHz"
        series[name] = _at_clock(fit, timings, mhz)
        drift.append(plot_series(name, timings.at_ns[seen], series[name], evidence, shape="points"))
        out |= {"sensitivity": _fitted(fit, timings, mhz)}
    counted = histograms(series)
    beyond_count = counted[0]["beyond_count"]
    return {**out, "drift": drift, "histograms": counted, "percent": list(_SHOWN_PERCENT), "beyond_count": beyond_count}


def overlay(windows: Sequence[tuple[str, Evidence]]) -> dict[str, Any] | None:
    """Return the distributions of two or more windows, as measured and if possible at one clock; None for fewer windows."""
    timed = {name: piece.timings for name, piece in windows if piece.timings is not None and piece.timings.timed.any()}
    if len(timed) < 2:
        return None
    out: dict[str, Any] = {"percent": list(_SHOWN_PERCENT)}
    out |= {"measured": histograms({name: each.took_s[each.timed] * 1e3 for name, each in timed.items()})}
    fits = {name: sensitivity(each) for name, each in timed.items() if each.sm_clock_mhz is not None}
    good = {name: fit for name, fit in fits.items() if isinstance(fit, Sensitivity)}
    low_mhz = max((fit.clock_low_mhz for fit in good.values()), default=0.0)
    high_mhz = min((fit.clock_high_mhz for fit in good.values()), default=0.0)
    if len(good) < len(timed) or low_mhz > high_mhz:
        return out
    mhz = 0.5 * (low_mhz + high_mhz)  # as in the comparison of two runs
    corrected = histograms({name: _at_clock(fit, timed[name], mhz) for name, fit in good.items()})
    return out | {"clock_mhz": rounded(mhz), "corrected": corrected}


def histograms(series: Mapping[str, Values]) -> list[dict[str, Any]]:
    """Count each series over the same bins, with the highest bin scaled to 1 to make widths and places comparable."""
    ends = [np.percentile(values, _SHOWN_PERCENT) for values in series.values()]
    low, high = float(min(end[0] for end in ends)), float(max(end[1] for end in ends))
    bins = max(min(_MOST_BINS, *(len(values) // _EACH_BIN for values in series.values())), _LEAST_BINS)
    out = []
    for name, values in series.items():
        counts, edges = np.histogram(values, bins=bins, range=(low, high))
        shown = {
            "name": name,
            "x": all_rounded((edges[:-1] + edges[1:]) / 2),
            "y": all_rounded(counts / max(counts.max(), 1)),
            "counts": counts.tolist(),
            "beyond_count": len(values) - int(counts.sum()),
        }
        out.append(shown)
    return out


def _stamped(timings: Timings) -> np.ndarray[Any, np.dtype[np.bool_]]:
    clock = timings.sm_clock_mhz
    return timings.timed if clock is None else timings.timed & np.isfinite(clock) & (clock > 0)


def _at_clock(fit: Sensitivity, timings: Timings, mhz: float) -> Values:
    """Return the corrected times, in milliseconds, of the iterations with a stamped clock."""
    seen = _stamped(timings)
    clock = timings.sm_clock_mhz if timings.sm_clock_mhz is not None else np.full(len(seen), mhz)
    corrected_ms: Values = timings.took_s[seen] * fit.factor(clock[seen], mhz) * 1e3
    return corrected_ms


def _fitted(fit: Sensitivity, timings: Timings, mhz: float) -> dict[str, Any]:
    corrected = fit.at_clock(timings, mhz)
    out: dict[str, Any] = {name: rounded(getattr(fit, name)) for name in _FIT}
    out |= {"clock_mhz": rounded(mhz), "cold_count": fit.cold_count}
    if isinstance(corrected, NoFit):
        return out | {"refused": corrected.reason}
    scaled = {"time_ms": corrected.time_s, "low_ms": corrected.low_s, "high_ms": corrected.high_s, "raw_ms": corrected.raw_s}
    return out | {name: None if value is None else rounded(value * 1e3) for name, value in scaled.items()}
