"""compare(): two or more functions on one GPU in one process, interleaved, with a decision about each."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from annotate.compare.decision import FLOOR_RATIO, corrected, decide
from annotate.stats.intervals import Interval
from gpuwatch.client.testimony import spared
from gpuwatch.client.window import Window, window
from gpuwatch.comparing import blocks, compare_arguments, floor_record, schedule, variant_calls
from gpuwatch.comparing.blocks import BlockTimer
from gpuwatch.comparing.compare_arguments import CompareRequest, Inputs, Variant
from gpuwatch.comparing.compare_result import Compared, explain
from gpuwatch.comparing.schedule import Runner
from gpuwatch.config.settings import Settings, load
from gpuwatch.process import torch_state
from gpuwatch.process.inputs import has_tensor
from gpuwatch.wire.messages import LABEL_LENGTH

_LONGEST_S = 60.0


def compare(
    arms: Mapping[str, Variant],
    *,
    inputs: Inputs = (),
    reference: str | None = None,
    seconds: float = 3.0,
    warm_s: float = 0.5,
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
) -> Compared:
    """Compare functions of one call each: FASTER, SLOWER, SAME, INCONCLUSIVE or INCOMPARABLE against ``reference``.

    Blocks of ``block_s`` alternate (ABBA, the first letter drawn), so that all variants share one clock; that ratio is the
    answer.  ``own_steady=True`` adds each variant's own: alone, warm for ``own_s`` and then measured for as long, in rounds.

    ``arms`` are the variants by name, and ``inputs`` the arguments of each call.  A function that makes inputs is called
    ``buffers_count`` times, because where data lies is part of a time.  A variant whose name begins with ``make_`` makes
    variants: it is called as often, and returns a function of one call with its own buffers.  Unless ``check=False``,
    results on the same inputs are compared first.

    Exceptions of a variant pass.
    Raises UsageError: when an argument can never be right.
    """
    request = CompareRequest(
        variants=arms,
        inputs=inputs,
        reference=reference,
        seconds=seconds,
        warm_s=warm_s,
        block_s=block_s,
        own_steady=own_steady,
        own_s=own_s,
        rounds_count=rounds_count,
        check=check,
        tolerance_ratio=tolerance_ratio,
        buffers_count=buffers_count,
        floor_ratio=floor_ratio,
        seed=seed,
        label=label,
        watch=watch,
        timer=timer,
        settings=settings,
        say=say,
    )
    return _run(compare_arguments.checked(request))


def _run(request: CompareRequest) -> Compared:
    inputs = variant_calls.input_sets(request)
    calls = variant_calls.make_calls(request, inputs)
    matches = variant_calls.first_results(request, calls, has_inputs=any(inputs))
    timer = request.timer or blocks.choose_timer()  # after the first calls, which may have made a context
    first, *others = (schedule.calibrate(timer, Runner(name, calls[name]), request.block_s) for name in request.names)
    floor_ratio = request.floor_ratio
    if floor_ratio is None:
        shares_buffers = any(inputs) and not any(map(variant_calls.is_factory, request.variants.values()))
        floor_ratio = _stored_floor(request.settings, shares_buffers=shares_buffers)
    schedule.warm_up(timer, [first, *others], request.warm_s)
    with _open_window(request) as watched:
        if watched is not None and has_tensor(inputs[0]):
            watched.inputs(*inputs[0])
        limit_s = max(_LONGEST_S, 2 * request.seconds * len(others))
        pairs = schedule.run_interleaved(timer, first, others, seconds=request.seconds, limit_s=limit_s, seed=request.seed)
        if watched is not None:
            measured = {} if floor_ratio is None else {"aa_floor_ratio": floor_ratio}
            watched.tell(design="interleaved", timer=timer.name, variants_count=len(others), **measured)
        own = _run_alone(request, timer, first, others)
    floor = FLOOR_RATIO if floor_ratio is None else floor_ratio
    found = [
        decide(first.name, name, each.log_ratios, floor_ratio=floor, a_s=each.a_s, b_s=each.b_s) for name, each in pairs.items()
    ]
    decided = corrected(found, {name: each.log_ratios for name, each in pairs.items()})
    comparisons = tuple(explain(each, pairs[each.b], own.get(each.b), matches.get(each.b), timer.name) for each in decided)
    return Compared(comparisons=comparisons, matches=matches, timer=timer.name, window=watched)


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
    """Return the stored floor of this process's GPU; None without a GPU or a floor."""
    with spared("looking for this GPU's floor"):
        uuids = str(torch_state.snapshot().facts.get("cuda_uuids") or "").split(",")
        return floor_record.read_ratio((settings or load()).state, uuids[0], shared=shares_buffers) if uuids[0] else None
    return None


def _open_window(request: CompareRequest) -> AbstractContextManager[Window | None]:
    if not request.watch:
        return nullcontext()
    label = request.label or " and ".join(request.names)
    return window(label[:LABEL_LENGTH], settings=request.settings)
