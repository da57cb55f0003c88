"""The stage for windows that are meant to fool the judge: two runs of a simulated H200, and changes of the evidence.

The physics is the proof's own board.  An act is one loop of kernels, run once undisturbed and once with edits of the board's
levels.  Both runs share their noise.  Functions then change the evidence of the driver, the host and the process, only in ways
that are possible on a real machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from annotate.evidence import (
    Column,
    Evidence,
    Fact,
    Gap,
    Ownership,
    Process,
    ProcessList,
    RecordedWindow,
    Times,
    Timings,
    Trace,
    Values,
    Visibility,
    WorkRecord,
)
from tests.proof.board import Board
from tests.proof.pairs import Design, Deviation, Run, deviation, observed
from tests.proof.streams import Iterations, iterations
from tests.proof.testified import Variant
from tests.proof.timeline import Plan, Timeline, timeline
from tests.proof.workloads import WORKLOADS, Workload

WORK: Mapping[str, Workload] = {each.name: each for each in WORKLOADS}
FOREIGN_PID = 9913


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change of one of the board's levels from ``begin_s`` to ``end_s``, in seconds since the window began.

    The value multiplies ``clock``, ``mem_clock``, ``slower`` and ``load``, and replaces any other level.
    """

    begin_s: float
    end_s: float
    level: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One benchmark: its loop, the window's length, the recorded times, and the length of the warm-up."""

    work: Workload
    length_s: float = 4.0
    variant: Variant = Variant.PLAIN
    warm_s: float = 6.0
    seed: int = 7
    stamped: bool = True  # at the window's edges
    batch_count: int = 1
    queue_s: float = 0.01

    @property
    def design(self) -> Design:
        plan = Plan(begin_s=0.2 + self.warm_s, length_s=self.length_s, enter_s=1e-4, queue_s=self.queue_s)
        return Design(workload=self.work, variant=self.variant, plan=plan, batch_count=self.batch_count, stamped=self.stamped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One benchmark's disturbed and clean run."""

    setting: Setting
    ran: Run
    clean: Run

    @property
    def truth(self) -> dict[str, float]:
        """Return the deviation of each number: disturbed over clean, − 1."""
        return truth_of(deviation(self.ran.iterations, self.clean.iterations))

    def evidence(self) -> Evidence:
        return observed(self.setting.design, self.ran, (), self.setting.seed)

    def reporting(self, change: Callable[[Iterations], Iterations]) -> Evidence:
        """Return the evidence with changed iterations in the process's report, and the same window."""
        ran = self.ran.iterations
        changed = replace(change(ran), window_begin_s=ran.window_begin_s, window_end_s=ran.window_end_s)
        return observed(self.setting.design, replace(self.ran, iterations=changed), (), self.setting.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A window to be judged: its evidence, the claim, and the true deviation of its numbers."""

    evidence: Evidence
    truth: Mapping[str, float] = field(default_factory=dict)
    claim: str = "sustained"


def truth_of(found: Deviation) -> dict[str, float]:
    return {
        "throughput": found.throughput,
        "mean": found.mean,
        "median": found.median,
        "median_at_clock": found.median_at_one_clock,
    }


def act(setting: Setting, edits: Sequence[Edit] = (), always: Sequence[Edit] = ()) -> Act:
    """Run a benchmark with and without the edits; ``always`` applies to both runs."""
    plan, work, seed = setting.design.plan, setting.work, setting.seed
    disturbed = _run(plan, work, (*always, *edits), seed)
    return Act(setting=setting, ran=disturbed, clean=_run(plan, work, tuple(always), seed) if edits else disturbed)


@lru_cache(maxsize=16)  # many acts have the same clean run
def _run(plan: Plan, work: Workload, edits: tuple[Edit, ...], seed: int) -> Run:
    along = _edited(timeline(plan, work, (), np.ones(1), 1.0), plan, edits)
    board = Board(along, f"fooling {seed}")
    # The extra second gives a slowed last iteration room to end.
    board.run(round((plan.end_s + work.kernel.time_s + plan.tail_s + 1.0) * 1e9))
    course = board.course()
    return Run(timeline=along, course=course, iterations=iterations(along, course, plan, (), seed))


def _edited(plain: Timeline, plan: Plan, edits: Sequence[Edit]) -> Timeline:
    if not edits:
        return plain
    last_s = float(plain.edges_s[-1])
    spans = [(max(0.0, plan.begin_s + each.begin_s), min(last_s, plan.begin_s + each.end_s)) for each in edits]
    whole = {round(edge * 1e9) for edge in plain.edges_s.tolist()} | {round(at_s * 1e9) for span in spans for at_s in span}
    edges_s = np.array(sorted(whole), np.float64) / 1e9
    middles_s = (edges_s[1:] + edges_s[:-1]) / 2
    source = np.minimum(np.searchsorted(plain.edges_s, middles_s, side="right") - 1, len(plain.stretches) - 1)
    old = plain.levels
    levels = replace(old, **{name: getattr(old, name)[source].copy() for name in old.__dataclass_fields__})
    for each, (begin_s, end_s) in zip(edits, spans, strict=True):
        values = getattr(levels, each.level)
        where = (middles_s > begin_s) & (middles_s < end_s)
        if each.level in ("clock", "mem_clock", "slower", "load"):
            values[where] *= each.value
        else:
            values[where] = each.value
    return Timeline(edges_s, levels, plain.workload)


# --- evidence ------------------------------------------------------------------------------------------------------------------


def traced(evidence: Evidence, change: Callable[[Trace], Trace]) -> Evidence:
    return replace(evidence, trace=change(evidence.trace))


def without(evidence: Evidence, *names: str) -> Evidence:
    """Return the evidence without these signals; ``dense_power`` and ``process_list`` are also names."""
    columns = {name: column for name, column in evidence.trace.columns.items() if name not in names}
    power = Column(np.empty(0, np.int64), np.empty(0)) if "dense_power" in names else evidence.trace.dense_power
    lists = () if "process_list" in names else evidence.trace.process_lists
    refresh = {name: period for name, period in evidence.trace.refresh_ns.items() if name not in names}
    return traced(
        evidence, lambda trace: replace(trace, columns=columns, dense_power=power, process_lists=lists, refresh_ns=refresh)
    )


def column(evidence: Evidence, name: str, change: Callable[[Times, Values], Values]) -> Evidence:
    """Return the evidence with one signal's values changed; times are nanoseconds since the window began."""
    found = evidence.trace.columns[name]
    values = np.asarray(change(found.at_ns - evidence.window.begin_ns, found.values), np.float64)
    columns = dict(evidence.trace.columns) | {name: Column(found.at_ns, values)}
    return traced(evidence, lambda trace: replace(trace, columns=columns))


def declaring(evidence: Evidence, **facts: Fact) -> Evidence:
    declared = {name: fact for name, fact in (dict(evidence.declared) | facts).items() if fact is not None}
    return replace(evidence, declared=declared)


def listed(evidence: Evidence, change: Callable[[float, ProcessList], ProcessList | None]) -> Evidence:
    """Return the evidence with each process list changed or dropped; times are seconds since the window began."""
    begin_ns = evidence.window.begin_ns
    changed = (change((each.at_ns - begin_ns) / 1e9, each) for each in evidence.trace.process_lists)
    kept = tuple(each for each in changed if each is not None)
    return traced(evidence, lambda trace: replace(trace, process_lists=kept))


def beside(
    use: Callable[[float], float | None], *, name: str = "python3", ownership: Ownership = Ownership.FOREIGN,
    own: Callable[[float], float] | None = None, memory_bytes: int = 669_000_000, pid: int = FOREIGN_PID, graphics: bool = False,
    begin_s: float = -1e9, end_s: float = 1e9,
) -> Callable[[float, ProcessList], ProcessList]:  # fmt: skip
    """Return a change that adds another process to the lists; ``use`` gives the process's utilisation at each time."""

    def change(at_s: float, seen: ProcessList) -> ProcessList:
        if not begin_s <= at_s < end_s:
            return seen
        asked = any(each.utilization_ratio is not None for each in seen.processes)
        kept = seen.processes
        if asked and own is not None:
            kept = tuple(replace(each, utilization_ratio=own(at_s)) for each in kept)
        other = Process(
            pid=pid, name=name, user="b", started_s=1795320000.5, memory_bytes=memory_bytes, graphics=graphics,
            utilization_ratio=use(at_s) if asked else None, ownership=ownership,
        )  # fmt: skip
        return replace(seen, processes=(*kept, other))

    return change


def inside_namespace(at_s: float, seen: ProcessList) -> ProcessList:
    """Return the list as seen in a container: no listed process, and unknown PIDs from the utilisation record."""
    unknown = tuple(
        replace(each, name=None, user=None, started_s=None, memory_bytes=None, listed=False, ownership=Ownership.UNKNOWN)
        for each in seen.processes
        if each.utilization_ratio is not None
    )
    return replace(seen, processes=unknown, visibility=Visibility.NAMESPACE)


def recorded(clean: Act, *, power_w: float, clock_mhz: float, at_clock_mhz: float | None = None) -> WorkRecord:
    """Return a record of six valid windows of this work on this card: the clean run with a natural spread."""
    ran = clean.clean.iterations
    spread = (0.0004, -0.0007, 0.0002, -0.0003, 0.0006, -0.0001)
    at_mhz = at_clock_mhz or clock_mhz
    at_clock_s = float(np.median(ran.took_s * (ran.clock_mhz / at_mhz) ** ran.beta))
    windows = tuple(
        RecordedWindow(
            calls_rate_hz=ran.rate_hz * (1.0 - each),
            mean_s=float(ran.took_s.mean()) * (1.0 + each),
            median_s=float(np.median(ran.took_s)) * (1.0 + each),
            median_at_clock_s=at_clock_s * (1.0 + each / 8),
            steady_clock_mhz=clock_mhz * (1.0 - each),
            power_w=power_w * (1.0 + each),
            clock_mhz=at_mhz,
        )
        for each in spread
    )
    return WorkRecord(windows=windows, clock_mhz=at_mhz)


def silent(evidence: Evidence, spans_s: Sequence[tuple[float, float]], *, gaps: bool) -> Evidence:
    """Return the evidence without readings in these stretches, except the power record; ``gaps`` adds each stretch as a gap."""
    begin_ns = evidence.window.begin_ns
    spans_ns = [(begin_ns + round(first * 1e9), begin_ns + round(last * 1e9)) for first, last in spans_s]

    def heard(at_ns: Times) -> npt.NDArray[np.bool_]:
        mask = np.ones(len(at_ns), np.bool_)
        for first_ns, last_ns in spans_ns:
            mask &= (at_ns < first_ns) | (at_ns >= last_ns)
        return mask

    columns = {name: found.where(heard(found.at_ns)) for name, found in evidence.trace.columns.items()}
    columns = {name: found for name, found in columns.items() if len(found)}
    lists = tuple(
        each for each in evidence.trace.process_lists if not any(first <= each.at_ns < last for first, last in spans_ns)
    )
    noted = tuple(Gap(begin_ns=first, end_ns=last) for first, last in spans_ns) if gaps else ()
    return traced(evidence, lambda trace: replace(trace, columns=columns, process_lists=lists, gaps=(*trace.gaps, *noted)))


def sparse(evidence: Evidence, period_s: float) -> Evidence:
    """Return the evidence with at most one value of each signal per period; process lists and the power record stay."""

    def thin(found: Column) -> Column:
        ticks = (found.at_ns - evidence.window.begin_ns) // round(period_s * 1e9)
        return found.where(np.concatenate([[True], np.diff(ticks) > 0]))

    columns = {name: thin(found) for name, found in evidence.trace.columns.items()}
    return traced(evidence, lambda trace: replace(trace, columns=columns))


def device(evidence: Evidence, **facts: object) -> Evidence:
    assert evidence.device is not None
    # The fields have several types; a test would fail on a wrong type.
    return replace(evidence, device=replace(evidence.device, **facts))  # type: ignore[arg-type]


def batches(timings: Timings | None, count: int) -> Timings:
    """Return the times in entries of ``count`` calls, like those of a harness that times batches."""
    assert timings is not None
    whole = len(timings.took_s) // count * count
    took_s = timings.took_s[:whole].reshape(-1, count).mean(axis=1)
    return Timings(timings.at_ns[:whole:count], took_s, None, count)
