"""Foreign work on the GPU in numbers: late iterations, untimed busy time, the shift against this card's record.

Another process runs in turns of about 2 ms, which show as late iterations of the window.  On an H200 the outlying time was
0.25, 2.4, 19 and 37 % when the true change of the mean was 0.6, 2.4, 19 and 36 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from annotate.budget import Estimate
from annotate.derived.busy import utilization_ratio
from annotate.derived.held import by_bits
from annotate.derived.idle_gaps import Span, overlap_ratios
from annotate.derived.neighbours import ACTIVE_RATIO, Neighbours
from annotate.evidence import Evidence, Reason, Timings, Values
from annotate.stats.robust import centre, spread
from annotate.times.clock_sensitivity import Corrected, NoFit, Sensitivity
from annotate.times.durations import floor_s
from annotate.times.outlying import outlying

_FEWEST_COUNT = 30
_SLICE_S = 2e-3  # a turn on an H200: every longer iteration may include foreign work
_PAUSE_S = 20e-3
_CAPPED_RATIO = 0.02
_CONFIDENCE = 0.975


@dataclass(frozen=True, slots=True)
class RecordShift:
    """One number of this window over the median of its record on this card, - 1, with the record's spread."""

    ratio: float
    error_ratio: float

    @property
    def bound_ratio(self) -> float:
        return abs(self.ratio) + self.error_ratio

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.ratio - self.error_ratio, self.ratio, self.ratio + self.error_ratio)

    def inverse(self) -> RecordShift:
        """Return the shift of the rate that is the inverse of this number."""
        return RecordShift(1.0 / max(1.0 + self.ratio, 1e-6) - 1.0, self.error_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignWork:
    """Signs of foreign work in the window's own times, and the share of others in the driver's record.

    ``late_ratio`` is None for too few times, or times longer than a turn, which may all include foreign work.
    ``untimed_ratio`` is the whole share without entries unless utilisation ``is_witnessed``.  ``is_coupled`` means that the
    clock may follow the load: a faster clock regains part of the time that others take.
    """

    has_times: bool
    late_ratio: float | None
    untimed_ratio: float
    is_witnessed: bool
    taken_ratio: float  # lower bound of others' share in the utilisation record; the record may omit processes
    most_taken_ratio: float
    is_coupled: bool
    at_clock: RecordShift | None
    median: RecordShift | None
    mean: RecordShift | None
    throughput: RecordShift | None


def foreign_work(
    evidence: Evidence, timings: Timings, fit: Sensitivity | NoFit, others: Neighbours, *, stamp_s: float = 0.0
) -> ForeignWork:
    """Return the visible signs of foreign work in the window."""
    shares = [(each.least_ratio or 0.0, each.most_ratio or 0.0, each.peak_ratio or 0.0) for each in others.at_work]
    busy = [each for each in shares if each[2] > ACTIVE_RATIO]
    capped = by_bits(evidence, Reason.SW_POWER_CAP)
    has_times = len(timings.at_ns) > 0
    # The driver refreshes utilisation about every 200 ms: over less than a second, the mean is too coarse.
    busy_ratio = utilization_ratio(evidence) if evidence.window.length_s >= 1.0 else None
    return ForeignWork(
        has_times=has_times,
        late_ratio=late_ratio(timings, fit),
        untimed_ratio=untimed_ratio(evidence, timings, busy_ratio, stamp_s) if has_times else 0.0,
        is_witnessed=busy_ratio is not None,
        taken_ratio=min(1.0, sum((least for least, _, _ in busy), 0.0)),
        most_taken_ratio=min(1.0, sum((most for _, most, _ in shares), 0.0)),
        is_coupled=isinstance(fit, Sensitivity) or capped is None or capped.ratio > _CAPPED_RATIO,
        **_shifts(evidence, timings, fit),
    )


def late_ratio(timings: Timings, fit: Sensitivity | NoFit) -> float | None:
    """Return the excess time of late iterations over the time of all without it, or None for few or long iterations.

    Iterations after a gap above 20 ms are compared with each other only, because caches and clock changed in the gap.
    """
    if len(timings.took_s) < _FEWEST_COUNT or centre(timings.took_s) * timings.calls_count > _SLICE_S:
        return None
    even_s = _at_one_clock(timings, fit)
    ends_ns = timings.at_ns[:-1] + timings.took_s[:-1] * timings.calls_count * 1e9
    after = np.concatenate([[False], timings.at_ns[1:] - ends_ns > _PAUSE_S * 1e9])
    if (~after).sum() < 2:
        return None
    among = outlying(Timings(timings.at_ns[~after], even_s[~after], calls_count=timings.calls_count))
    late_s = float(among.excess_s[among.excess_s > 0].sum()) + _late_s(even_s[after])
    rest_s = float(even_s.sum()) - late_s
    return late_s / rest_s if rest_s > 0.0 else None


def _late_s(took_s: Values) -> float:
    if len(took_s) < 3:
        return 0.0
    middle_s = centre(took_s)
    apart_s = took_s - middle_s
    return float(apart_s[apart_s > max(5.0 * spread(apart_s, floor=floor_s(middle_s)), 0.03 * middle_s)].sum())


def _at_one_clock(timings: Timings, fit: Sensitivity | NoFit) -> Values:
    clock = timings.sm_clock_mhz
    if clock is None or not isinstance(fit, Sensitivity):
        return timings.took_s
    usual_mhz = float(np.nanmedian(clock))
    return np.asarray(timings.took_s * fit.factor(np.where(np.isfinite(clock), clock, usual_mhz), usual_mhz), np.float64)


def untimed_ratio(evidence: Evidence, timings: Timings, busy_ratio: float | None, stamp_s: float) -> float:
    """Return the busy share of the window that is neither timed nor declared; without a busy share, assume 1."""
    entries_s = timings.took_s * timings.calls_count
    timed_s = float(entries_s.sum()) + len(entries_s) * stamp_s
    declared = evidence.other_work.spans_ns if evidence.other_work is not None else ()
    window = (evidence.window.begin_ns, evidence.window.end_ns)
    other_ratio = float(overlap_ratios([window], _outside(declared, timings))[0]) if declared else 0.0
    return max(0.0, (1.0 if busy_ratio is None else busy_ratio) - timed_s / evidence.window.length_s - other_ratio)


def _outside(spans: tuple[Span, ...], timings: Timings) -> list[Span]:
    """Return the declared pieces of which timed entries cover less than half."""
    ends_ns = timings.at_ns + (timings.took_s * timings.calls_count * 1e9).astype(np.int64)
    timed = list(zip(timings.at_ns.tolist(), ends_ns.tolist(), strict=True))
    return [span for span, covered in zip(spans, overlap_ratios(spans, timed), strict=True) if covered < 0.5]


def _shifts(evidence: Evidence, timings: Timings, fit: Sensitivity | NoFit) -> dict[str, RecordShift | None]:
    known = dict.fromkeys(("at_clock", "median", "mean", "throughput"))
    record = evidence.record
    if record is None or not len(timings.took_s):
        return known
    at_clock_s = None
    if record.clock_mhz is not None and isinstance(fit, Sensitivity):
        corrected = fit.at_clock(timings, record.clock_mhz)
        at_clock_s = corrected.time_s if isinstance(corrected, Corrected) else None
    rate_hz = len(timings.took_s) * timings.calls_count / evidence.window.length_s
    return {
        "at_clock": shift(at_clock_s, record.values("median_at_clock_s")),
        "median": shift(centre(timings.took_s), record.values("median_s")),
        "mean": shift(float(timings.took_s.mean()), record.values("mean_s")),
        "throughput": shift(rate_hz, record.values("calls_rate_hz")),
    }


def shift(value: float | None, recorded: tuple[float, ...]) -> RecordShift | None:
    """Return a number's shift against its record, or None if either is unknown."""
    if value is None or not recorded or not min(recorded) > 0.0:
        return None
    from scipy.special import stdtrit

    usual = float(np.median(recorded))
    student = float(stdtrit(len(recorded) - 1, _CONFIDENCE))
    deviation = float(np.std(recorded, ddof=1)) / usual
    return RecordShift(value / usual - 1.0, student * deviation * float(np.sqrt(1.0 + 1.0 / len(recorded))))
