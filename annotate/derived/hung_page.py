"""A driver's page that hung: gauges that stood still to the last digit for seconds, while work went on, show nothing."""

from dataclasses import replace
from typing import Annotated

import numpy as np

from annotate.evidence import Column, Evidence, Lane, Times, Trace, signals
from annotate.evidence.asked import kept

_PAGE = signals(Lane.FAST)
_POWER = "power_w"  # to the milliwatt: a working GPU never draws the same twice


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
    longest_s: Annotated[float, "beside a steady decode loop all of an H200's page stood for up to 2.4 s"] = 3.0,
    changes_count: Annotated[int, "fewer changes of power show no card whose power moves from page to page"] = 10,
    usual_s: Annotated[
        float, "a page that is refreshed this often, or read once a second, shows another power each time"
    ] = 1.2,
) -> tuple[tuple[int, int], ...]:
    """Return when the page stood still for longer than it can; empty where its power is not seen to move at other times."""
    trace = evidence.trace
    power = trace.column(_POWER).observed
    moved_ns = _moved_ns(power)
    if len(moved_ns) <= changes_count or float(np.median(np.diff(moved_ns))) > usual_s * 1e9:
        return ()
    edges_ns = np.append(moved_ns, power.at_ns[-1])
    long = np.flatnonzero(np.diff(edges_ns) > longest_s * 1e9)
    spans = [(int(edges_ns[i]), int(edges_ns[i + 1])) for i in long]
    return tuple(span for span in spans if _stands(trace, *span) and _is_read(power, *span))


def _moved_ns(power: Column) -> Times:
    """Return when the page first showed each value."""
    if not len(power):
        return power.at_ns
    moved = np.concatenate([[True], np.diff(power.values) != 0.0])
    return np.asarray(power.at_ns[moved], np.int64)


def _stands(trace: Trace, begin_ns: int, end_ns: int) -> bool:
    """Return whether no gauge of the page moved, and the page calls the GPU busy, which draws an even power only at rest."""
    for name in _PAGE:
        column = trace.column(name).observed
        values = column.values[(column.at_ns >= begin_ns) & (column.at_ns < end_ns)]
        if len(values) and (values != values[0]).any():
            return False
    return bool(trace.at("utilization_ratio", np.array([begin_ns], np.int64))[0] > 0.0)


def _is_read(power: Column, begin_ns: int, end_ns: int) -> bool:
    """Return whether somebody read the page meanwhile: a silence is no standstill."""
    inside = power.at_ns[(power.at_ns >= begin_ns) & (power.at_ns <= end_ns)]
    return len(inside) > 2 and float(np.diff(inside).max()) <= 0.5 * (end_ns - begin_ns)


def _silenced(trace: Trace, spans_ns: tuple[tuple[int, int], ...]) -> Trace:
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
