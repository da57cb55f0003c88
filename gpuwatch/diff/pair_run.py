"""Preparation and timing of one pair: sizes, check, launch, interleaved times."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from annotate.compare.decision import Comparison, Decision
from gpuwatch.comparing import Block, Timed, compare, variant_calls
from gpuwatch.comparing.blocks import EventBlocks
from gpuwatch.comparing.compare_result import NOT_COMPARED
from gpuwatch.comparing.floor_record import read_ratio
from gpuwatch.comparing.load_variants import load, wants_inputs
from gpuwatch.config.settings import load as load_settings
from gpuwatch.cuda.stamp import Stamps
from gpuwatch.diff.call_side import CallSideRun, load_inputs
from gpuwatch.diff.correctness import SEEDS_COUNT, check_names, check_pair
from gpuwatch.diff.kernel_arguments import SizePlan, Slot, plan_sizes
from gpuwatch.diff.kernel_device import KernelDevice
from gpuwatch.diff.kernel_side import KernelSideRun
from gpuwatch.diff.timed_pair import SideTimes, TimedPair, incomparable
from gpuwatch.diff.timing_job import CallJob, KernelJob, TimingJob
from gpuwatch.diff.trial import Trial, TrialTerms, check_aliases
from gpuwatch.errors import UsageError
from gpuwatch.measuring import tensor_trees
from gpuwatch.measuring.environment import BenchEnvironment

STEP_LIMIT_S = 30.0  # for one launch with its copies; a longer launch counts as an endless loop
TIMING_LIMIT_S = 300.0  # for all timing, plus four times --seconds
_L2_RATIO = 4.0  # buffer size over the L2 cache's size: no call finds its data in the cache
_FLUSH_L2_RATIO = 2.0  # flushed bytes over the L2 cache's size, as in bench()
_CHECK_COUNT = 1 << 20  # elements of a buffer in the medium check; the largest check uses the timed size
_SMALL_COUNT = 1 << 14
_EXTRAS = (0, 16, 48)  # added to multiples of 256 to exercise bounds checks; vectors of 16 still fit
_STAMPS_COUNT = 512

Say = Callable[[str, float], None]  # receives the next step and its time limit in seconds
SideRun = KernelSideRun | CallSideRun


@dataclass(frozen=True, slots=True)
class Prepared:
    """A pair with its sides loaded, and the plans of sizes, with the timed plan first."""

    sides: tuple[SideRun, SideRun]
    slots: tuple[Slot, ...]
    plans: tuple[SizePlan, ...]
    terms: tuple[TrialTerms, ...]  # one per seed if the user's function makes inputs


@dataclass(frozen=True, slots=True)
class ReadyPair:
    """Both sides bound to their buffers; a ``reason`` forbids timing."""

    calls: Mapping[str, Callable[[], object]]
    traffic: Sequence[tuple[int, int]] = ()  # bytes that a call of each side reads and writes
    sizes: Mapping[str, int] = field(default_factory=dict)
    launches: tuple[str, str] = ("", "")
    reason: str = ""
    functions: Mapping[str, Any] = field(default_factory=dict)  # arguments of compare() for two Python functions


class StampedBlocks(EventBlocks):
    """Events around blocks, with a stamp of the true clock at both ends of each run of blocks."""

    def __init__(self, cuda: Any) -> None:  # torch.cuda has no types
        super().__init__(cuda)
        self.stamps = Stamps.allocate(_STAMPS_COUNT)
        self.runs: list[tuple[tuple[int, int], dict[str, list[Timed]]]] = []

    def times(self, blocks: Iterable[Block]) -> Iterator[Timed]:
        taken: dict[str, list[Timed]] = {}
        first = self.stamps.put() if self.stamps is not None else -1
        try:
            for timed in super().times(blocks):
                taken.setdefault(timed.block.variant, []).append(timed)
                yield timed
        finally:
            self.runs.append(((first, self.stamps.put() if self.stamps is not None else -1), taken))

    def of_both(self) -> tuple[float | None, Mapping[str, list[Timed]]]:
        """Return the true clock (None without stamps) and the times of the last run that alternates both variants."""
        (first, last), taken = next(run for run in reversed(self.runs) if len(run[1]) > 1)
        mhz = self.stamps.read().mean_mhz(first, last) if self.stamps is not None and min(first, last) >= 0 else None
        return mhz, taken


@contextmanager
def set_up(job: TimingJob, device: KernelDevice, say: Say) -> Iterator[ReadyPair]:
    """Load both sides, check their results, and bind both to the buffers for timing.

    Raises UsageError: when a side cannot be loaded, a launch or input cannot be derived, or an option names no buffer.
    Raises KernelFault: when a kernel fails outside the check, or there is too little memory.
    """
    say("loading both sides", 2 * STEP_LIMIT_S)  # a large file of Triton kernels takes a while
    if not job.slots and isinstance(job.a, CallJob) and isinstance(job.b, CallJob):
        yield _ready_functions(job, job.a, job.b)
        return
    prepared = prepare(job, device)
    reason = _check(job, device, prepared, say) if job.terms.checks and job.slots else ""
    if reason:
        yield ReadyPair({}, launches=_describe(prepared.sides), reason=reason)
        return
    with _trial(device, prepared, prepared.plans[0], job.terms.fill, job.terms.seed) as trial:
        launches, traffic = [], []
        for name, side in zip("AB", prepared.sides, strict=True):
            say(f"{name}: first run at {trial.plan}", 2 * STEP_LIMIT_S)
            launches.append(side(trial))
            traffic.append(trial.traffic(launches[-1]))
        trial.reset()
        calls = {name: getattr(launch, "timed", launch) for name, launch in zip("AB", launches, strict=True)}
        yield ReadyPair(calls, traffic, trial.plan.sizes, _describe(prepared.sides))


def run_pair(job: TimingJob, device: KernelDevice, cuda: Any, ready: ReadyPair, say: Say) -> TimedPair:
    """Time a pair that is ready.

    Raises KernelFault: when a kernel fails during timing, or there is no memory for the flush.
    Raises UsageError: as ``compare``.
    """
    if ready.reason:
        return replace(incomparable(ready.reason), launches=ready.launches)
    terms = job.terms
    say("timing", TIMING_LIMIT_S + 4 * terms.seconds)
    settings = load_settings(terms.settings)
    flush_bytes = int(_FLUSH_L2_RATIO * device.l2_bytes)
    flush_at = device.allocate(flush_bytes)
    timer = StampedBlocks(cuda)
    uuid = f"GPU-{cuda.get_device_properties(0).uuid}"
    found = compare(
        **({"arms": ready.calls} | dict(ready.functions)),
        check=terms.checks and bool(ready.functions),
        rtol=terms.rtol,
        seconds=terms.seconds,
        tolerance=terms.tolerance,
        cache="warm" if terms.cache == "warm" else "cold",
        own_steady=terms.has_own_clock,
        label=f"{job.a.name} against {job.b.name}",
        timer=timer,
        settings=settings,
        floor_ratio=read_ratio(settings.state, uuid, shared=True),
        seams=BenchEnvironment(flush=lambda _: (lambda: device.fill(flush_at, 0, flush_bytes), flush_bytes)),
    )
    verdict = found.verdict
    return pair_of(found.comparisons[0], verdict.status.value if verdict is not None else "", timer, ready)


def prepare(job: TimingJob, device: KernelDevice) -> Prepared:
    """Load both sides and choose sizes."""
    slots = check_names(job.terms.outs, job.slots)
    check_aliases(slots, job.terms.aliases)
    sides = tuple(
        KernelSideRun(device, each) if isinstance(each, KernelJob) else CallSideRun(each, is_pipeline=job.terms.is_pipeline)
        for each in (job.a, job.b)
    )
    base = TrialTerms(scalars=job.terms.scalars, aliases=job.terms.aliases)
    if job.terms.inputs:
        terms, sizes = zip(*(load_inputs(job.terms.inputs, slots, seed, base) for seed in range(SEEDS_COUNT)), strict=True)
        plan = plan_sizes(slots, {**sizes[0], **job.terms.sizes}, _SMALL_COUNT, is_plane=job.is_plane)
        largest = max((each.size for each in terms[0].arrays.values()), default=plan.elements_count)
        return Prepared((sides[0], sides[1]), slots, (replace(plan, elements_count=largest),), terms)
    smallest = min((slot.itemsize for slot in slots if slot.is_pointer), default=4)
    counts = (int(_L2_RATIO * device.l2_bytes / smallest), _CHECK_COUNT, _SMALL_COUNT)
    plans = [
        plan_sizes(slots, job.terms.sizes, count, is_plane=job.is_plane, extra_count=extra)
        for count, extra in zip(counts, _EXTRAS, strict=True)
    ]
    unique = (each for number, each in enumerate(plans) if each not in plans[:number])
    return Prepared((sides[0], sides[1]), slots, tuple(unique), (base,))


def _ready_functions(job: TimingJob, a: CallJob, b: CallJob) -> ReadyPair:
    """Bind two Python functions to the inputs of --inputs, else of A's file, else of B's file."""
    sides = [CallSideRun(each, is_pipeline=job.terms.is_pipeline) for each in (a, b)]
    made = load(job.terms.inputs).call if job.terms.inputs else sides[0].loaded.inputs or sides[1].loaded.inputs
    for each, side in zip((a, b), sides, strict=True):
        if made is None and wants_inputs(side.loaded.call):
            raise UsageError(
                f"{each.file}:{each.function}: expected its arguments {inspect.signature(side.loaded.call)} from a function "
                "inputs() of the same file, or from --inputs FILE.py:FUNCTION, found neither"
            )
    values = tuple(variant_calls.make_with_seeds(made, 1)[0]) if made is not None else ()
    calls: dict[str, Callable[[], object]] = {
        name: partial(side.loaded.call, *values) for name, side in zip("AB", sides, strict=True)
    }
    traffic = [(sum(map(tensor_trees.size_bytes, tensor_trees.arrays(values))), 0)] * 2
    if job.terms.is_pipeline:
        calls = {name: side.captured(calls[name]) for name, side in zip("AB", sides, strict=True)}
        functions: dict[str, Any] = {"arms": calls}
    else:
        arms = {name: side.loaded.call for name, side in zip("AB", sides, strict=True)}
        functions = {"arms": arms, "inputs": made or (), "check_inputs": sides[0].loaded.check_inputs or ()}
    return ReadyPair(calls, traffic, {}, _describe(sides), functions=functions)


def _describe(sides: Sequence[SideRun]) -> tuple[str, str]:
    return sides[0].describe(), sides[1].describe()


def _check(job: TimingJob, device: KernelDevice, prepared: Prepared, say: Say) -> str:
    """Return the reason why the sides cannot be compared; empty if their results agree."""

    def make(plan: SizePlan, fill: str, seed: int) -> Trial:
        return _trial(device, prepared, plan, job.terms.fill if fill == "randn" else fill, job.terms.seed + seed)

    return check_pair(prepared.sides, prepared.plans, make, job.terms.rtol, lambda words: say(words, STEP_LIMIT_S))


def _trial(device: KernelDevice, prepared: Prepared, plan: SizePlan, fill: str, seed: int) -> Trial:
    terms = prepared.terms[seed % len(prepared.terms)]
    return Trial(device, prepared.slots, plan, replace(terms, fill=fill, seed=seed))


def pair_of(found: Comparison, verdict: str, timer: StampedBlocks, ready: ReadyPair) -> TimedPair:
    """Return the record of a comparison with each side's times, sizes and traffic."""
    mhz, taken = timer.of_both()
    is_comparable = found.decision is not Decision.INCOMPARABLE
    a, b = (
        _side_times(median_s or float("nan"), taken[name], mhz, bytes_) if is_comparable else None
        for name, median_s, bytes_ in zip("AB", (found.a_s, found.b_s), ready.traffic, strict=True)
    )
    ratio = found.reference_ratio if is_comparable else None
    own = found.own_ratio if ratio is not None else None
    is_doubtful = found.decision in (Decision.INCONCLUSIVE, Decision.INCOMPARABLE)
    return TimedPair(
        decision=found.decision.value.upper(),
        reason=found.reasons[0] if is_doubtful and found.reasons else "",
        ratio=ratio.centre if ratio else None,
        ratio_low=ratio.low if ratio else None,
        ratio_high=ratio.high if ratio else None,
        own_clock_ratio=1.0 / own.centre if own else None,
        verdict=verdict,
        a=a,
        b=b,
        sizes=dict(ready.sizes),
        launches=ready.launches,
        cache=found.cache or "",
        pairs_count=found.pairs_count,
        notes=tuple(each for each in found.reasons[is_doubtful:] if each != NOT_COMPARED),
    )


def _side_times(median_s: float, taken: list[Timed], mhz: float | None, traffic: tuple[int, int]) -> SideTimes:
    counts = np.array([each.block.calls_count for each in taken])
    mean_s = float(np.average([each.took_s for each in taken], weights=counts))
    # Blocks of both sides alternate at one clock: the median is at that clock.
    return SideTimes(int(counts.sum()), median_s, mean_s, median_s if mhz else None, mhz, *traffic)
