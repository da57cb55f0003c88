"""Rows of paired windows with true values: the deviation of a window's numbers from those of neighbouring clean windows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from annotate.evidence import Evidence, Timings
from annotate.times.clock_sensitivity import NoFit, sensitivity
from tests.hardware.paired_disturbances import Disturbance

STALL_S = 1e-3  # a clean window with a longer gap is not a reference
THROUGHPUT, MEAN, MEDIAN, AT_ONE_CLOCK = NUMBERS = ("throughput", "mean", "median", "median_at_one_clock")
_MOVED_RATIO = 0.02  # allowed distance beyond both references' clocks: the fitted exponent is not extrapolated further


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One window, as counted by the measured process; a clean window has no disturbance."""

    number: int
    seed: int
    work: str
    mode: str
    length_s: float
    is_capped: bool
    disturbance: Disturbance | None = None
    failed: str = ""
    run_id: str = ""
    calls_count: int = 0
    window_s: float = 0.0
    events_s: float = 0.0
    longest_gap_s: float = 0.0

    @property
    def key(self) -> str:
        return self.run_id

    @property
    def is_stalled(self) -> bool:
        return self.longest_gap_s > STALL_S

    @property
    def is_reference(self) -> bool:
        return self.disturbance is None and not self.is_stalled

    @property
    def rate_hz(self) -> float:
        return self.calls_count / self.window_s


Kept = tuple[Row, Evidence]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The relative deviation of each number of a window from the mean of both references, and between the references.

    An unmeasured number is absent.  ``by_events`` is the deviation of the throughput by events, from first to last mark.
    """

    deviation: Mapping[str, float]
    references_differ: Mapping[str, float]
    by_events: float
    before: str
    after: str


def by_session(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """Return the rows of each kind of work and mode, in order."""
    sessions: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda each: (each.seed, each.number)):
        sessions.setdefault((row.work, row.mode), []).append(row)
    return sessions


def references(rows: Sequence[Row]) -> dict[str, tuple[Row, Row]]:
    """Return the nearest references before and after each other window, if at most one disturbed window lies between them.

    ``rows`` belong to one process.
    """
    ordered = sorted(rows, key=lambda each: each.number)
    found: dict[str, tuple[Row, Row]] = {}
    places = [i for i, row in enumerate(ordered) if row.is_reference]
    for first, last in pairwise(places):
        between = ordered[first + 1 : last]
        if sum(row.disturbance is not None for row in between) <= 1:
            found |= {row.key: (ordered[first], ordered[last]) for row in between}
    return found


def truths(kept: Sequence[Kept]) -> dict[str, Truth]:
    """Return the true values of each window with references before and after."""
    evidences = {row.key: evidence for row, evidence in kept}
    processes: dict[tuple[int, str, str], list[Row]] = {}
    for row, _ in kept:
        processes.setdefault((row.seed, row.work, row.mode), []).append(row)
    found: dict[str, Truth] = {}
    for rows in processes.values():
        known = {row.key: row for row in rows}
        for key, (before, after) in references(rows).items():
            found[key] = _truth(*((row, evidences[row.key]) for row in (known[key], before, after)))
    return found


def _truth(disturbed: Kept, before: Kept, after: Kept) -> Truth:
    (of, own), (first, earlier), (second, later) = disturbed, before, after
    numbers = [{THROUGHPUT: row.rate_hz} for row in (of, first, second)]
    timed = [evidence.timings for evidence in (own, earlier, later)]
    if all(each is not None and len(each.took_s) for each in timed):
        known = [each for each in timed if each is not None]
        for name, values in timed_numbers(*known).items():
            for by, value in zip(numbers, values, strict=True):
                by[name] = value
    mine, one, other = numbers
    return Truth(
        deviation={name: mine[name] / ((one[name] + other[name]) / 2.0) - 1.0 for name in mine},
        references_differ={name: one[name] / other[name] - 1.0 for name in mine},
        by_events=_event_rate(of) / ((_event_rate(first) + _event_rate(second)) / 2.0) - 1.0,
        before=first.key,
        after=second.key,
    )


def _event_rate(row: Row) -> float:
    return row.calls_count / row.events_s if row.events_s else float("nan")


def timed_numbers(own: Timings, before: Timings, after: Timings) -> dict[str, list[float]]:
    """Return mean and median of the three windows, and the median at one clock if ``medians_at_one_clock`` gives one."""
    of = (own, before, after)
    found = {
        MEAN: [float(each.took_s.mean()) for each in of],
        MEDIAN: [float(np.median(each.took_s)) for each in of],
    }
    at_one_clock = medians_at_one_clock(own, before, after)
    return found | ({AT_ONE_CLOCK: at_one_clock} if at_one_clock is not None else {})


def medians_at_one_clock(own: Timings, before: Timings, after: Timings) -> list[float] | None:
    """Return the medians at the first reference's clock, by the references' mean exponent, or raw medians without a fit.

    Return None if a window lacks stamps, or if the window's median clock lies outside the references' range.
    """
    clocks = [each.sm_clock_mhz for each in (own, before, after)]
    stamped = [np.isfinite(each) for each in clocks if each is not None]
    if len(stamped) < 3 or not all(each.any() for each in stamped):
        return None
    middle = [float(np.nanmedian(each)) for each in clocks if each is not None]
    low, high = min(middle[1:]) * (1.0 - _MOVED_RATIO), max(middle[1:]) * (1.0 + _MOVED_RATIO)
    fits = [fit for fit in (sensitivity(before), sensitivity(after)) if not isinstance(fit, NoFit)]
    if fits:
        low, high = min(low, *(fit.clock_low_mhz for fit in fits)), max(high, *(fit.clock_high_mhz for fit in fits))
    if not low <= middle[0] <= high:
        return None
    mhz, beta = middle[1], float(np.mean([fit.beta for fit in fits])) if fits else 0.0
    return [
        float(np.median(each.took_s[known] * (clock[known] / mhz) ** beta))
        for each, clock, known in zip((own, before, after), clocks, stamped, strict=True)
        if clock is not None
    ]


def write_truth(path: Path, kept: Sequence[Kept], facts: Mapping[str, Any]) -> None:
    """Write the row and the true values of each window, and the card."""
    device = next((evidence.device for _, evidence in kept if evidence.device is not None), None)
    of_card = {"uuid": device.uuid, "card": device.name, "driver": device.driver_version} if device is not None else {}
    true = truths(kept)
    windows = [msgspec.to_builtins(row) | {"truth": asdict(true[row.key]) if row.key in true else None} for row, _ in kept]
    whole = {**facts, **of_card, "windows": windows}
    path.write_text(json.dumps(msgspec.to_builtins(whole), indent=1) + "\n", encoding="utf-8")


def table(kept: Sequence[Kept], failed: Sequence[Row], took_s: float) -> str:
    """Return the number of windows of each kind, as text."""
    true = truths(kept)
    lines = [f"\n{len(kept)} windows in {took_s:.0f} s, {len(failed)} failed"]
    lines.append(f"{'work':16} mode     clean stalled disturbed with truth")
    for (work, mode), rows in by_session(row for row, _ in kept).items():
        disturbed = [row for row in rows if row.disturbance]
        stalled = [row for row in rows if not row.disturbance and row.is_stalled]
        known = sum(row.key in true for row in disturbed)
        clean = len(rows) - len(disturbed) - len(stalled)
        lines.append(f"{work:16} {mode:8} {clean:5} {len(stalled):7} {len(disturbed):9} {known:10}")
    counts = Counter(row.disturbance.family for row, _ in kept if row.disturbance)
    lines.append(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    for row in failed:
        what = row.disturbance.words if row.disturbance else "clean"
        lines.append(f"failed: {row.work} {row.mode} {what}: {row.failed}")
    return "\n".join(lines)
