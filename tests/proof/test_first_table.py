"""The windows of the specification's first table, each with the status that is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from annotate.budget import Number
from annotate.capsule.pack import unpack
from annotate.claims import Claim
from annotate.compare.decision import Decision, decide
from annotate.evidence import Pause
from annotate.judge import judge
from annotate.policy import Policy
from annotate.verdict import Status
from tests.proof.asked import DEFAULT, Scene, due, finding, growing, seen, severities
from tests.proof.cases import CLOCKED, made, workload
from tests.proof.testified import Variant
from tests.truth_windows import truth_windows

VALID, FLAGGED, REJECTED = Status.VALID, Status.FLAGGED, Status.REJECTED
STAMPED, TIMES, DURATIONS, PLAIN = Variant.STAMPED, Variant.TIMES, Variant.DURATIONS, Variant.PLAIN
EVERY = (STAMPED, TIMES, PLAIN)
GEMM, LARGE, SOFTMAX, DECODING = (workload(name) for name in ("gemm", "large gemm", "softmax", "decoding"))
TOGGLED = made("sm-clock", "silent", (0.0, 1.0), (2.0, 3.0), (4.0, 5.0), depth=1.0 - 1500.0 / 1980.0)
SHORT_LEAD = made("records-short", "no-lead", (0.0, 4.0), depth=0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A row of the table: the window, its true throughput, the statuses that are due, and the rule that says so."""

    scene: Scene
    throughput: float
    statuses: tuple[Status, ...]
    rule: str | None = None
    variants: tuple[Variant, ...] = EVERY


def stalled(work: str, kind: str, length_s: float, *stall: tuple[float, float]) -> Scene:
    return Scene(work=workload(work), happens=(made("host-stall", kind, *stall),), length_s=length_s)


def paused(rest_s: float, work: str = "gemm") -> Scene:
    return Scene(work=workload(work), happens=(made("pause-before", "rest", (-rest_s, 0.0)),), rest_s=rest_s)


def started(rest_s: float) -> Scene:
    """A window before which a daemon took this long to start: it saw no more of the time before."""
    return replace(paused(rest_s), happens=(*paused(rest_s).happens, SHORT_LEAD))


def pause_ago(seed: int) -> Scene:
    """A window 2.5 s after a pause of a second."""
    return Scene(work=GEMM, happens=(made("pause-before", "rest", (-3.5, -2.5)),), rest_s=3.5, seed=seed)


TABLE: Mapping[str, Due] = {
    "an idle GPU with a context": Due(
        scene=Scene(work=SOFTMAX, happens=(made("idle-stretch", "waits", (-3.7, 4.0)),)), throughput=-1.0,
        statuses=(REJECTED,), rule="no-work", variants=(PLAIN,),
    ),
    "a clock that toggles each second": Due(
        scene=Scene(work=CLOCKED, happens=(TOGGLED,), length_s=6.0), throughput=-0.123, statuses=(REJECTED,), rule="clock-levels",
    ),
    "a clock 25 % lower for a third": Due(
        scene=Scene(work=CLOCKED, happens=(made("sm-clock", "silent", (1.0, 2.0), depth=0.25),), length_s=3.0),
        throughput=-0.0846, statuses=(REJECTED,), rule="clock-levels",
    ),
    "a clock 10 % lower for a third": Due(
        scene=Scene(work=CLOCKED, happens=(made("sm-clock", "silent", (1.0, 2.0), depth=0.1),), length_s=3.0),
        throughput=-0.0338, statuses=(FLAGGED,), rule="clock-levels", variants=(STAMPED,),
    ),
    "times that grow by 30 %": Due(
        scene=Scene(work=CLOCKED, happens=(growing(0.3, 4.0),)), throughput=-0.125, statuses=(REJECTED,),
        rule="iteration-growth", variants=(STAMPED, TIMES),
    ),
    "a stall of 0.4 s in 4.4 s": Due(
        scene=stalled("gemm", "sleep", 4.4, (1.5, 1.9)), throughput=-0.0861, statuses=(REJECTED,), rule="idle-stretch",
    ),
    "times 100 times too short": Due(
        scene=Scene(work=GEMM, happens=(made("times-wrong", "scaled", (0.0, 4.0), depth=0.99),)), throughput=0.0,
        statuses=(REJECTED,), rule="unaccounted-time", variants=(STAMPED, TIMES, DURATIONS),
    ),
    "a neighbour named now and then": Due(
        scene=Scene(work=DECODING, happens=(made("neighbour-slices", "listed", (-3.0, 4.0), depth=0.1),)), throughput=-0.0541,
        statuses=(FLAGGED, REJECTED), rule="contention-process",
    ),
    "a stall of 0.2 s": Due(
        scene=stalled("softmax", "sleep", 4.06, (1.5, 1.7)), throughput=-0.0493, statuses=(FLAGGED,), rule="idle-stretch",
    ),
    "a stall of 0.3 s in 3 s": Due(
        scene=stalled("softmax", "sleep", 3.0, (1.5, 1.8)), throughput=-0.1, statuses=(REJECTED,), rule="idle-stretch",
    ),
    "zeros for a third": Due(
        scene=Scene(work=LARGE, happens=(made("work-growth", "easier-data", (1.0, 2.0)),), length_s=3.0), throughput=0.0712,
        statuses=(REJECTED,), rule="clock-levels",
    ),
    "a pause of 0.05 s before": Due(scene=paused(0.05), throughput=0.004, statuses=(VALID,)),
    "a pause of 0.3 s before": Due(scene=paused(0.3), throughput=0.0068, statuses=(VALID,)),
    "a pause of 1.5 s before": Due(scene=paused(1.5), throughput=0.0067, statuses=(VALID,)),
    "a pause before uncapped work": Due(scene=paused(1.5, "softmax"), throughput=0.0, statuses=(VALID,)),
    "a loop held up for 76 ms by chance": Due(
        scene=stalled("softmax", "preempted", 4.0, (1.2, 1.276)), throughput=-0.019, statuses=(FLAGGED,), rule="idle-stretch",
    ),
    "a loop held up for 255 ms by chance": Due(
        scene=stalled("softmax", "paging", 4.0, (1.2, 1.455)), throughput=-0.0639, statuses=(REJECTED,), rule="idle-stretch",
    ),
    "clean, 2.5 s after a pause, 1": Due(scene=pause_ago(1), throughput=0.0017, statuses=(VALID,)),
    "clean, 2.5 s after a pause, 2": Due(scene=pause_ago(2), throughput=0.0016, statuses=(VALID,)),
    "clean, 2.5 s after a pause, 3": Due(scene=pause_ago(3), throughput=0.0016, statuses=(VALID,)),
    "the first after a daemon's start, 0.8 s": Due(scene=started(0.8), throughput=0.0049, statuses=(VALID,)),
    "the first after a daemon's start, 2.4 s": Due(scene=started(2.4), throughput=0.0061, statuses=(VALID,)),
    "a collection of 88 ms": Due(
        scene=Scene(work=SOFTMAX, happens=(made("garbage-pauses", "collector", (1.2, 1.288)),), length_s=2.5), throughput=-0.0353,
        statuses=(FLAGGED,), rule="idle-stretch",
    ),
}  # fmt: skip

# Rows that the judge does not give yet, and why: each is a strict failure, so that whoever mends it takes it out.
LATE_CALLS = (
    "outliers adds the late calls that every window has (0.17 %) to the stall of 4.92 %, and their sum exceeds five tolerances"
)
AFTER_PAUSE = "the excess after a pause (0.79 %), its share of late calls and the first gap add up beyond the tolerance; truth +0.4 to +0.7 %"
RAW_AFTER_PAUSE = (
    "without stamps the clock, the times and the clock's gaps count beside the excess after a pause (1.8 to 4 %; truth +0.7 %)"
)
PAUSE_SEEN = "the dip of a pause that ends at the window's begin counts as idle time inside it (idle-stretch, about 1 %)"
UNSURE_SIZE = "without times the estimate's far end counts: the nearer end of 6.4 % is below five tolerances"
KNOWN: Mapping[tuple[str, Variant], str] = {}


def cases() -> list[Any]:
    return [
        pytest.param(
            name, variant, id=f"{name}-{variant}", marks=finding(reason) if (reason := KNOWN.get((name, variant))) else ()
        )
        for name, row in TABLE.items()
        for variant in row.variants
    ]


@pytest.mark.parametrize(("name", "variant"), cases())
def test_first_table_row_gets_what_is_due(name: str, variant: Variant) -> None:
    row = TABLE[name]
    found = seen(replace(row.scene, variant=variant))
    assert found.truth.throughput == pytest.approx(row.throughput, abs=1.5e-3)
    verdict = found.verdict()
    due(verdict, *row.statuses)
    if row.rule is not None:
        assert severities(verdict)[row.rule] in ("flag", "reject"), str(verdict)
