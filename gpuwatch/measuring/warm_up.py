"""The warm-up of a window: a step repeated until it is steady, as in bench()."""

from collections.abc import Callable
from contextlib import closing

from gpuwatch.measuring import prepare
from gpuwatch.measuring.attempt import Job, warm_up
from gpuwatch.measuring.batching import size_entries
from gpuwatch.measuring.bench_arguments import Limits, Work
from gpuwatch.measuring.cache import warm_setting
from gpuwatch.measuring.environment import BenchEnvironment
from gpuwatch.measuring.progress import Progress
from gpuwatch.wire.messages import FactValue

_KEPT_BUSY_S = 0.01  # the GPU must work during the milliseconds in which a window opens
_KEPT_BUSY_MOST_COUNT = 500  # the queue holds about a thousand launches
_LIMITS = Limits.checked(min_s=None, max_s=10.0, target_ratio=0.005, warmup_max_s=10.0, retries=0)


def warm_until_steady(step: Callable[[], object], environment: BenchEnvironment | None = None) -> dict[str, FactValue]:
    """Run the step until its time and the clock are steady, ten seconds at most, and leave some calls queued on a GPU.

    Return the facts of the warm-up to declare.  Exceptions of the step propagate.
    """
    environment = environment or BenchEnvironment()
    work = Work.checked(step, (), None, None, None, check_inputs=False)
    step()  # initialises libraries, and may create the process's first context
    with prepare.open_timer(None, work) as (timer, _), closing(Progress("", shown=False)) as progress:
        gpu = environment.gpu()
        plan, entry_s, issue_s = size_entries(warm_setting(step, ()), timer)
        job = Job(
            timer=timer,
            plan=plan,
            entry_s=entry_s,
            has_gpu=gpu is not None,
            clock_max_mhz=gpu.device.sm_clock_max_mhz if gpu else None,
            limits=_LIMITS,
            facts={},
            now_ns=environment.now_ns,
            progress=progress,
        )
        _, warmup = warm_up(job)
        timer.rest()
    if issue_s is not None:  # a call returns before its work is done
        call_s = entry_s / plan.calls_count
        for _ in range(min(_KEPT_BUSY_MOST_COUNT, int(_KEPT_BUSY_S / max(call_s, 1e-9)) + 1)):
            step()
    return {"warmup_count": warmup.count, "warmup_s": warmup.took_s, "warmup_steady": warmup.steady}
