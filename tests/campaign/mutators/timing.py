"""Hazards of timers: missing waits, wrong streams, and overhead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.evidence import Evidence
from annotate.ranges import TOLERANCE_RATIO
from tests.campaign.edits import declaring, valued
from tests.campaign.mutator import Mutator, limit_of


def _unwaited(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    late_s = multiple * limit_of("missing-sync", "after_ratio") * evidence.window.length_s + 1e-6
    return declaring(evidence, timer="host", sync_s=late_s)


def _empty(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Put events on an empty stream while the kernel runs on another; events with stamps in between time the host."""
    timings = evidence.timings
    if timings is None:
        return None
    stamped = float(np.median(timings.took_s)) > 1e-3 and rng.random() < 0.5
    took_s = rng.normal(56e-6, 10e-6, len(timings.took_s)) if stamped else rng.normal(4e-6, 0.5e-6, len(timings.took_s))
    took_s = took_s.clip(2e-6)
    there = {name: fact for name, fact in evidence.declared.items() if name != "busy_ratio"}
    there |= {"stamp_spread_s": 2e-6} if stamped else {}
    return replace(evidence, timings=replace(timings, took_s=took_s, sm_clock_mhz=None), declared=there)


def _dry(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    """Slow the launches until the GPU idles after each call."""
    timings = evidence.timings
    if timings is None or np.median(timings.took_s) > 3e-4:
        return None
    idle = multiple * (1.0 - limit_of("host-bound", "fed_ratio"))
    evidence = valued(evidence, "utilization_ratio", lambda at_ns, ratio: np.round(ratio * max(0.05, 1.0 - idle), 2))
    # A call's time is then mostly the wait for its launch, and calls follow each other at once.
    took_s = np.diff(timings.at_ns, append=timings.at_ns[-1] + np.int64(timings.took_s[-1] * 1e9)) / 1e9 - 2e-6
    return replace(evidence, timings=replace(timings, took_s=np.maximum(took_s, 1e-6)))


def _short(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    timings = evidence.timings
    if timings is None:
        return None
    call_s = limit_of("short-kernel", "least_s") / multiple - 0.1e-6
    gap_s = 1.5e-6
    count = int(min(200_000, evidence.window.length_s / (call_s + gap_s)))
    at_ns = evidence.window.begin_ns + (np.arange(count) * (evidence.window.length_ns / count)).astype(np.int64)
    took_s = evidence.window.length_s / count - gap_s + rng.normal(0.0, 1e-8, count)
    calls = replace(timings, at_ns=at_ns, took_s=took_s if count < 200_000 else np.full(count, call_s), sm_clock_mhz=None)
    return replace(evidence, timings=calls)


def _costly_timer(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence | None:
    timings = evidence.timings
    if timings is None:
        return None
    return declaring(evidence, timer_overhead_s=multiple * TOLERANCE_RATIO * float(np.median(timings.took_s)))


def _replaced(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    return declaring(evidence, tampered="time.perf_counter")


MUTATORS = (
    Mutator(rule="missing-sync", inject=_unwaited, limit="1 % of the window still running when the body returned"),
    Mutator(rule="wrong-stream", inject=_empty),
    Mutator(rule="host-bound", inject=_dry, limit="30 % of the time without a kernel, kernels up to 0.3 ms"),
    Mutator(rule="short-kernel", inject=_short, limit="10 µs per call, divided by the multiple"),
    Mutator(rule="timer-overhead", inject=_costly_timer, limit="an overhead of 1 % of a reading"),
    Mutator(rule="timer-tampered", inject=_replaced),
)
