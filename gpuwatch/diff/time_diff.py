"""The running half of `gpuwatch diff`: each pair of a comparison timed on this machine's GPU, one shape after the other."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import msgspec

from gpuwatch.cuda.driver import checked
from gpuwatch.diff.explained_pair import ExplainedPair
from gpuwatch.diff.kernel_arguments import NotTimedError
from gpuwatch.diff.run_diff import Diff, DiffRequest, run_diff
from gpuwatch.diff.sides import Side
from gpuwatch.diff.static_comparison import StaticComparison
from gpuwatch.diff.sweep import SweepPoint, summarise
from gpuwatch.diff.timed_pair import TimedPair
from gpuwatch.diff.timing_job import TimingTerms, make_job, read_call
from gpuwatch.diff.timing_process import TimingProcess

Explain = Callable[[TimedPair, TimingProcess, StaticComparison | None], ExplainedPair]
NO_GPU = "no NVIDIA GPU on this machine"


@dataclass(frozen=True, slots=True)
class TimingRequest:
    """The terms of timing, the call as the user wrote it, and the points of a sweep: sizes and types of each."""

    terms: TimingTerms
    call: str | None = None
    points: tuple[tuple[Mapping[str, int], Mapping[str, str]], ...] = ()


def find_gpu() -> tuple[str, str]:
    """Return the architecture of the first visible GPU, and why there is none; one of both is empty.  It makes no context."""
    if not Path("/dev/nvidiactl").exists():
        return "", NO_GPU
    try:
        from cuda.bindings import driver

        checked(driver.cuInit(0))
        device = checked(driver.cuDeviceGet(0))
        numbers = driver.CUdevice_attribute
        major, minor = (
            checked(driver.cuDeviceGetAttribute(getattr(numbers, f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{name}"), device))
            for name in ("MAJOR", "MINOR")
        )
    except ImportError:
        return "", "launching kernels needs cuda-bindings; run: pip install 'gpuwatch-validity[diff]'"
    except RuntimeError as error:
        return "", f"the driver gives no GPU ({error})"
    return f"sm_{major}{minor}", ""


def time_diff(
    sides: tuple[Side, Side],
    found: Diff,
    request: DiffRequest,
    timing: TimingRequest,
    state: Path,
    say: Callable[[str], None],
    explain: Explain,
) -> Diff:
    """Return a comparison with the times of its pairs, and of each further point of a sweep.

    Raises UsageError: for arguments, launches and inputs that cannot be derived.
    """
    try:
        pairs = zip_longest(timed_pairs(sides, found, request, timing, say), found.comparisons)
        explained = tuple(explain(pair, process, static) for (pair, process), static in pairs)
    except NotTimedError as error:
        return replace(found, why_not_timed=str(error))
    timed = tuple(each.timed for each in explained)
    found = replace(found, timed=timed, explained=explained)
    if len(timing.points) < 2:
        return found
    points = [SweepPoint(dict(timing.points[0][0]), dict(timing.points[0][1]), timed[0])]
    for sizes, types in timing.points[1:]:
        asked = replace(request, sizes=sizes, types=types)
        again = run_diff(sides, asked, state, why_not_timed="")
        terms = replace(timing, terms=msgspec.structs.replace(timing.terms, sizes=sizes))
        points.append(SweepPoint(dict(sizes), dict(types), next(timed_pairs(sides, again, asked, terms, say))[0]))
    return replace(found, sweep=summarise(points))


def timed_pairs(
    sides: tuple[Side, Side], found: Diff, request: DiffRequest, timing: TimingRequest, say: Callable[[str], None]
) -> Iterator[tuple[TimedPair, TimingProcess]]:
    """Yield the times of each pair with its process, which lives until the next pair is asked for."""
    for pair in [(each.a, each.b) for each in found.comparisons] or (found.alone,):
        job = make_job(sides, pair, (found.a, found.b), request.launch, timing.terms)
        scalars, aliases = read_call(timing.call, job.slots)
        terms = msgspec.structs.replace(job.terms, scalars=scalars, aliases=aliases)
        with TimingProcess(msgspec.structs.replace(job, terms=terms), say) as process:
            yield process.time(), process
