"""The noise floor of this GPU: comparisons of equal work on shared or separate buffers."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gpuwatch.comparing import schedule
from gpuwatch.comparing.blocks import BlockTimer
from gpuwatch.comparing.schedule import Runner

KINDS = ("gemm", "copy")
# The next difference exceeds the largest of n with probability 1 / (n + 1): for n = 19 that is the 95 % bound.
TRIALS_COUNT = 19
COVERAGE_RATIO = 0.95
_LEAST_FLOOR_RATIO = 1e-6  # a coarse clock gives equal times
_GEMM_SIZE = 4096
_COPY_BYTES = 1 << 30

Pair = tuple[Callable[[], object], Callable[[], object]]


def differences(
    timer: BlockTimer,
    pairs: Iterator[Pair],
    *,
    trials_count: int,
    seconds: float,
    warm_s: float,
    before: Callable[[], object] | None = None,
) -> Iterator[float]:
    """Yield the difference of each pair of equal variants, from one trial per pair in a new order, if the times are usable."""
    for trial in range(trials_count):
        runners = [Runner(name, (call,), before=before) for name, call in zip("ab", next(pairs), strict=True)]
        a, b = (schedule.calibrate(timer, runner) for runner in runners)
        schedule.warm_up(timer, [a, b], warm_s)
        found = schedule.run_interleaved(timer, a, [b], seconds=seconds, limit_s=4 * seconds, seed=trial)["b"]
        usable = found.quads.usable
        if len(usable):
            yield abs(math.expm1(usable.centre_log))


def floor_of(found: Sequence[float]) -> tuple[float, float]:
    """Return the floor of these differences, and the share of further differences that the floor covers.

    The floor is the order statistic that the next difference exceeds with a probability of at most 5 %.  With fewer than 19
    differences, the floor is the largest difference, which covers less.
    Raises ValueError: when there is no difference.
    """
    count = len(found)
    if not count:
        raise ValueError("expected at least one difference, found none")
    rank = min(count, math.ceil(round(COVERAGE_RATIO * (count + 1), 9)))
    return max(sorted(found)[rank - 1], _LEAST_FLOOR_RATIO), rank / (count + 1)


def equal_pairs(
    torch: Any, kind: str, *, shared: bool = False
) -> Iterator[Pair]:  # torch is not a dependency, so it has no type here
    """Yield pairs of equal variants without end, on shared or separate buffers; a pair lives until the next one exists."""
    make = make_gemm if kind == "gemm" else make_copy
    while True:
        first = make(torch)
        pair = (first, first if shared else make(torch))
        yield pair


def make_gemm(torch: Any, size: int = _GEMM_SIZE) -> Callable[[], object]:
    """Return a function that multiplies two square matrices of bfloat16."""
    a, b = (torch.randn(size, size, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def make_copy(torch: Any) -> Callable[[], object]:
    """Return a function that copies 1 GiB."""
    source = torch.empty(_COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return lambda: target.copy_(source)
