"""Edits of evidence in a driver's form: delayed by a refresh, in the driver's steps, and with the driver's counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from annotate.case import Case
from annotate.derived.idle_gaps import STAMP_S
from annotate.evidence import SIGNALS as LANES
from annotate.evidence import Column, Evidence, Gap, Lane, Ownership, Process, Times, Timings, Trace, Values

_CLOCK_STEP_MHZ = 15.0


def with_columns(evidence: Evidence, **columns: Column) -> Evidence:
    return replace(evidence, trace=replace(evidence.trace, columns={**evidence.trace.columns, **columns}))


def valued(evidence: Evidence, name: str, change: Callable[[Times, Values], Values]) -> Evidence:
    """Return evidence with one signal's values changed; an unobserved signal stays unobserved."""
    column = evidence.trace.column(name)
    if not len(column):
        return evidence
    return with_columns(evidence, **{name: Column(column.at_ns, change(column.at_ns, column.values))})


def counted(evidence: Evidence, name: str, amount: float, begin_ns: int, end_ns: int) -> Evidence:
    """Return evidence with a counter increased by ``amount``, evenly over a stretch; in the fast lane once per refresh."""
    refresh_ns = evidence.trace.refresh_of_ns(name) if LANES[name] == Lane.FAST else 1

    def more(at_ns: Times, values: Values) -> Values:
        shown_ns = at_ns - at_ns % refresh_ns
        return np.asarray(values + np.round(amount * np.clip((shown_ns - begin_ns) / max(1, end_ns - begin_ns), 0.0, 1.0)))

    return valued(evidence, name, more)


def flagged(evidence: Evidence, mask: int, begin_ns: int, end_ns: int) -> Evidence:
    """Return evidence with event reasons over a stretch, shown from the refresh after its start to the refresh after its end."""
    refresh_ns = evidence.trace.refresh_of_ns("event_reasons_mask")

    def more(at_ns: Times, values: Values) -> Values:
        shown_ns = at_ns - at_ns % refresh_ns
        held = (shown_ns >= begin_ns) & (shown_ns < end_ns)
        return np.where(held, np.nan_to_num(values).astype(np.int64) | mask, values).astype(np.float64)

    return valued(evidence, "event_reasons_mask", more)


def clocked(evidence: Evidence, ratio: Callable[[Values], Values], *, beta: float | None = None) -> Evidence:
    """Return evidence with the clock scaled by ``ratio`` (a function of seconds since the start), in NVML and stamps.

    With ``beta`` the iterations take correspondingly longer.
    """
    begin_ns = evidence.window.begin_ns
    refresh_ns = evidence.trace.refresh_of_ns("sm_clock_mhz")

    def shown(at_ns: Times, values: Values) -> Values:
        seen_ns = at_ns - at_ns % refresh_ns
        return np.asarray(_CLOCK_STEP_MHZ * np.round(values * ratio((seen_ns - begin_ns) / 1e9) / _CLOCK_STEP_MHZ))

    evidence = valued(evidence, "sm_clock_mhz", shown)
    timings = evidence.timings
    if timings is None:
        return evidence
    share = ratio((timings.at_ns - begin_ns) / 1e9)
    clock_mhz = None if timings.sm_clock_mhz is None else timings.sm_clock_mhz * share
    took_s = timings.took_s if beta is None else timings.took_s * share**-beta
    return replace(evidence, timings=replace(timings, took_s=took_s, sm_clock_mhz=clock_mhz))


def timed(evidence: Evidence, change: Callable[[Timings, Values], Values]) -> Evidence | None:
    """Return evidence with the times ``change(timings, seconds since the window began)``; None without times."""
    timings = evidence.timings
    if timings is None:
        return None
    took_s = change(timings, (timings.at_ns - evidence.window.begin_ns) / 1e9)
    return replace(evidence, timings=replace(timings, took_s=took_s))


def joined(evidence: Evidence, process: Process, begin_ns: int, end_ns: int) -> Evidence:
    """Return evidence with another process in an interval's process lists; an unlisted one only in lists with utilisation."""

    def asked(process_list_processes: tuple[Process, ...]) -> bool:
        return any(each.utilization_ratio is not None for each in process_list_processes)

    process_lists = []
    for process_list in evidence.trace.process_lists:
        busy = asked(process_list.processes)
        there = process if busy else replace(process, utilization_ratio=None)
        seen = begin_ns <= process_list.at_ns < end_ns and (process.listed or busy)
        process_lists.append(replace(process_list, processes=(*process_list.processes, there)) if seen else process_list)
    return replace(evidence, trace=replace(evidence.trace, process_lists=tuple(process_lists)))


# The keywords of these functions are fields of records with different types, hence Any.


def foreign(pid: int = 60_999, **facts: Any) -> Process:
    return replace(Process(pid=pid, name="neighbour", user="somebody", ownership=Ownership.FOREIGN), **facts)


def dark(evidence: Evidence, begin_ns: int, end_ns: int) -> Evidence:
    """Return evidence without signal readings and process lists in a stretch, with the sampler's gaps for the stretch."""

    def kept(column: Column) -> Column:
        stay = (column.at_ns <= begin_ns) | (column.at_ns >= end_ns)
        return Column(column.at_ns[stay], column.values[stay])

    trace: Trace = evidence.trace
    return replace(
        evidence,
        trace=replace(
            trace,
            columns={name: kept(column) for name, column in trace.columns.items()},
            process_lists=tuple(c for c in trace.process_lists if not begin_ns < c.at_ns < end_ns),
            gaps=(*trace.gaps, *(Gap(begin_ns=begin_ns, end_ns=end_ns, lane=lane) for lane in (Lane.FAST, Lane.PROCESSES))),
        ),
    )


def hosted(evidence: Evidence, **facts: Any) -> Evidence:
    return replace(evidence, host=replace(evidence.host, **facts))


def declaring(evidence: Evidence, **facts: str | float | bool | None) -> Evidence:
    return replace(evidence, declared={**evidence.declared, **facts})


def devised(evidence: Evidence, **facts: Any) -> Evidence:
    assert evidence.device is not None
    return replace(evidence, device=replace(evidence.device, **facts))


def stretch(evidence: Evidence, length_s: float, rng: np.random.Generator, *, margin_s: float = 0.2) -> tuple[int, int]:
    """Return a stretch of this length inside the window, away from the window's edges if there is room."""
    begin_ns, end_ns = evidence.window.begin_ns, evidence.window.end_ns
    length_ns = min(round(length_s * 1e9), end_ns - begin_ns)
    room_ns = end_ns - begin_ns - length_ns
    margin_ns = min(round(margin_s * 1e9), room_ns // 2)
    start_ns = begin_ns + margin_ns + round(rng.random() * max(0, room_ns - 2 * margin_ns))
    return start_ns, start_ns + length_ns


def open_ratio(evidence: Evidence) -> float:
    """Return the ratio by which times can be too short without an unexplained remainder.

    Stamps between calls take time, and utilisation can read below the timed ratio.
    """
    timings, accounts = evidence.timings, Case(evidence).accounts
    if timings is None or accounts is None:
        return 0.0
    stamps_ratio = STAMP_S * len(timings.at_ns) / evidence.window.length_s if timings.sm_clock_mhz is not None else 0.0
    return stamps_ratio + max(0.0, -accounts.rest_ratio)


def is_capped(evidence: Evidence) -> bool:
    values = evidence.within("event_reasons_mask").values
    return bool(len(values) and (np.nan_to_num(values).astype(np.int64) & 4).astype(bool).mean() > 0.5)
