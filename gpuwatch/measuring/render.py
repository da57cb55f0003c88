"""A measurement as text and as HTML, for a terminal and a notebook, without a label's control characters."""

import math
from html import escape

from annotate.output import report
from annotate.output.report import length_words
from annotate.times.clock_sensitivity import NoFit
from annotate.verdict import Status
from gpuwatch.measuring import garbage_collection
from gpuwatch.measuring.batching import ENTRY_S
from gpuwatch.measuring.figures import RateFigures

_OVERHEAD_RATIO = 0.02  # share of an entry; a note reports a larger share


def time(seconds: float) -> str:
    """Format a duration with four digits in a suitable unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns"


def rate(amount_per_s: float, unit: str) -> str:
    """Format a rate, such as ``674 TFLOP/s``."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if amount_per_s >= size:
            return f"{amount_per_s / size:.4g} {prefix}{unit}/s"
    return f"{amount_per_s:.4g} {unit}/s"


def text(measured: RateFigures) -> str:
    """Render the figures, the notes and the verdicts for a terminal."""
    head = f"{report.plain(measured.label)}  {time(measured.median_s)} {_width(measured)}"
    lines = [head, *(f"  {line}" for line in [*figures(measured), *notes(measured)])]
    return "\n".join([*lines, report.texts(measured.verdicts)])


def html(measured: RateFigures) -> str:
    """Render a small card for notebooks, followed by the verdict's card, without scripts and style sheets."""
    head = f"<b>{escape(report.plain(measured.label))}</b> &nbsp; {escape(time(measured.median_s))} {escape(_width(measured))}"
    body = "".join(f"<div>{escape(line)}</div>" for line in [*figures(measured), *notes(measured)])
    return f'<div style="padding:4px 10px;margin:4px 0"><div>{head}</div>{body}</div>{report.html(measured.verdicts)}'


def _width(measured: RateFigures) -> str:
    interval = measured.attempt.interval
    if interval is None or not math.isfinite(interval.half_width_ratio):
        return "(median; width unknown: too short, or still drifting)"
    return f"±{_percent(interval.half_width_ratio)} (median, 95 %)"


def _percent(ratio: float) -> str:
    """Format a ratio as a percentage with two digits, and from 100 % on as a whole number, to avoid an exponent."""
    percent = 100 * ratio
    return f"{percent:.0f} %" if percent >= 99.5 else f"{percent:.2g} %"


def figures(measured: RateFigures) -> list[str]:
    """Return the figures, one line for each kind."""
    m = measured
    of = f" of {m.calls_count} calls each" if m.calls_count > 1 else ""
    how = f"timer {m.timer}" + (f", {m.cache} L2" if m.cache else "")
    lines = [
        f"mean {time(m.mean_s)} · trimmed {time(m.trimmed_mean_s)} · min {time(m.min_s)} · p95 {time(m.p95_s)} · "
        f"p99 {time(m.p99_s)} · CV {_percent(m.cv_ratio)}",
        f"{m.count} entries{of}, worth {m.effective_count:.0f} independent ones, in {length_words(m.attempt.took_s)} after "
        f"{length_words(m.warmup.took_s)} of warm-up; {how}, garbage collector {garbage_collection.HELD_OFF}",
    ]
    rates = []
    if m.flops_per_s is not None:
        rates.append(rate(m.flops_per_s, "FLOP") + _share(m.flops_peak_ratio, f"{m.dtype} peak at this clock"))
    if m.bytes_per_s is not None:
        rates.append(rate(m.bytes_per_s, "B") + _share(m.bytes_peak_ratio, "memory's peak"))
    if rates:
        lines.append(" · ".join(rates))
    if m.clock_mhz is not None:
        lines.append(f"true clock {m.clock_mhz:.0f} MHz{_clock(m)}")
    if m.launch_share is not None:
        lines.append(str(m.launch_share))
    if m.match is not None:
        lines.append(f"right: largest relative error {m.match.error_ratio:.2g}, allowed {m.match.limit_ratio:.2g}")
    return lines


def _share(ratio: float | None, of: str) -> str:
    return "" if ratio is None else f" ({100 * ratio:.3g} % of the {of})"


def _clock(measured: RateFigures) -> str:
    found = measured.clock_sensitivity
    if isinstance(found, NoFit):
        return f"; not corrected: {found.reason[0].lower()}{found.reason[1:].rstrip('.')}"
    middle_mhz = (found.clock_low_mhz + found.clock_high_mhz) / 2
    at = found.at_clock(measured.timings, middle_mhz)
    corrected = "" if isinstance(at, NoFit) else f"; {time(at.time_s)} at {middle_mhz:.0f} MHz"
    return f"; time follows it with β {found.beta:.2f} ({100 * found.explained_ratio:.0f} % of the variance){corrected}"


def notes(measured: RateFigures) -> list[str]:
    """Return the notes that a reader needs with the figures."""
    m, found = measured, []
    if m.output_unchanged:
        found.append("note: the result stayed the same when the inputs changed: it may be cached, not computed")
    if not m.warmup.steady:
        found.append(f"note: not steady after {length_words(m.warmup.took_s)} of warm-up: these times may still drift")
    if m.host_bound and m.issue_s is not None:
        found.append(
            f"note: the host needs {time(m.issue_s)} to launch a call, longer than the GPU needs to run it: "
            "a plain loop runs at the host's speed; timer='graph' excludes the host"
        )
    entry_s = m.median_s * m.calls_count
    if m.timer_overhead_s > _OVERHEAD_RATIO * entry_s:
        found.append(
            f"note: the timer reads {time(m.timer_overhead_s)} around no work, "
            f"{100 * m.timer_overhead_s / max(entry_s, 1e-12):.0f} % of an entry; it is not subtracted"
        )
    if m.cache == "cold" and m.calls_count == 1 and m.timer != "host" and entry_s < ENTRY_S / 4:
        found.append("note: one call is too short to time alone: pass args=(...) so that inputs can rotate, or cache='warm'")
    if len(m.attempts) > 1:
        shown = m.attempts.index(m.attempt) + 1
        none = "" if m.verdict.status is Status.VALID else ", none of them valid"
        found.append(f"note: attempt {shown} of {len(m.attempts)}{none}")
    return found
