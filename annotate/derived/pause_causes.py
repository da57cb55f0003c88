"""Causes of idle stretches and late iterations: overlapping pauses of the host, else run-queue wait, else unknown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from annotate.derived.idle_gaps import IdleGaps, Span, overlap_ns
from annotate.evidence import Pause, Times, Values
from annotate.times.outlying import Outlying

OVERLAP, WAITED, NOTHING_KNOWN = "overlap in time", "run-queue wait", "nothing"
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class IdleCause:
    """One cause with its evidence, its count of stretches and its idle time.

    ``overlap_ratio`` is the mean share of these stretches that its pauses cover; 0 without pauses.
    """

    cause: str
    by: str
    gaps_count: int
    idle_s: float
    overlap_ratio: float = 0.0


def idle_causes(
    idle: IdleGaps,
    pauses: Sequence[Pause],
    run_wait_s: float | None = None,
    *,
    least_ratio: Annotated[float, "the specification: half of a stretch, or of the time that no pause explains"] = 0.5,
) -> tuple[IdleCause, ...]:
    """Return the causes of the irregular stretches, the largest first.

    Each stretch has the cause whose pauses cover most of it, at least half.
    """
    kept = idle.irregular
    begin_ns, end_ns = idle.begin_ns[kept], idle.end_ns[kept]
    return lost_time_causes(
        begin_ns, end_ns, idle.idle_s[kept], end_ns - begin_ns, pauses=pauses, run_wait_s=run_wait_s, least_ratio=least_ratio
    )


def late_entry_causes(
    late: Outlying,
    pauses: Sequence[Pause],
    run_wait_s: float | None = None,
    *,
    least_ratio: Annotated[float, "the specification: half of a stretch, or of the time that no pause explains"] = 0.5,
) -> tuple[IdleCause, ...]:
    """Return the causes of iterations that took longer than adjacent iterations, the largest first.

    A pause explains a late iteration if they overlap by at least half of the delay.
    """
    after = late.excess_s > 0
    places, lost_s = late.indices[after], late.delays_s
    begin_ns = late.at_ns[places]
    end_ns = begin_ns + np.round(late.took_s[places] * late.calls_count * 1e9).astype(np.int64)
    length_ns = np.round(lost_s * 1e9).astype(np.int64)
    return lost_time_causes(begin_ns, end_ns, lost_s, length_ns, pauses=pauses, run_wait_s=run_wait_s, least_ratio=least_ratio)


def lost_time_causes(
    begin_ns: Times,
    end_ns: Times,
    idle_s: Values,
    length_ns: Times,
    *,
    pauses: Sequence[Pause],
    run_wait_s: float | None,
    least_ratio: float,
) -> tuple[IdleCause, ...]:
    """Return the causes of intervals with this much lost time, the largest first.

    A cause explains an interval if its pauses cover at least ``least_ratio`` of ``length_ns``.
    """
    if not len(begin_ns):
        return ()
    names = sorted({pause.cause for pause in pauses})
    covered = np.zeros((len(names) + 1, len(begin_ns)))
    for row, name in enumerate(names, 1):
        covered[row] = overlap_ns(begin_ns, end_ns, _spans(pauses, name)) / np.maximum(length_ns, 1)
    covered = np.minimum(covered, 1.0)
    chosen = np.where(covered.max(axis=0) >= least_ratio, covered.argmax(axis=0), 0)
    found = [
        IdleCause(names[row - 1], OVERLAP, int(mine.sum()), float(idle_s[mine].sum()), float(np.average(covered[row][mine])))
        for row in range(1, len(names) + 1)
        if (mine := chosen == row).any()
    ]
    rest = chosen == 0
    if rest.any():
        rest_s = float(idle_s[rest].sum())
        waited = run_wait_s is not None and run_wait_s >= least_ratio * rest_s
        cause, by = ("run-queue", WAITED) if waited else (UNKNOWN, NOTHING_KNOWN)
        found.append(IdleCause(cause, by, int(rest.sum()), rest_s))
    return tuple(sorted(found, key=lambda each: -each.idle_s))


def _spans(pauses: Iterable[Pause], cause: str) -> list[Span]:
    return [(pause.begin_ns, pause.end_ns) for pause in pauses if pause.cause == cause]
