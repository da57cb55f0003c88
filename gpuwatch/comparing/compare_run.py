"""compare(): functions on one GPU in one process, interleaved, with a decision on each against a reference."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import cast

from annotate.compare.decision import FLOOR_RATIO, MARGIN_RATIO
from annotate.compare.quad_decision import correct_for_many, decide
from annotate.stats.intervals import Interval
from gpuwatch.client.testimony import spared
from gpuwatch.client.window import Window
from gpuwatch.comparing import blocks, compare_arguments, floor_record, result_check, schedule, variant_calls
from gpuwatch.comparing.blocks import BlockTimer
from gpuwatch.comparing.compare_arguments import CheckInputs, CompareRequest, Inputs, Variant
from gpuwatch.comparing.compare_result import Compared, explain
from gpuwatch.comparing.schedule import Runner
from gpuwatch.config.settings import Settings, load
from gpuwatch.errors import UsageError
from gpuwatch.measuring import garbage_collection
from gpuwatch.measuring.bench_arguments import Cache
from gpuwatch.measuring.environment import BenchEnvironment
from gpuwatch.process import torch_state
from gpuwatch.process.inputs import facts as input_facts
from gpuwatch.process.inputs import has_tensor
from gpuwatch.wire.messages import LABEL_LENGTH, FactValue

_LONGEST_S = 60.0
# A power-capped clock can take 3 s to settle; the host has no such cap.
_WARM_S = 3.0
_HOST_WARM_S = 0.5


def compare(
    arms: Mapping[str, Variant],
    *,
    inputs: Inputs = (),
    reference: str | None = None,
    seconds: float = 3.0,
    warm_s: float | None = None,
    block_s: float = schedule.BLOCK_S,
    own_steady: bool = False,
    own_s: float = 3.0,
    rounds_count: int = 4,
    check: bool = True,
    tolerance_ratio: float | None = None,
    buffers_count: int = 3,
    floor_ratio: float | None = None,
    seed: int = 0,
    label: str | None = None,
    watch: bool = True,
    timer: BlockTimer | None = None,
    settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
    tolerance: float = MARGIN_RATIO,
    cache: Cache | None = None,
    rtol: float | None = None,
    check_inputs: CheckInputs = (),
    tags: Mapping[str, str | float] | None = None,
    seams: BenchEnvironment | None = None,
) -> Compared:
    """Compare functions on one GPU: FASTER, SLOWER, SAME, INCONCLUSIVE or INCOMPARABLE against a reference.

    Blocks of the variants alternate in balanced quads (ABBA or BAAB at random), so that all variants share one clock.
    Results are compared before times.  Python's garbage collector is held off while timing.  Exceptions of a variant propagate.

    Args:
        arms: Two or more functions by name; each does the work of one call.  A function whose name begins with ``make_``
            makes variants: it returns the function to time, with its own buffers.  Such a function is called with each set
            of inputs, or without inputs ``buffers_count`` times.
        inputs: Arguments of each call: a tuple, or a function that returns one.  Such a function is called
            ``buffers_count`` times, because data addresses affect a time, with ``seed=0``, 1, 2 if it takes a seed.
        reference: Name of the variant to compare with; by default the first.
        seconds: Time of the interleaved measurement, in seconds per pair of the reference and another variant.
        warm_s: Time of the warm-up before the window, in seconds; by default 3 s on a GPU and 0.5 s elsewhere.
        block_s: Length of one block, in seconds.
        own_steady: True also measures each variant alone, at the clock that its own power allows.
        own_s: Time of the warm-up and of the measurement of each variant alone, each in seconds per round.
        rounds_count: Number of rounds of variants alone, at least 2.
        check: False leaves the results uncompared.
        tolerance_ratio: Former name of ``rtol``, a ratio.
        buffers_count: Number of sets of inputs.
        floor_ratio: Noise floor of this GPU, a ratio; by default the one that ``gpuwatch selftest`` stored, else 0.003.
        seed: Seed of the order of blocks, a whole number.
        label: Name of the window; by default the variants' names.
        watch: False opens no window, so that there is no verdict.
        timer: A timer of blocks in place of the default one.
        settings: Settings in place of those of environment and files.
        say: Function that takes a line of progress before each variant is measured alone.
        tolerance: Largest difference of SAME, a ratio: the 90 % intervals of median and mean must lie within it.
        cache: ``"cold"``, the default on a GPU, empties the L2 cache before each call, outside the timed span.  ``"warm"``
            leaves the cache unchanged.
        rtol: Largest relative error of results, a ratio; by default the data type's.
        check_inputs: Further tuples of arguments on which results are compared, such as other shapes, or a function that
            returns them.
        tags: Tags to keep with the window, as ``{"team": "vision"}``.
        seams: Replacements for clock, GPU and daemon, for tests of gpuwatch itself.

    Returns:
        A ``Compared`` with one comparison per variant besides the reference.

    Raises UsageError: when an argument is invalid, needs a GPU that is missing, or results cannot be compared.

    Example:
        >>> numbers = list(range(2000))
        >>> arms = {"sum": lambda: sum(numbers), "loop": lambda: sum(sorted(numbers + numbers)) // 2}
        >>> compared = gpuwatch.compare(arms, seconds=0.1, warm_s=0.05)
        >>> print(compared["loop"].decision)  # varies
        slower
    """
    # The request's fields have the arguments' names, so each name is written once.
    return _run(compare_arguments.checked(CompareRequest(**locals())))


@dataclass(frozen=True, slots=True)
class _CacheChoice:
    """The state of the cache before each call, the work that makes this state, and the facts to declare."""

    name: Cache | None = None
    before: Callable[[], object] | None = None
    facts: Mapping[str, FactValue] = field(default_factory=dict)


def _run(request: CompareRequest) -> Compared:
    inputs = variant_calls.input_sets(request)
    calls = variant_calls.make_calls(request, inputs)
    checked = result_check.check_results(request, calls, inputs)
    timer = request.timer or blocks.choose_timer()  # after the first calls, because they may create a context
    chosen = _choose_cache(request, timer)
    facts = {**chosen.facts, **_input_facts(inputs[0])}  # before the warm-up: the GPU idles while its inputs are read
    with garbage_collection.held_off():
        runners = [Runner(name, calls[name], before=chosen.before) for name in request.names]
        first, *others = (schedule.calibrate(timer, runner, request.block_s) for runner in runners)
        floor_ratio = request.floor_ratio
        if floor_ratio is None:
            shares_buffers = any(inputs) and not any(map(variant_calls.is_factory, request.variants.values()))
            floor_ratio = _stored_floor(request.settings, shares_buffers=shares_buffers)
        if request.watch:
            request.environment.start_daemon(request.settings)  # now: the GPU would cool during a later start
        schedule.warm_up(timer, [first, *others], _warm_s(request, timer))
        with _open_window(request) as watched:
            limit_s = max(_LONGEST_S, 2 * request.seconds * len(others))
            ran = schedule.run_interleaved(timer, first, others, seconds=request.seconds, limit_s=limit_s, seed=request.seed)
            own = _run_alone(request, timer, first, others)
            if watched is not None:
                measured = {} if floor_ratio is None else {"aa_floor_ratio": floor_ratio}
                watched.declare(design="interleaved", timer=timer.name, variants_count=len(others), **measured, **facts)
    floor = FLOOR_RATIO if floor_ratio is None else floor_ratio
    found = [
        decide(first.name, name, each.quads, floor_ratio=floor, margin_ratio=request.tolerance) for name, each in ran.items()
    ]
    decided = correct_for_many(found, {name: each.quads for name, each in ran.items()})
    comparisons = tuple(
        explain(replace(each, timer=timer.name, cache=chosen.name), ran[each.b], own.get(each.b), checked.matches.get(each.b))
        for each in decided
    )
    return Compared(
        comparisons=comparisons,
        matches=checked.matches,
        timer=timer.name,
        window=watched,
        cache=chosen.name,
        checked_sets_count=checked.sets_count,
    )


def _choose_cache(request: CompareRequest, timer: BlockTimer) -> _CacheChoice:
    environment = request.environment
    if request.cache == "warm":
        return _CacheChoice("warm", facts={"cache": "warm"})
    gpu = None if request.cache is None and timer.name == "host" else environment.gpu()
    if gpu is None:
        if request.cache == "cold":
            raise UsageError("compare: cache='cold': expected a GPU whose cache can be emptied, found none; use cache='warm'")
        return _CacheChoice()
    flush, flush_bytes = environment.flush(gpu.l2_bytes)
    return _CacheChoice("cold", flush, {"cache": "cold", "flush_bytes": flush_bytes, "flush_timed": False})


def _input_facts(arguments: tuple[object, ...]) -> Mapping[str, FactValue]:
    with spared("looking at the inputs"):  # some properties cannot be read, and the error has no common type
        return input_facts(*arguments) if has_tensor(arguments) else {}
    return {}


def _warm_s(request: CompareRequest, timer: BlockTimer) -> float:
    if request.warm_s is not None:
        return request.warm_s
    return _HOST_WARM_S if timer.name == "host" else _WARM_S


def _run_alone(
    request: CompareRequest, timer: BlockTimer, first: Runner, others: Sequence[Runner]
) -> dict[str, Interval | None]:
    own = {}
    for runner in others if request.own_steady else ():
        if request.say is not None:
            request.say(f"each alone: {first.name} and {runner.name}, {request.rounds_count} rounds of {4 * request.own_s:g} s")
        own[runner.name] = schedule.run_alone(
            timer, first, runner, warm_s=request.own_s, seconds=request.own_s, rounds_count=request.rounds_count
        )
    return own


def _stored_floor(settings: Settings | None, *, shares_buffers: bool) -> float | None:
    with spared("looking for this GPU's floor"):
        uuids = str(torch_state.snapshot().facts.get("cuda_uuids") or "").split(",")
        return floor_record.read_ratio((settings or load()).state, uuids[0], shared=shares_buffers) if uuids[0] else None
    return None


def _open_window(request: CompareRequest) -> AbstractContextManager[Window | None]:
    if not request.watch:
        return nullcontext()
    label = request.label or " and ".join(request.names)
    opened = request.environment.window(label[:LABEL_LENGTH], settings=request.settings, tags=request.tags)
    return cast("AbstractContextManager[Window]", opened)  # only tests pass another type
