"""bench(): a benchmark with warm-up, an honest timer, a confidence interval and the judge's verdict."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any

from annotate.claims import Claim
from annotate.times.reference_clock import ReferenceClock
from annotate.user_policy import Policy
from annotate.verdict import Status
from gpuwatch.client.testimony import spared
from gpuwatch.client.window_tags import check_tags
from gpuwatch.config.settings import Settings
from gpuwatch.measuring import bench_arguments, garbage_collection, prepare
from gpuwatch.measuring.attempt import Attempt, Job, MeasuredWindow, run_attempt
from gpuwatch.measuring.batching import size_entries
from gpuwatch.measuring.bench_arguments import BenchRequest, CallCost, Limits, Work, amount_or_none
from gpuwatch.measuring.environment import BenchEnvironment
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
    reference_clock: ReferenceClock | None = None,
    min_s: float | None = None,
    max_s: float = 10.0,
    target_ratio: float = 0.005,
    warmup_max_s: float = 10.0,
    retries: int = 0,
    progress: bool | None = None,
    settings: Settings | None = None,
    tags: Mapping[str, str | float] | None = None,
    seams: BenchEnvironment | None = None,
) -> Measurement:
    """Time ``fn(*args)``: warm up until it is steady, measure until the median's interval is narrow enough, and judge.

    Python's garbage collector is held off while timing.  Exceptions of ``fn`` propagate.

    Args:
        fn: Function to time; one call does the whole work.
        args: Arguments of each call.
        rotate: Several tuples of arguments, which calls take in turn, in place of ``args``.
        timer: ``"events"`` takes the GPU's time.  ``"graph"`` times a captured CUDA graph, for kernels shorter than their
            launch.  ``"host"`` takes the time a caller waits for.  None takes events if they can measure the work, else the
            host's clock.  An object with the methods of ``gpuwatch.timers.Timer`` is used directly.
        cache: ``"cold"``, the default with a GPU's timer, empties the L2 cache before each call, outside the timed span.
            Short calls take copies of ``args`` in turn instead.  ``"warm"`` does neither.
        flops: Floating-point operations of one call, a count.
        bytes: Bytes that one call must read and write in device memory.
        dtype: Data type of the arithmetic, as ``"bfloat16"`` or ``torch.bfloat16``; by default that of the arguments.
        reference: Expected result, or a function of the same arguments.  A wrong result ends the benchmark before timing.
        rtol: Largest relative error against the reference, a ratio; by default the data type's.
        check_inputs: True changes floating-point ``args`` in place for a moment, to check that the result changes.
        label: Name of the window, at most 256 characters; by default the function's name.
        claim: Meaning of the number: ``"sustained"``, ``"burst"`` or ``"fixed-clock"``.
        policy: A ``Policy`` with accepted hazards, limits and thresholds.
        reference_clock: SM clock for the time at one clock, in MHz, or a table by model; by default the model's recorded clock.
        min_s: Shortest time to measure, in seconds.  By default 1 s; 3 s on a GPU whose true clock is unknown, or more than
            3 % below the maximum.
        max_s: Longest time to measure, in seconds.
        target_ratio: Half width of the median's 95 % interval at which measuring ends, as a ratio of the median.
        warmup_max_s: Longest warm-up, in seconds.
        retries: Largest number of further attempts until the verdict is valid.  The result keeps every attempt and never
            takes the best.
        progress: True shows a line of progress; None shows it on a terminal.
        settings: Settings in place of those of environment and files.
        tags: Tags to keep with the window, as ``{"team": "vision"}``.
        seams: Replacements for clock, GPU and daemon, for tests of gpuwatch itself.

    Returns:
        A ``Measurement``: print it, read its figures, or store ``to_dict()``.

    Raises UsageError: when an argument is invalid, or needs torch or a GPU that is missing.
    Raises WrongResultError: when the result differs from the reference.

    Example:
        >>> measured = gpuwatch.bench(sum, args=(list(range(1000)),), min_s=0.05, max_s=0.1, warmup_max_s=0.05)
        >>> print(f"{1e6 * measured.median_s:.2f} µs")  # varies
        3.33 µs
        >>> print(measured.verdict.status)  # varies
        valid
        >>> measured.timer
        'host'
    """
    bench_arguments.check_choices(timer, cache)
    request = BenchRequest(
        work=Work.checked(fn, args, rotate, reference, rtol, check_inputs=check_inputs),
        cost=CallCost(amount_or_none("flops", flops), amount_or_none("bytes", bytes), bench_arguments.dtype_name(dtype)),
        limits=Limits.checked(min_s, max_s, target_ratio, warmup_max_s, retries),
        timer=timer,
        cache=cache,
        label=bench_arguments.label_for(fn, label),
        claim=claim,
        policy=policy,
        reference_clock=reference_clock,
        settings=settings,
        progress=progress,
        tags=check_tags(tags),
    )
    return _run(request, seams or BenchEnvironment())


def _run(request: BenchRequest, environment: BenchEnvironment) -> Measurement:
    opening = _open_window(request, environment)  # a wrong claim fails before anything runs
    checks = prepare.check_work(request, environment.now_ns)
    with (
        prepare.open_timer(request.timer, request.work) as (timer, overhead_s),
        closing(Progress(request.label, shown=request.progress, stream=environment.stream)) as progress,
    ):
        gpu = environment.gpu()
        setting = prepare.choose_cache(request, timer, gpu, environment)
        plan, entry_s, issue_s = size_entries(setting, timer)
        canary = environment.canary(gpu.device.uuid, request.settings) if gpu else None
        input_facts: Mapping[str, FactValue] = {}
        with spared("looking at the inputs"):  # some properties cannot be read, and the error has no common type
            input_facts = inputs.facts(*request.work.args)
        facts = {**(canary.facts if canary else {}), **setting.facts, **input_facts, **checks.facts}
        job = Job(
            timer=timer,
            plan=plan,
            entry_s=entry_s,
            has_gpu=gpu is not None,
            clock_max_mhz=gpu.device.sm_clock_max_mhz if gpu else None,
            limits=request.limits,
            facts={**facts, "timer": timer.name, "timer_overhead_s": overhead_s},
            now_ns=environment.now_ns,
            progress=progress,
        )
        environment.start_daemon(request.settings)
        with garbage_collection.held_off():
            attempts = [run_attempt(job, opening)]
            while len(attempts) <= request.limits.retries_count and _is_worth_repeating(attempts[-1]):
                attempts.append(run_attempt(job, _open_window(request, environment)))
        if canary and attempts[-1].verdict.status is Status.VALID:
            canary.store()
    return Measurement(
        label=request.label,
        timer=timer.name,
        cache=str(setting.facts["cache"]) if "cache" in setting.facts else None,
        attempts=tuple(attempts),
        timer_overhead_s=overhead_s,
        issue_s=issue_s,
        first_call_s=checks.first_call_s,
        call_flops_count=checks.cost.flops_count,
        call_bytes=checks.cost.bytes_count,
        dtype=checks.cost.dtype,
        device=gpu.device if gpu else None,
        match=checks.match,
        output_unchanged=checks.is_output_unchanged,
    )


def _open_window(request: BenchRequest, environment: BenchEnvironment) -> AbstractContextManager[MeasuredWindow]:
    stated = {"claim": request.claim, "policy": request.policy, "reference_clock": request.reference_clock}
    return environment.window(request.label, settings=request.settings, tags=request.tags, **stated)


def _is_worth_repeating(last: Attempt) -> bool:
    """Return True if the attempt is not valid although a GPU was observed; missing telemetry stays missing."""
    return last.verdict.status is not Status.VALID and last.verdict.device_uuid is not None
