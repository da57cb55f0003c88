"""Hazards described in essays on benchmarks, such as undeclared sleeps between GEMMs, or a start from idle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from annotate.capsule.pack import unpack
from annotate.judge import judge
from annotate.verdict import Status
from tests.proof.asked import Scene, paused, seen
from tests.proof.cases import workload
from tests.proof.testified import Variant

VALID = Status.VALID
PLAIN = Variant.PLAIN
EVERY = (Variant.STAMPED, Variant.TIMES, PLAIN)
LARGE = workload("large gemm")
TRACES = Path(__file__).parents[1] / "traces"

SLEEPING = Scene(work=workload("sleeps between"))


@pytest.mark.parametrize("variant", EVERY)
def test_gemms_with_sleeps_are_not_sustained(variant: Variant) -> None:
    """GEMMs with sleeps of 20 ms run 18.6 % faster than GEMMs back to back, and the window is not valid."""
    rested, unbroken = (seen(Scene(work=work)).evidence.timings for work in (SLEEPING.work, LARGE))
    assert rested is not None
    assert unbroken is not None
    assert float(np.median(unbroken.took_s) / np.median(rested.took_s)) - 1.0 == pytest.approx(0.186, abs=0.01)
    assert seen(replace(SLEEPING, variant=variant)).verdict().status is not VALID


@pytest.mark.parametrize("variant", [Variant.STAMPED, Variant.TIMES])
def test_declared_sleeps_between_gemms_are_valid(variant: Variant) -> None:
    """Sleeps with a declared period that the loop keeps are part of the work, so the window is valid."""
    found = seen(replace(SLEEPING, variant=variant)).evidence
    assert found.timings is not None
    every_s = float(np.median(np.diff(found.timings.at_ns))) / 1e9
    assert judge(replace(found, declared={**found.declared, "every_s": every_s})).status is VALID


@pytest.mark.parametrize("work", ["gemm", "large gemm", "attention", "softmax"])
@pytest.mark.parametrize("length_s", [0.1, 0.4])
@pytest.mark.parametrize("variant", EVERY)
def test_short_window_from_idle_is_not_valid(work: str, length_s: float, variant: Variant) -> None:
    """Windows of 100 and 400 ms right after three idle seconds are not valid."""
    scene = replace(paused(3.0, work), length_s=length_s, variant=variant)
    assert seen(scene).verdict().status is not VALID


ESSAYS = {each.window.label: each for each in unpack((TRACES / "h200-windows.capsule").read_bytes())}
HEADLINES = (
    "from-idle-gemm-4096-1s",
    "from-idle-gemm-4096-0.4s",
    "short-50ms",
    "sleeps-20ms-gemm-16384",
    "sleeps-100ms-gemm-16384",
    "cpu-hogs-gemm-4096",
)


@pytest.mark.parametrize("label", HEADLINES)
def test_recorded_essay_is_not_valid(label: str) -> None:
    assert judge(ESSAYS[label]).status is not VALID
