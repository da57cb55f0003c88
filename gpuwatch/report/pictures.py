"""What a window's pictures show, as plain data: lanes over one time axis, the times' distribution and drift.

Amounts only: how it looks is the page's.  Long series are thinned to what a screen shows, lowest and highest kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np

from annotate.evidence import Column, Evidence, Ownership, Reason, Times, Timings, Values
from annotate.sensitivity import Refused, Sensitivity, sensitivity
from annotate.verdict import Finding, Verdict

_MARGIN_S = 2.0  # what of the time around the window is drawn
_SILENT_NS = 1_500_000_000  # longer without a census: nobody looked
_MOST_PROCESSES = 8
_WHOLE_RATIO = 0.98  # of the window: a finding that long is one of all of it


def timeline(verdict: Verdict, evidence: Evidence) -> dict[str, Any]:
    """Lanes from top to bottom, the findings' spans and the window's length: seconds since the window's beginning."""
    return {
        "length_s": _round(evidence.window.length_s),
        "lanes": [lane for lane in (_clock(evidence), _power(evidence), _temperature(evidence)) if lane["series"]]
        + [lane for lane in (_reasons(evidence), _processes(evidence)) if lane["spans"]]
        + [lane for lane in (_iterations(verdict, evidence),) if lane["series"]],
        "findings": [
            {"rule": each.rule, "severity": each.severity, "from_s": _since(evidence, a), "to_s": _since(evidence, b)}
            for each, (a, b) in spanned(verdict)
        ],
    }


def spanned(verdict: Verdict) -> list[tuple[Finding, tuple[int, int]]]:
    return [(finding, finding.span_ns) for finding in verdict.hazards if finding.span_ns is not None]


def spoilt(verdict: Verdict, timings: Timings) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which iterations overlap the span of a hazard that counts: no note, and not accepted.

    A span that is the whole window tells no iteration from another, and is left out.
    """
    whole_ns = _WHOLE_RATIO * (verdict.end_ns - verdict.begin_ns)
    begins_ns = timings.at_ns
    ends_ns = begins_ns + (np.nan_to_num(timings.took_s, nan=0.0, posinf=0.0, neginf=0.0) * 1e9).astype(np.int64)
    out = np.zeros(len(begins_ns), np.bool_)
    for finding, (begin_ns, end_ns) in spanned(verdict):
        if finding.severity != "note" and not finding.accepted and end_ns - begin_ns < whole_ns:
            out |= (begins_ns < end_ns) & (ends_ns > begin_ns)
    return out


def times(evidence: Evidence) -> dict[str, Any] | None:
    """The iterations' distribution and drift, raw and at one clock; None without times.  ``refused`` says why not corrected."""
    timings = evidence.timings
    if timings is None or not timings.timed.any():
        return None
    timed = timings.timed
    at_ns, took_s = timings.at_ns[timed], timings.took_s[timed]
    fit = sensitivity(timings)
    known = [_drawn("measured", at_ns, took_s * 1e3, evidence)]
    histograms = [_histogram("measured", took_s * 1e3)]
    out: dict[str, Any] = {"count": len(took_s), "median_ms": _round(float(np.median(took_s)) * 1e3)}
    if isinstance(fit, Refused) or timings.sm_clock_mhz is None:
        out["refused"] = fit.reason if isinstance(fit, Refused) else "nothing stamped the iterations."
    else:
        clock_mhz = timings.sm_clock_mhz[timed]
        seen = np.isfinite(clock_mhz) & (clock_mhz > 0)
        mhz = float(np.clip(np.median(clock_mhz[seen]), fit.clock_low_mhz, fit.clock_high_mhz))
        name = f"at {mhz:.0f} MHz"
        corrected_ms = took_s[seen] * fit.factor(clock_mhz[seen], mhz) * 1e3
        known.append(_drawn(name, at_ns[seen], corrected_ms, evidence))
        histograms.append(_histogram(name, corrected_ms))
        out |= {"sensitivity": _fitted(fit, timings, mhz)}
    return {**out, "drift": known, "histograms": histograms}


def _fitted(fit: Sensitivity, timings: Timings, mhz: float) -> dict[str, Any]:
    corrected = fit.at_clock(timings, mhz)
    out: dict[str, Any] = {
        "beta": _round(fit.beta), "beta_low": _round(fit.beta_low), "beta_high": _round(fit.beta_high), "r": _round(fit.r),
        "explained_ratio": _round(fit.explained_ratio), "clock_mhz": _round(mhz), "cold_count": fit.cold_count,
    }  # fmt: skip
    if isinstance(corrected, Refused):
        return out | {"refused": corrected.reason}
    scaled = {"time_ms": corrected.time_s, "low_ms": corrected.low_s, "high_ms": corrected.high_s, "raw_ms": corrected.raw_s}
    return out | {name: None if value is None else _round(value * 1e3) for name, value in scaled.items()}


def _clock(evidence: Evidence) -> dict[str, Any]:
    series = _of_signal(evidence, "sm_clock_mhz", "NVML", shape="step")
    timings = evidence.timings
    if timings is not None and timings.sm_clock_mhz is not None:
        seen = np.isfinite(timings.sm_clock_mhz)
        series += [_drawn("true, per iteration", timings.at_ns[seen], timings.sm_clock_mhz[seen], evidence, shape="points")]
    top = evidence.device.sm_clock_max_mhz if evidence.device else None
    return {"title": "SM clock", "unit": "MHz", "series": series, "limit": top, "limit_name": "maximum"}


def _power(evidence: Evidence) -> dict[str, Any]:
    dense = evidence.trace.dense_power
    series = [_column("every 20 ms", dense, evidence)] if len(dense) else []
    series = series or _of_signal(evidence, "power_w", "NVML", shape="step")
    limit_w = evidence.device.power_limit_w if evidence.device else None
    return {"title": "Power", "unit": "W", "series": series, "limit": limit_w, "limit_name": "limit"}


def _temperature(evidence: Evidence) -> dict[str, Any]:
    series = _of_signal(evidence, "temperature_c", "GPU", shape="step")
    series += _of_signal(evidence, "memory_temperature_c", "memory", shape="step")
    return {"title": "Temperature", "unit": "°C", "series": series, "limit": None, "limit_name": ""}


def _iterations(verdict: Verdict, evidence: Evidence) -> dict[str, Any]:
    timings, series = evidence.timings, []
    if timings is not None:
        bad = spoilt(verdict, timings)
        for name, kept in (("outside every finding", timings.timed & ~bad), ("inside a finding", timings.timed & bad)):
            if kept.any():
                series.append(_drawn(name, timings.at_ns[kept], timings.took_s[kept] * 1e3, evidence, shape="points"))
    return {"title": "Iterations", "unit": "ms", "series": series, "limit": None, "limit_name": ""}


def _reasons(evidence: Evidence) -> dict[str, Any]:
    column = _near(evidence.trace.column("event_reasons_mask"), evidence)
    spans = []
    if len(column):
        known = ~np.isnan(column.values)
        masks = np.where(known, column.values, 0).astype(np.int64)
        every = int(np.bitwise_or.reduce(masks))
        for bit in (1 << place for place in range(every.bit_length()) if every >> place & 1):
            name = Reason(bit).name if bit in Reason.__members__.values() else f"unknown bit {bit:#x}"
            spans.append(
                {"name": str(name).lower(), "role": _role(bit), "at": _spans(column.at_ns, masks & bit != 0, evidence)}
            )
    return {"title": "Clock event reasons", "unit": "", "spans": spans}


def _role(bit: int) -> str:
    if bit & (Reason.HW_SLOWDOWN | Reason.HW_THERMAL | Reason.HW_POWER_BRAKE | Reason.SW_THERMAL):
        return "reject"
    return "muted" if bit & Reason.GPU_IDLE else "flag"


def _processes(evidence: Evidence) -> dict[str, Any]:
    begin_ns, end_ns = _edges(evidence)
    censuses = [census for census in evidence.trace.censuses if begin_ns <= census.at_ns <= end_ns]
    at_ns = np.array([census.at_ns for census in censuses], np.int64)
    seen: dict[int, list[int]] = {}
    named: dict[int, Any] = {}
    for index, census in enumerate(censuses):
        for process in census.processes:
            seen.setdefault(process.pid, []).append(index)
            named[process.pid] = process
    roles = {Ownership.OWN: "good", Ownership.FOREIGN: "reject", Ownership.UNKNOWN: "muted"}
    spans = []
    for pid in sorted(seen, key=lambda pid: (-len(seen[pid]), pid))[:_MOST_PROCESSES]:
        there = np.zeros(len(censuses), np.bool_)
        there[seen[pid]] = True
        name = f"{named[pid].name or 'process'} {pid}, {named[pid].ownership.value}"
        spans.append({"name": name, "role": roles[named[pid].ownership], "at": _spans(at_ns, there, evidence)})
    return {"title": "Processes on this GPU", "unit": "", "spans": spans, "more_count": max(len(seen) - _MOST_PROCESSES, 0)}


def _spans(at_ns: Times, on: np.ndarray[Any, np.dtype[np.bool_]], evidence: Evidence) -> list[list[float]]:
    """From when to when; what was last said stands until the next word, or until it is stale."""
    out: list[list[float]] = []
    until_ns = np.append(at_ns[1:], _edges(evidence)[1]) if len(at_ns) else at_ns
    ends_ns = np.minimum(until_ns, at_ns + _SILENT_NS)
    for begin_ns, end_ns in zip(at_ns[on].tolist(), ends_ns[on].tolist(), strict=True):
        begin_s, end_s = _since(evidence, begin_ns), _since(evidence, end_ns)
        if out and begin_s <= out[-1][1]:
            out[-1][1] = max(end_s, out[-1][1])
        else:
            out.append([begin_s, end_s])
    return out


def _of_signal(evidence: Evidence, signal: str, name: str, *, shape: str = "line") -> list[dict[str, Any]]:
    column = evidence.trace.column(signal)
    return [_column(name, column, evidence, shape=shape)] if len(column) else []


def _column(name: str, column: Column, evidence: Evidence, *, shape: str = "line") -> dict[str, Any]:
    near = _near(column, evidence)
    return _drawn(name, near.at_ns, near.values, evidence, shape=shape)


def _near(column: Column, evidence: Evidence) -> Column:
    begin_ns, end_ns = _edges(evidence)
    kept = slice(*np.searchsorted(column.at_ns, (begin_ns, end_ns)).tolist())
    return Column(column.at_ns[kept], column.values[kept])


def _edges(evidence: Evidence) -> tuple[int, int]:
    margin_ns = int(_MARGIN_S * 1e9)
    return evidence.window.begin_ns - margin_ns, evidence.window.end_ns + margin_ns


def _drawn(name: str, at_ns: Times, values: Values, evidence: Evidence, *, shape: str = "line") -> dict[str, Any]:
    kept = thinned(values)
    return {
        "name": name,
        "shape": shape,
        "count": len(values),
        "x": [_since(evidence, each) for each in at_ns[kept].tolist()],
        "y": [_round(each) if np.isfinite(each) else None for each in values[kept].tolist()],
    }


def thinned(
    values: Values, *, most: Annotated[int, "two for each pixel of a wide screen"] = 4000
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The places to draw: all, or the lowest and highest of each of so many stretches."""
    if len(values) <= most:
        return np.arange(len(values))
    filled = np.nan_to_num(values, nan=float(np.nanmedian(values)) if np.isfinite(values).any() else 0.0)
    edges = np.linspace(0, len(values), most // 2 + 1).astype(np.int64)
    picked = {0, len(values) - 1, *np.flatnonzero(np.isnan(values))[: most // 4].tolist()}
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = filled[begin:end]
        picked |= {begin + int(part.argmin()), begin + int(part.argmax())}
    return np.array(sorted(picked), np.int64)


def _histogram(name: str, values: Values) -> dict[str, Any]:
    """Between the 0.5 and 99.5 % points; what lies beyond is counted, not hidden."""
    low, high = (float(each) for each in np.percentile(values, (0.5, 99.5)))
    inside = values[(values >= low) & (values <= high)]
    counts, edges = np.histogram(inside, bins=max(min(80, len(inside) // 8), 8))
    middles = (edges[:-1] + edges[1:]) / 2
    return {"name": name, "x": _rounded(middles), "y": counts.tolist(), "beyond_count": len(values) - len(inside)}


def _rounded(values: Sequence[float] | Iterable[float]) -> list[float]:
    return [_round(float(each)) for each in values]


def _since(evidence: Evidence, at_ns: int) -> float:
    return _round((at_ns - evidence.window.begin_ns) / 1e9, 6)


def _round(value: float, places: int | None = None) -> float:
    """Seven digits: another processor's last bits are not another picture."""
    return round(value, places) if places is not None else float(f"{value:.7g}")
