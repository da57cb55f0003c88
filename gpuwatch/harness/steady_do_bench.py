"""``gpuwatch.do_bench``: Triton's ``do_bench`` after a warm-up that lasts until times and clock are steady."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from gpuwatch.errors import UsageError
from gpuwatch.harness.patching import original_of
from gpuwatch.harness.session import is_off
from gpuwatch.harness.triton_testing import watch_do_bench
from gpuwatch.measuring.bench_arguments import check_function
from gpuwatch.measuring.warm_up import warm_until_steady


def do_bench(
    fn: Callable[[], object],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:  # a time or a list of times in milliseconds, as Triton's
    """Return the result of ``triton.testing.do_bench``, measured after a warm-up and inside a window.

    The warm-up lasts until times and clock are steady, for at most 10 s.  Triton's default measures from 25 to 125 ms
    after the first call.  A GEMM on an idle H200 is too fast for 56 to 75 ms (docs/HARDWARE.md).  The window's verdict is in
    ``gpuwatch.auto.results()``, and the process prints the verdict at exit.

    Provisional: this function follows Triton's signature.

    Args:
        fn: Function without arguments, one call of the work.
        warmup: Triton's own warm-up, in milliseconds.
        rep: Time to measure, in milliseconds.
        grad_to_none: Tensors whose gradient Triton clears before each timed call.
        quantiles: Shares between 0 and 1; the result is then a list of these quantiles, or a single time for one share.
        return_mode: ``"mean"``, ``"median"``, ``"min"``, ``"max"`` or ``"all"``.

    Returns:
        A time in milliseconds, or a list of times for several quantiles and ``"all"``.

    Raises UsageError: when Triton is not installed, and for an ``fn`` that is no function or does its work later.

    Example: ``examples/harness/triton_steady.py``
    """
    check_function(fn, "do_bench")
    try:
        testing = importlib.import_module("triton.testing")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"do_bench: expected Triton to be installed, found no module {error.name!r}; run: pip install triton"
        ) from error
    given = (warmup, rep, grad_to_none, quantiles, return_mode)
    if is_off():
        return original_of(testing.do_bench)(fn, *given)
    return watch_do_bench(testing, warm_until_steady(fn))(fn, *given)
