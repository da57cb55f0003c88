"""Pairs of a disturbed and a clean window with a known true deviation; a pair follows from its seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from annotate.evidence import Evidence, Values
from tests.annotate.builders import DEVICE, UUID
from tests.proof.board import Board, Course
from tests.proof.chance import generator, log_uniform
from tests.proof.company import Company, guests, memory_bytes
from tests.proof.disturbances import Disturbance, drawn, family_name
from tests.proof.shown import Shown
from tests.proof.sight import sight
from tests.proof.stored import EPOCH_NS, evidence, window_of
from tests.proof.streams import Iterations, iterations
from tests.proof.testified import Variant, declared_facts, host, timings
from tests.proof.timeline import REST_S, Plan, Timeline, timeline
from tests.proof.workloads import WORKLOADS, Workload

LENGTH_S = (0.5, 12.0)
_WARM_S = (3.2, 4.2)
_LOAD_STEP_S, _LOAD_SD_RATIO = 0.25, 0.002
_REPEAT = 1_000_003  # added to the seed of a repeated run, for other noise
_VARIANTS = {Variant.PLAIN: 0.25, Variant.TIMES: 0.25, Variant.DURATIONS: 0.1, Variant.STAMPED: 0.4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """The relative deviation (ratio − 1) of one run from another, in throughput and in the reported times."""

    throughput: float
    mean: float
    median: float
    median_at_one_clock: float


NUMBERS = tuple(field.name for field in fields(Deviation))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A disturbed window, the clean window with the same noise, and the true deviation between both."""

    seed: int
    family: str
    words: str
    workload: str
    variant: Variant
    length_s: float
    disturbances: tuple[Disturbance, ...]
    disturbed: Evidence
    clean: Evidence
    truth: Deviation


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """The common properties of a pair's runs, without noise and disturbances."""

    workload: Workload
    variant: Variant
    plan: Plan
    batch_count: int = 1
    stamped: bool = True

    @staticmethod
    def drawn(seed: int, disturbances: Sequence[Disturbance], length_s: float) -> Design:
        rng = generator(seed, "design")
        workload = WORKLOADS[int(rng.integers(len(WORKLOADS)))]
        variants = list(_VARIANTS)
        variant = variants[int(rng.choice(len(variants), p=list(_VARIANTS.values())))]
        rest_s = max((each.length_s for each in disturbances if each.family == "pause-before"), default=0.0)
        return Design(
            workload=workload,
            variant=variant,
            plan=Plan(
                begin_s=round(REST_S + float(rng.uniform(*_WARM_S)) + rest_s, 6),
                length_s=length_s,
                enter_s=float(rng.uniform(1e-3, 5e-3)),
                queue_s=log_uniform(rng, 1e-3, 3e-2) if rng.random() < 0.3 else 0.0,
            ),
            batch_count=10 if workload.kernel.time_s < 3e-4 and rng.random() < 0.15 else 1,
            stamped=bool(variant is Variant.STAMPED or rng.random() < 0.6),
        )


@dataclass(frozen=True, slots=True)
class Run:
    """One simulated run: its timeline, the course of the board, and its iterations."""

    timeline: Timeline
    course: Course
    iterations: Iterations


def length_s(seed: int) -> float:
    """Draw the length of a pair's windows, in seconds."""
    return round(log_uniform(generator(seed, "length"), *LENGTH_S), 6)


def pair(seed: int) -> Pair:
    """Return the pair of this seed, which is equal on every machine."""
    family, window_s = family_name(seed), length_s(seed)
    disturbances = drawn(family, seed, window_s)
    design = Design.drawn(seed, disturbances, window_s)
    clean, disturbed = runs(design, disturbances, seed)
    return Pair(
        seed=seed,
        family=family,
        words="; ".join(each.words for each in disturbances) or "nothing happens",
        workload=design.workload.name,
        variant=design.variant,
        length_s=window_s,
        disturbances=disturbances,
        disturbed=observed(design, disturbed, disturbances, seed),
        clean=observed(design, clean, (), seed),
        truth=deviation(disturbed.iterations, clean.iterations),
    )


def repeat(seed: int) -> Pair:
    """Return two clean windows of one design that differ in noise alone, and the deviation between both."""
    window_s = length_s(seed)
    design = Design.drawn(seed, (), window_s)
    first, _ = runs(design, (), seed)
    second, _ = runs(design, (), seed + _REPEAT)
    return Pair(
        seed=seed,
        family="repeat",
        words="nothing happens, twice",
        workload=design.workload.name,
        variant=design.variant,
        length_s=window_s,
        disturbances=(),
        disturbed=observed(design, second, (), seed + _REPEAT),
        clean=observed(design, first, (), seed),
        truth=deviation(second.iterations, first.iterations),
    )


def runs(design: Design, disturbances: tuple[Disturbance, ...], seed: int) -> tuple[Run, Run]:
    """Run the design without and with the disturbances, on the same noise and with a common start of the simulation."""
    return _runs(design.plan, design.workload, disturbances, seed)


@lru_cache(maxsize=16)  # the recorded times change no run: windows of several variants share their simulation
def _runs(plan: Plan, work: Workload, disturbances: tuple[Disturbance, ...], seed: int) -> tuple[Run, Run]:
    workload = _restless(work, seed)
    load = _load(workload, seed)
    calm = timeline(plan, workload, (), load, _LOAD_STEP_S)
    until_ns = round((plan.end_s + workload.kernel.time_s + plan.tail_s) * 1e9)
    board = Board(calm, f"proof/{seed}")
    stirred = timeline(plan, workload, disturbances, load, _LOAD_STEP_S)
    other = None
    if _differ(calm, stirred):
        board.run(round(_parting_s(calm, stirred) * 1e9))
        other = board.fork(stirred)
        other.run(until_ns)
    board.run(until_ns)
    clean = _run(calm, board.course(), plan, (), seed)
    if other is not None:
        return clean, _run(stirred, other.course(), plan, disturbances, seed)
    return clean, _run(calm, board.course(), plan, disturbances, seed)


def deviation(disturbed: Iterations, clean: Iterations) -> Deviation:
    """Return the true relative deviation of each number."""

    def of(first: float, second: float) -> float:
        return round(first / second - 1.0, 12) + 0.0  # never minus zero

    return Deviation(
        throughput=of(disturbed.rate_hz, clean.rate_hz),
        mean=of(float(disturbed.took_s.mean()), float(clean.took_s.mean())),
        median=of(float(np.median(disturbed.took_s)), float(np.median(clean.took_s))),
        median_at_one_clock=of(float(np.median(disturbed.at_one_clock_s)), float(np.median(clean.at_one_clock_s))),
    )


def _run(along: Timeline, course: Course, plan: Plan, disturbances: tuple[Disturbance, ...], seed: int) -> Run:
    return Run(along, course, iterations(along, course, plan, disturbances, seed))


def _differ(first: Timeline, second: Timeline) -> bool:
    """Return whether the intervals differ.  A disturbance of iterations or of the watcher alone changes no interval."""
    return len(first.stretches) != len(second.stretches) or first.stretches != second.stretches


def _parting_s(first: Timeline, second: Timeline) -> float:
    """Return the start of the first interval that differs, in seconds."""
    count = min(len(first.stretches), len(second.stretches))
    for i in range(count):
        if first.stretches[i] != second.stretches[i]:
            return float(first.edges_s[i])
    return float(first.edges_s[count - 1])


def _restless(workload: Workload, seed: int) -> Workload:
    """Return the workload with its unrest scaled by a factor drawn from the seed."""
    factor = log_uniform(generator(seed, "unrest"), 0.4, 0.9)
    return replace(workload, kernel=replace(workload.kernel, unrest_ratio=workload.kernel.unrest_ratio * factor))


def _load(workload: Workload, seed: int) -> Values:
    """Return the slow noise of a kernel's power, one factor per step.

    Half of the capped runs also draw more power in one step of every second.  The capped clock then dips every second.
    """
    rng = generator(seed, "load")
    count = round(60.0 / _LOAD_STEP_S)
    load = 1.0 + _LOAD_SD_RATIO * rng.standard_normal(count)
    if workload.capped and rng.random() < 0.5:
        load[int(rng.integers(4)) :: 4] *= 1.0 + float(rng.uniform(0.08, 0.16))
    return np.asarray(load / load.mean())


def observed(design: Design, run: Run, disturbances: tuple[Disturbance, ...], seed: int) -> Evidence:
    plan, ran = design.plan, run.iterations
    seen = sight(disturbances, seed, plan.length_s)
    window = window_of(ran.window_begin_s, ran.window_end_s, design.workload.name)
    company = guests(disturbances, round(plan.begin_s * 1e9))
    shown = Shown(run.timeline, run.course, seen, lambda at_ns: memory_bytes(company, at_ns), seed)
    lists = Company(run.timeline, company, seen, UUID, seed)
    found = evidence(window, shown, lists, seen, seed, last_ns=int(run.course.end_ns[-1]))
    limit_w = float(run.timeline.levels.power_limit_w[run.timeline.index(plan.begin_s)])
    stamped_mhz = None
    if design.stamped:
        edges_ns = np.array([ran.window_begin_s, ran.window_end_s]) * 1e9
        cycles = np.cumsum(np.diff(run.course.end_ns, prepend=0) * run.course.clock_ratio * 1980.0)
        stamped_mhz = float(np.diff(np.interp(edges_ns, run.course.end_ns, cycles))[0] / np.diff(edges_ns)[0])
    return replace(
        found,
        device=replace(DEVICE, power_limit_w=round(limit_w, 3)),
        host=host(ran, design.workload, disturbances, seed) if seen.host else found.host,
        declared=declared_facts(design.variant, ran, disturbances, stamped_mhz),
        timings=timings(design.variant, ran, window, EPOCH_NS, design.batch_count, seed),
    )
