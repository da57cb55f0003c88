"""A driver's page that hung: gauges that stood still to the last digit for seconds, while work went on, show nothing."""

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
    """Return the evidence with nothing of the page in force while it hung; the same where it never did."""
    spans_ns = hung_spans_ns(evidence)
    if not spans_ns:
        return evidence
    return replace(evidence, trace=_silenced(evidence.trace, spans_ns))


@kept
def hung_spans_ns(
    evidence: Evidence,
    *,
    longest_s: Annotated[
        float, "a page may show one figure for two refreshes, and the counter of energy is read once a second"
    ] = 2.0,
) -> tuple[Span, ...]:
    """Return when the page stood still while another witness of the card's power contradicts it.

    Standing alone proves nothing: beside a steady decode loop all of an H200's page stood for 2.4 s, and told the truth.
    """
    trace = evidence.trace
    power = trace.column(_POWER).observed
    if len(power) < _FEWEST_ROWS:
        return ()
    moved = np.flatnonzero(np.concatenate([[True], np.diff(power.values) != 0.0]))
    last = np.append(moved[1:], len(power)) - 1  # the last reading that still showed it: later, what it shows is not known
    edges_ns = np.append(power.at_ns[moved], power.at_ns[-1])
    return tuple(
        (int(edges_ns[i]), int(edges_ns[i + 1]))
        for i in np.flatnonzero(np.diff(edges_ns) > longest_s * 1e9)
        if _stands(trace, int(edges_ns[i]), int(edges_ns[i + 1]))
        and _is_contradicted(trace, int(edges_ns[i]), int(power.at_ns[last[i]]))
    )


def _stands(trace: Trace, begin_ns: int, end_ns: int) -> bool:
    """Return whether no gauge of the page moved, although somebody read it meanwhile."""
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
    apart_ratio: Annotated[float, "the integral of an H200's power agrees with its counter of energy within 1 %"] = 0.03,
    least_s: Annotated[float, "the counter of energy is read once a second"] = 1.0,
) -> bool:
    """Return whether energy, else the driver's own record of power, tells another power than the page that stands.

    Work that begins shows on the page a refresh later, so that the last refresh contradicts nothing.
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
        edges_ratio = refresh_ns / span_ns  # the counter steps: either reading may lack what was drawn since its last step
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
