"""bench(): timing done right, with the judge's verdict inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from annotate.claims import Claim
from annotate.policy import Policy
from annotate.verdict import Status
from gpuwatch.client.testimony import spared
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError
from gpuwatch.measuring import bench_arguments, prepare, tensor_trees
from gpuwatch.measuring import reference as references
from gpuwatch.measuring.attempt import Attempt, Job, attempt
from gpuwatch.measuring.batching import sized
from gpuwatch.measuring.environment import Seams
from gpuwatch.measuring.measurement import Measurement
from gpuwatch.measuring.progress import Progress
from gpuwatch.process import inputs
from gpuwatch.wire.messages import FactValue


def bench(
    fn: Callable[..., Any],
    *,
    args: Sequence[Any] = (),
    rotate: Sequence[Sequence[Any]] | None = None,
    timer: bench_arguments.TimerChoice = None,
    cache: bench_arguments.Cache | None = None,
    flops: float | None = None,
    bytes: float | None = None,  # noqa: A002 - what users call it
    dtype: Any = None,
    reference: Any = None,
    rtol: float | None = None,
    check_inputs: bool = False,
    label: str | None = None,
    claim: Claim | str = Claim.SUSTAINED,
    policy: Policy | None = None,
    min_s: float | None = None,
    max_s: float = 10.0,
    target_ratio: float = 0.005,
    warmup_max_s: float = 10.0,
    retries: int = 0,
    progress: bool | None = None,
    settings: Settings | None = None,
    seams: Seams | None = None,
) -> Measurement:
    """Time ``fn(*args)``: warm up until it is steady, measure until the median is known to ``target_ratio``, judge it all.

    ``measured = gpuwatch.bench(torch.mm, args=(a, b), flops=2 * 4096**3)``, then ``print(measured)`` for people,
    ``measured.median_s`` and ``measured.verdict.status`` for programs, ``measured.to_dict()`` for a file.

    ``timer``: ``"events"`` (the GPU's time), ``"graph"`` (a captured CUDA graph of the call, for kernels shorter than their
    launch), ``"host"`` (what a caller waits for); None takes events where this process works on a GPU, else the host's clock.
    ``cache``: ``"cold"`` (the default on a GPU) empties the L2 cache before each call, outside the timed span, or gives
    short calls copies of ``args`` in turn; ``rotate`` gives your own list of arguments to take in turn; ``"warm"`` does
    neither.  ``min_s`` is 1 s by itself, and 3 s when the true clock lies below the board's maximum or is not known.

    ``flops`` and ``bytes`` of one call give rates and, with ``dtype`` (the arguments' own where none is named), the share
    of the peak at the true clock.
    ``reference`` (a result, or a function of the same arguments) gates: a wrong result raises WrongResultError before
    anything is timed.  ``check_inputs`` changes the floating-point ``args`` in place for a moment, to see the result change.
    ``retries`` measures again until the verdict is valid; every attempt is kept, and never the best one chosen.

    What ``fn`` raises passes.  Raises UsageError for what can never be right.
    """
    seams = seams or Seams()
    bench_arguments.check_call(fn, args, rotate)
    bench_arguments.check_choices(timer, cache, retries)
    call_flops_count, call_bytes = (
        bench_arguments.amount_or_none("flops", flops),
        bench_arguments.amount_or_none("bytes", bytes),
    )
    min_s, max_s = bench_arguments.amount_or_none("min_s", min_s), bench_arguments.amount("max_s", max_s)
    target_ratio, rtol = (
        bench_arguments.share("target_ratio", target_ratio),
        bench_arguments.amount_or_none("rtol", rtol, zero=True),
    )
    warmup_max_s, kind = bench_arguments.amount("warmup_max_s", warmup_max_s, zero=True), bench_arguments.dtype_named(dtype)
    if min_s is not None and min_s > max_s:
        raise UsageError(f"min_s: expected at most max_s ({max_s:g}), found {min_s:g}")
    name = bench_arguments.label_of(fn, label)
    opening = seams.window(name, claim=claim, policy=policy, settings=settings)  # a wrong claim is told now
    arguments = [tuple(one) for one in rotate] if rotate is not None else [tuple(args)]

    matched = prepare.checked(fn, arguments[0], reference, rtol)
    unchanged = references.output_unchanged(fn, arguments[0]) if check_inputs else None
    first_call_s = prepare.first_call_s(fn, arguments[0], seams.now_ns)
    kind = kind or tensor_trees.dtype_name(arguments[0])
    with (
        prepare.chosen(timer, fn, arguments[0]) as (taking, overhead_s),
        Progress(name, shown=progress, stream=seams.stream) as shown,
    ):
        board = seams.board()
        setting = prepare.setting(fn, arguments, taking, cache, board, seams, given=rotate is not None)
        size = sized(setting, taking)
        sung = seams.canary(board.device.uuid, settings) if board else None
        told: dict[str, FactValue] = {
            **(sung.told if sung else {}), "timer": taking.name, "timer_overhead_s": overhead_s, **setting.told, **_looked_at(arguments[0]),
            **_told(dtype=kind, call_flops_count=call_flops_count, call_bytes=call_bytes, output_unchanged=unchanged),
            **(_told(reference_error_ratio=matched.error_ratio, reference_limit_ratio=matched.limit_ratio) if matched else {}),
        }  # fmt: skip
        job = Job(
            timer=taking, plan=size.plan, entry_s=size.call_s * size.plan.calls_count, on_gpu=board is not None,
            clock_max_mhz=board.device.sm_clock_max_mhz if board else None, least_s=min_s, most_s=max_s,
            target_ratio=target_ratio, warmup_most_s=warmup_max_s, told=told, now_ns=seams.now_ns, progress=shown,
        )  # fmt: skip
        seams.ready(settings)
        attempts = [attempt(job, opening)]
        while len(attempts) <= retries and _worth_another(attempts[-1]):
            attempts.append(attempt(job, seams.window(name, claim=claim, policy=policy, settings=settings)))
        if sung and attempts[-1].verdict.status is Status.VALID:
            sung.keep()
    return Measurement(
        label=name, timer=taking.name, cache=str(setting.told["cache"]) if "cache" in setting.told else None,
        attempts=tuple(attempts), timer_overhead_s=overhead_s, issue_s=size.issue_s,
        first_call_s=None if matched or check_inputs else first_call_s, call_flops_count=call_flops_count, call_bytes=call_bytes, dtype=kind,
        device=board.device if board else None, match=matched, output_unchanged=unchanged,
    )  # fmt: skip


def _looked_at(args: tuple[Any, ...]) -> Mapping[str, FactValue]:
    """What is told of the arguments; nothing where they are of a kind that cannot be looked at, however that shows."""
    with spared("looking at the inputs"):
        return inputs.facts(*args)
    return {}


def _told(**facts: FactValue) -> Mapping[str, FactValue]:
    return {name: value for name, value in facts.items() if value is not None}


def _worth_another(last: Attempt) -> bool:
    """Not valid, for a reason that may go away: where there is no telemetry at all it stays away."""
    return last.verdict.status is not Status.VALID and last.verdict.device_uuid is not None
