"""A window's time line as plain data: lanes over one time axis, from findings down to iterations.

The page's script decides the appearance.
"""

from typing import Any

import numpy as np

from annotate import clock_reasons
from annotate.evidence import Column, Evidence, Ownership, Reason, Times, Timings
from annotate.verdict import Finding, Verdict
from gpuwatch.report.thinned_series import plot_series, rounded, seconds_since

_MARGIN_S = 2.0  # drawn before and after the window
_SILENT_NS = 1_500_000_000  # a longer gap between process lists, or between readings of event reasons, counts as unobserved
_DENSE_HOLDS_NS = 100_000_000  # five samples of the driver's power record: a longer pause is a gap
_MOST_PROCESSES = 8
_OWNER_ROLES = {Ownership.OWN: "good", Ownership.FOREIGN: "reject", Ownership.UNKNOWN: "muted"}
_WHOLE_RATIO = 0.98  # from this share of the window on, a finding counts as the whole window


def timeline(verdict: Verdict, evidence: Evidence) -> dict[str, Any]:
    """Return the lanes from top to bottom, the findings' spans and the window's length, in seconds since the window's start."""
    return {
        "length_s": rounded(evidence.window.length_s),
        "lanes": [lane for lane in (_findings(verdict, evidence),) if lane["spans"]]
        + [lane for lane in (_clock(evidence), _power(evidence), _temperature(evidence)) if lane["series"]]
        + [lane for lane in (_reasons(evidence), _processes(evidence)) if lane["spans"]]
        + [lane for lane in (_iterations(verdict, evidence),) if lane["series"]],
        "findings": [
            {
                "rule": each.rule,
                "severity": each.severity,
                "from_s": seconds_since(evidence, begin_ns),
                "to_s": seconds_since(evidence, end_ns),
                "whole": _is_whole(verdict, (begin_ns, end_ns)),
            }
            for each, (begin_ns, end_ns) in spanned(verdict)
        ],
    }


def spanned(verdict: Verdict) -> list[tuple[Finding, tuple[int, int]]]:
    """Return the hazards that have a span, with the span."""
    return [(finding, finding.span_ns) for finding in verdict.hazards if finding.span_ns is not None]


def inside_findings(verdict: Verdict, timings: Timings) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Mark the iterations that overlap the span of a hazard that counts (not a note, not accepted).

    Spans of the whole window are ignored: such a span would mark every iteration.
    """
    begins_ns = timings.at_ns
    ends_ns = begins_ns + (np.nan_to_num(timings.took_s, nan=0.0, posinf=0.0, neginf=0.0) * 1e9).astype(np.int64)
    out = np.zeros(len(begins_ns), np.bool_)
    for finding, (begin_ns, end_ns) in spanned(verdict):
        if finding.severity != "note" and not finding.accepted and not _is_whole(verdict, (begin_ns, end_ns)):
            out |= (begins_ns < end_ns) & (ends_ns > begin_ns)
    return out


def _is_whole(verdict: Verdict, span_ns: tuple[int, int]) -> bool:
    return span_ns[1] - span_ns[0] >= _WHOLE_RATIO * (verdict.end_ns - verdict.begin_ns)


def _findings(verdict: Verdict, evidence: Evidence) -> dict[str, Any]:
    return {
        "title": "Findings",
        "unit": "",
        "spans": [
            {
                "name": finding.rule + (", accepted" if finding.accepted else ""),
                "role": "muted" if finding.accepted or finding.severity == "note" else finding.severity,
                "at": [[seconds_since(evidence, begin_ns), seconds_since(evidence, end_ns)]],
            }
            for finding, (begin_ns, end_ns) in spanned(verdict)
        ],
    }


def _clock(evidence: Evidence) -> dict[str, Any]:
    series = _of_signal(evidence, "sm_clock_mhz", "NVML")
    timings = evidence.timings
    if timings is not None and timings.sm_clock_mhz is not None:
        seen = np.isfinite(timings.sm_clock_mhz)
        series += [
            plot_series("true, per iteration", timings.at_ns[seen], timings.sm_clock_mhz[seen], evidence, shape="points")
        ]
    limit_mhz = evidence.device.sm_clock_max_mhz if evidence.device else None
    return {"title": "SM clock", "unit": "MHz", "series": series, "limit": limit_mhz, "limit_name": "maximum"}


def _power(evidence: Evidence) -> dict[str, Any]:
    """Plot the dense power record, and sampled power where the record has no samples."""
    dense, sampled = (_near(column, evidence) for column in (evidence.trace.dense_power, evidence.trace.column("power_w")))
    series = [_column("every 20 ms", dense, evidence)] if len(dense) else []
    until, before = (np.searchsorted(dense.at_ns, sampled.at_ns - ago_ns, side="right") for ago_ns in (0, _DENSE_HOLDS_NS))
    silent = until == before
    silent |= np.append(silent, False)[1:]  # the reading before a gap holds during it
    alone = Column(sampled.at_ns, np.where(silent, sampled.values, np.nan))
    series += [_column("NVML", alone, evidence, shape="step")] if np.isfinite(alone.values).any() else []
    limit_w = evidence.device.power_limit_w if evidence.device else None
    return {"title": "Power", "unit": "W", "series": series, "limit": limit_w, "limit_name": "limit"}


def _temperature(evidence: Evidence) -> dict[str, Any]:
    series = [*_of_signal(evidence, "temperature_c", "GPU"), *_of_signal(evidence, "memory_temperature_c", "memory")]
    return {"title": "Temperature", "unit": "°C", "series": series, "limit": None, "limit_name": ""}


def _iterations(verdict: Verdict, evidence: Evidence) -> dict[str, Any]:
    timings, series = evidence.timings, []
    if timings is not None:
        bad = inside_findings(verdict, timings)
        for name, shown in (("outside every finding", timings.timed & ~bad), ("inside a finding", timings.timed & bad)):
            if shown.any():
                series.append(plot_series(name, timings.at_ns[shown], timings.took_s[shown] * 1e3, evidence, shape="points"))
    return {"title": "Iterations", "unit": "ms", "series": series, "limit": None, "limit_name": ""}


def _reasons(evidence: Evidence) -> dict[str, Any]:
    column = _near(evidence.trace.column("event_reasons_mask"), evidence)
    spans = []
    if len(column):
        known = ~np.isnan(column.values)
        masks = np.where(known, column.values, 0).astype(np.int64)
        for bit in clock_reasons.bits(int(np.bitwise_or.reduce(masks))):
            at = _spans(column.at_ns, masks & bit != 0, evidence)
            spans.append({"name": clock_reasons.of_bit(bit)[0], "role": _role(bit), "at": at})
    return {"title": "Clock event reasons", "unit": "", "spans": spans}


def _role(bit: int) -> str:
    if bit & (Reason.HW_SLOWDOWN | Reason.HW_THERMAL | Reason.HW_POWER_BRAKE | Reason.SW_THERMAL):
        return "reject"
    return "muted" if bit & Reason.GPU_IDLE else "flag"


def _processes(evidence: Evidence) -> dict[str, Any]:
    begin_ns, end_ns = _edges(evidence)
    process_lists = [process_list for process_list in evidence.trace.process_lists if begin_ns <= process_list.at_ns <= end_ns]
    at_ns = np.array([process_list.at_ns for process_list in process_lists], np.int64)
    seen: dict[int, list[int]] = {}
    named: dict[int, Any] = {}
    for index, process_list in enumerate(process_lists):
        for process in process_list.processes:
            seen.setdefault(process.pid, []).append(index)
            named[process.pid] = process
    spans = []
    for pid in sorted(seen, key=lambda pid: (-len(seen[pid]), pid))[:_MOST_PROCESSES]:
        there = np.zeros(len(process_lists), np.bool_)
        there[seen[pid]] = True
        name, owner, at = f"{named[pid].name or 'process'} {pid}", named[pid].ownership, _spans(at_ns, there, evidence)
        note = _outside(at_ns, there, evidence) if owner is not Ownership.OWN else ""
        if note:
            spans.append({"name": name, "note": note, "role": "muted", "at": at})
        else:
            spans.append({"name": f"{name}, {owner.value}", "role": _OWNER_ROLES[owner], "at": at})
    return {"title": "Processes on this GPU", "unit": "", "spans": spans, "more_count": max(len(seen) - _MOST_PROCESSES, 0)}


def _outside(at_ns: Times, there: np.ndarray[Any, np.dtype[np.bool_]], evidence: Evidence) -> str:
    """Return the time of a process that was there only outside the window; empty if a list inside has it, or none is inside."""
    begin_ns, end_ns = evidence.window.begin_ns, evidence.window.end_ns
    inside = (at_ns >= begin_ns) & (at_ns <= end_ns)
    if not inside.any() or (there & inside).any():
        return ""
    before_s, after_s = (begin_ns - at_ns[there & (at_ns < begin_ns)]) / 1e9, (at_ns[there & (at_ns > end_ns)] - end_ns) / 1e9
    if len(before_s) and len(after_s):
        return "seen only before and after the window"
    if len(before_s):
        return f"last seen {max(before_s.min(), 0.001):.2g} s before the window"
    return f"first seen {max(after_s.min(), 0.001):.2g} s after the window"


def _spans(at_ns: Times, on: np.ndarray[Any, np.dtype[np.bool_]], evidence: Evidence) -> list[list[float]]:
    """Return start and end of each span; a reading holds until the next reading, at most ``_SILENT_NS``."""
    out: list[list[float]] = []
    until_ns = np.append(at_ns[1:], _edges(evidence)[1]) if len(at_ns) else at_ns
    ends_ns = np.minimum(until_ns, at_ns + _SILENT_NS)
    for begin_ns, end_ns in zip(at_ns[on].tolist(), ends_ns[on].tolist(), strict=True):
        begin_s, end_s = seconds_since(evidence, begin_ns), seconds_since(evidence, end_ns)
        if out and begin_s <= out[-1][1]:
            out[-1][1] = max(end_s, out[-1][1])
        else:
            out.append([begin_s, end_s])
    return out


def _of_signal(evidence: Evidence, signal: str, name: str) -> list[dict[str, Any]]:
    column = evidence.trace.column(signal)
    return [_column(name, _near(column, evidence), evidence, shape="step")] if len(column) else []


def _column(name: str, near: Column, evidence: Evidence, *, shape: str = "line") -> dict[str, Any]:
    return plot_series(name, near.at_ns, near.values, evidence, shape=shape)


def _near(column: Column, evidence: Evidence) -> Column:
    begin_ns, end_ns = _edges(evidence)
    near = slice(*np.searchsorted(column.at_ns, (begin_ns, end_ns)).tolist())
    return Column(column.at_ns[near], column.values[near])


def _edges(evidence: Evidence) -> tuple[int, int]:
    margin_ns = int(_MARGIN_S * 1e9)
    return evidence.window.begin_ns - margin_ns, evidence.window.end_ns + margin_ns
