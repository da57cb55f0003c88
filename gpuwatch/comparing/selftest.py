"""The noise floor of this GPU: the same work on other buffers, compared as any two variants are."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpuwatch.comparing import schedule
from gpuwatch.comparing.blocks import BlockTimer
from gpuwatch.comparing.schedule import Runner

KINDS = ("gemm", "copy")
# The floor is the largest of this many differences, which lies near the 95th percentile of many.
TRIALS_COUNT = 8
_GEMM_SIZE = 4096
_COPY_BYTES = 1 << 30

Pair = tuple[Callable[[], object], Callable[[], object]]


def differences(
    timer: BlockTimer, pairs: Iterator[Pair], *, trials_count: int, seconds: float, warm_s: float
) -> Iterator[float]:
    """Yield the measured difference of each pair of equal variants: one trial each, with its own buffers and order."""
    for trial in range(trials_count):
        a, b = (schedule.calibrate(timer, Runner(name, (call,))) for name, call in zip("ab", next(pairs), strict=True))
        schedule.warm_up(timer, [a, b], warm_s)
        found = schedule.run_interleaved(timer, a, [b], seconds=seconds, limit_s=4 * seconds, seed=trial)["b"]
        if len(found.log_ratios):
            yield abs(float(np.expm1(np.median(found.log_ratios))))


def equal_pairs(
    torch: Any, kind: str, *, shared: bool = False
) -> Iterator[Pair]:  # torch is not a dependency, so it has no type here
    """Yield pairs of equal variants without end, on the same buffers or each on its own; a pair lives until the next exists."""
    make = make_gemm if kind == "gemm" else make_copy
    while True:
        first = make(torch)
        pair = (first, first if shared else make(torch))
        yield pair


def make_gemm(torch: Any, size: int = _GEMM_SIZE) -> Callable[[], object]:
    """Return a product of two square matrices of bfloat16."""
    a, b = (torch.randn(size, size, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def make_copy(torch: Any) -> Callable[[], object]:
    """Return a copy of 1 GiB."""
    source = torch.empty(_COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return lambda: target.copy_(source)
