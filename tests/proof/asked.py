"""Simulated windows for the judge: design, disturbances, verdict and true deviation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from annotate.evidence import Evidence
from annotate.judge import judge
from annotate.user_policy import Policy
from annotate.verdict import Status, Verdict
from tests.proof.cases import design, made, workload
from tests.proof.disturbances import Disturbance
from tests.proof.pairs import Deviation, deviation, observed, runs
from tests.proof.shapes import Shape, pieces
from tests.proof.testified import Variant
from tests.proof.workloads import Workload

DEFAULT = Policy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A window to simulate: its work, length and disturbances, the rest before the window, and the recorded times."""

    work: Workload
    happens: tuple[Disturbance, ...] = ()
    length_s: float = 4.0
    rest_s: float = 0.0
    variant: Variant = Variant.STAMPED
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Seen:
    """The evidence of a simulated window, and the true deviation from the undisturbed window."""

    evidence: Evidence
    truth: Deviation

    def verdict(self, policy: Policy = DEFAULT) -> Verdict:
        return judge(self.evidence, policy)


@cache
def seen(scene: Scene) -> Seen:
    by = replace(design(scene.work, scene.length_s, rest_s=scene.rest_s), variant=scene.variant)
    clean, disturbed = runs(by, scene.happens, scene.seed)
    return Seen(
        observed(by, disturbed, scene.happens, scene.seed),
        deviation(disturbed.iterations, clean.iterations),
    )


def growing(depth: float, length_s: float) -> Disturbance:
    """Return a linear growth of the work by this share from the window's start to its end."""
    made = pieces(Shape.DRIFT, 0.0, 0.0, length_s, np.random.default_rng(0))
    return Disturbance(
        family="work-growth", kind="grows", shape=Shape.DRIFT, begin_s=0.0, length_s=length_s, depth=depth, pieces=made
    )


def paused(rest_s: float, work: str = "gemm") -> Scene:
    """Return the scene of a window right after a rest of the GPU."""
    return Scene(work=workload(work), happens=(made("pause-before", "rest", (-rest_s, 0.0)),), rest_s=rest_s)


def due(verdict: Verdict, *statuses: Status) -> None:
    """Assert one of these statuses, with the verdict as the message."""
    assert verdict.status in statuses, str(verdict)


def severities(verdict: Verdict) -> dict[str, str | None]:
    """Return the severity of each hazard in the verdict, by rule."""
    return {hazard.rule: hazard.severity for hazard in verdict.hazards}
