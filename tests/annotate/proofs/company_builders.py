"""Simulated evidence of windows with neighbours: process lists, times with late iterations, records; and proof 4's status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from annotate.budget import Bound, Group, Number
from annotate.case import Case
from annotate.claims import Claim
from annotate.combine import decide
from annotate.evidence import Evidence, Ownership, Process, ProcessList, RecordedWindow, Timings, WorkRecord
from annotate.proofs import nobody_else
from annotate.user_policy import Policy
from annotate.verdict import Status
from tests.annotate.bounds import clean
from tests.annotate.builders import BEGIN_NS

FOREIGN_PID = 7777
KERNEL_S = 203e-6


def process(pid: int = FOREIGN_PID, **changes: object) -> Process:
    """Return a listed foreign process of unknown memory and utilisation."""
    made = Process(pid=pid, name="train", user="other", memory_bytes=None, ownership=Ownership.FOREIGN)
    return replace(made, **changes)  # type: ignore[arg-type]  # the fields' own types


def with_lists(of: Evidence, change: Callable[[int, ProcessList], ProcessList | None]) -> Evidence:
    """Return the same evidence with each list changed, or dropped if ``change`` returns None."""
    lists = [change(i, each) for i, each in enumerate(of.trace.process_lists)]
    return replace(of, trace=replace(of.trace, process_lists=tuple(each for each in lists if each is not None)))


def joined_by(of: Evidence, *others: Process) -> Evidence:
    return with_lists(of, lambda _, each: replace(each, processes=(*each.processes, *others)))


def times(
    *, length_s: float = 6.0, late_every: int = 0, late_s: float = 2.4e-3, kernel_s: float = KERNEL_S, slower_ratio: float = 0.0
) -> Timings:
    """Return consecutive iterations with 0.1 % of noise; on average every ``late_every``-th is late by ``late_s``."""
    rng = np.random.default_rng(7)
    count = int(length_s / kernel_s)
    took_s = kernel_s * (1.0 + slower_ratio) * (1.0 + 1e-3 * rng.standard_normal(count))
    if late_every:
        took_s += late_s * (rng.random(count) < 1.0 / late_every)
    at_s = np.concatenate([[0.0], np.cumsum(took_s + 4e-6)[:-1]])
    kept = at_s < length_s - kernel_s - late_s
    return Timings(BEGIN_NS + np.round(at_s[kept] * 1e9).astype(np.int64), took_s[kept])


def record(median_s: float = KERNEL_S, windows_count: int = 5) -> WorkRecord:
    """Return a record of steady windows, whose numbers differ by 0.05 % from one to the next."""
    steps = [1.0 + 1e-3 * (i - 2) / 2 for i in range(windows_count)]
    return WorkRecord(
        tuple(
            RecordedWindow(
                calls_rate_hz=step / (median_s + 4e-6), mean_s=median_s * step, median_s=median_s * step,
                median_at_clock_s=median_s * step,
            )
            for step in steps
        ),
        clock_mhz=1980.0,
    )  # fmt: skip


def sizes(causes: Sequence[Bound]) -> dict[Number, float]:
    """Return each number's bound: the sum of each group's largest, infinite if one has no bound."""
    out: dict[Number, float] = {}
    for number in Number:
        groups: dict[Group, float] = {}
        for bound in causes:
            if bound.number is number:
                groups[bound.group] = max(groups.get(bound.group, 0.0), bound.size_ratio)
        out[number] = sum(groups.values())
    return out


def status(of: Evidence, *, tolerance_ratio: float = 0.01, claim: Claim = Claim.SUSTAINED) -> Status:
    """Return the status that proof 4 and its bounds alone give a window."""
    case = Case(of, claim)
    grounds = clean(*nobody_else.bounds(case), has_times=case.has_times)
    proof = nobody_else.prove(case, {})
    proofs = tuple(proof if each.proof is proof.proof else each for each in grounds.proofs)
    return decide(replace(grounds, proofs=proofs), Policy(claim=claim, tolerance_ratio=tolerance_ratio)).status
