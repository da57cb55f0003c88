"""Hand-made runs for tests of the generator."""

from __future__ import annotations

from dataclasses import replace

from annotate.evidence import Evidence
from tests.proof.disturbances import Disturbance
from tests.proof.pairs import Design, Run, observed, runs
from tests.proof.shapes import Piece, Shape
from tests.proof.testified import Variant
from tests.proof.timeline import Plan
from tests.proof.workloads import WORKLOADS, Workload

CLOCKED = next(each for each in WORKLOADS if each.name == "fp32 gemm")
CLOCKED = replace(CLOCKED, name="clock-bound", kernel=replace(CLOCKED.kernel, beta=1.0))  # time is inverse to the clock


def workload(name: str) -> Workload:
    return next(each for each in WORKLOADS if each.name == name)


def made(family: str, kind: str, *stretches: tuple[float, float], depth: float = 1.0, inside: bool = False) -> Disturbance:
    """Return a disturbance in these stretches, in seconds since the window began."""
    return Disturbance(
        family=family, kind=kind, shape=Shape.PULSE, begin_s=stretches[0][0], length_s=stretches[0][1] - stretches[0][0],
        depth=depth, pieces=tuple(Piece(begin_s, end_s) for begin_s, end_s in stretches), visible_s=1.0, inside=inside,
    )  # fmt: skip


def design(of: Workload, length_s: float = 3.0, *, rest_s: float = 0.0, queue_s: float = 0.0) -> Design:
    """Return a design with stamps and a warm-up."""
    plan = Plan(begin_s=3.9 + rest_s, length_s=length_s, enter_s=0.002, queue_s=queue_s)
    return Design(workload=of, variant=Variant.STAMPED, plan=plan)


def run_twice(
    of: Workload, *disturbances: Disturbance, length_s: float = 3.0, rest_s: float = 0.0, queue_s: float = 0.0, seed: int = 1
) -> tuple[Run, Run, Evidence]:
    """Return the clean run, the disturbed one, and the disturbed one's evidence."""
    by = design(of, length_s, rest_s=rest_s, queue_s=queue_s)
    clean, disturbed = runs(by, disturbances, seed)
    return clean, disturbed, observed(by, disturbed, disturbances, seed)
