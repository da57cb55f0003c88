"""Spans in which the driver's gauges froze for seconds while work went on, and evidence without these readings."""

from dataclasses import replace
from typing import Annotated

import numpy as np

from annotate.derived.idle_gaps import SAMPLE_NS, Span
from annotate.evidence import Column, Evidence, Lane, Trace, signals
from annotate.evidence.asked import kept

_PAGE = signals(Lane.FAST)
_POWER = "power_w"
_FEWEST_ROWS = 3


def without_hung_page(evidence: Evidence) -> Evidence:
    """Return the evidence without readings of the gauges while they were frozen; unchanged if they never were."""
    spans_ns = hung_spans_ns(evidence)
    if not spans_ns:
        return evidence
    return replace(evidence, trace=_silenced(evidence.trace, spans_ns))


@kept
def hung_spans_ns(
    evidence: Evidence,
    *,
    longest_s: Annotated[
        float, "a gauge may repeat a value for two refreshes, and the energy counter is read once a second"
    ] = 2.0,
) -> tuple[Span, ...]:
    """Return the spans in which all gauges were frozen and another witness contradicts their power.

    Frozen gauges alone prove nothing: during a steady decode loop, all gauges of an H200 were constant and right for 2.4 s.
    """
    trace = evidence.trace
    power = trace.column(_POWER).observed
    if len(power) < _FEWEST_ROWS:
        return ()
    moved = np.flatnonzero(np.concatenate([[True], np.diff(power.values) != 0.0]))
    last = np.append(moved[1:], len(power)) - 1  # the last reading with this value: the gauge is not known after it
    edges_ns = np.append(power.at_ns[moved], power.at_ns[-1])
    return tuple(
        (int(edges_ns[i]), int(edges_ns[i + 1]))
        for i in np.flatnonzero(np.diff(edges_ns) > longest_s * 1e9)
        if _is_frozen(trace, int(edges_ns[i]), int(edges_ns[i + 1]))
        and _is_contradicted(trace, int(edges_ns[i]), int(power.at_ns[last[i]]))
    )


def _is_frozen(trace: Trace, begin_ns: int, end_ns: int) -> bool:
    for name in _PAGE:
        column = trace.column(name).observed
        values = column.values[(column.at_ns >= begin_ns) & (column.at_ns < end_ns)]
        if len(values) and (values != values[0]).any():
            return False
    return True


def _is_contradicted(
    trace: Trace,
    begin_ns: int,
    end_ns: int,
    *,
    apart_ratio: Annotated[float, "the integral of an H200's power agrees with its energy counter within 1 %"] = 0.03,
    least_s: Annotated[float, "the energy counter is read once a second"] = 1.0,
) -> bool:
    """Return whether the energy counter, else the driver's power record, differs from the frozen power gauge.

    The first and the last refresh do not count: the gauge shows a change of load up to a refresh late.
    """
    column = trace.column(_POWER).observed
    shown_w = float(column.values[np.searchsorted(column.at_ns, begin_ns)])
    refresh_ns = trace.refresh_of_ns(_POWER)
    since_ns, end_ns = begin_ns + refresh_ns, end_ns - refresh_ns
    energy = trace.column("energy_j").observed
    read = energy.where((energy.at_ns >= since_ns) & (energy.at_ns <= end_ns))
    dense = trace.dense_power.where((trace.dense_power.at_ns >= since_ns) & (trace.dense_power.at_ns <= end_ns))
    edges_ratio = 0.0
    if len(read) > 1 and read.at_ns[-1] - read.at_ns[0] >= least_s * 1e9:
        span_ns = float(read.at_ns[-1] - read.at_ns[0])
        drawn_w = float(read.values[-1] - read.values[0]) / (span_ns / 1e9)
        edges_ratio = refresh_ns / span_ns  # the counter steps: a reading may lack the energy since the last step
    elif len(dense) * SAMPLE_NS >= least_s * 1e9:
        drawn_w = float(dense.values.mean())
    else:
        return False
    return shown_w > 0.0 and abs(drawn_w / shown_w - 1.0) > apart_ratio + edges_ratio


def _silenced(trace: Trace, spans_ns: tuple[Span, ...]) -> Trace:
    columns = dict(trace.columns)
    for name in _PAGE:
        if name not in columns:
            continue
        column, hung = columns[name], np.zeros(len(columns[name]), np.bool_)
        refresh_ns = trace.refresh_of_ns(name)
        for begin_ns, end_ns in spans_ns:
            hung |= (column.at_ns > begin_ns + refresh_ns) & (column.at_ns < end_ns)
        columns[name] = Column(column.at_ns, np.where(hung, np.nan, column.values))
    return replace(trace, columns=columns)
