"""Tests of compare() on a real GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from annotate.compare.decision import Decision
from gpuwatch.comparing import compare

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("no GPU")
    return found


def gemm(torch: Any, inner: int = 4096) -> Callable[[], Any]:
    a = torch.randn(4096, inner, dtype=torch.bfloat16, device="cuda")
    b = torch.randn(inner, 4096, dtype=torch.bfloat16, device="cuda")
    out = torch.empty(4096, 4096, dtype=torch.bfloat16, device="cuda")
    return lambda: torch.mm(a, b, out=out)


def copy(torch: Any) -> Callable[[], Any]:
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


@pytest.mark.parametrize("make", [gemm, copy])
def test_same_call_is_same(torch: Any, make: Callable[[Any], Callable[[], Any]]) -> None:
    call = make(torch)
    found = compare({"a": call, "b": call}, check=False, watch=False)
    print(found)
    assert found.timer == "events"
    assert found.decision is Decision.SAME


def test_one_per_cent_more_bytes_take_longer(torch: Any) -> None:
    """One percent more bytes take longer; the variants share buffers, because addresses affect times as well."""
    whole = 1 << 30
    more = round(1.01 * whole) // 4096 * 4096
    source = torch.empty(more, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    variants = {"a": lambda: target[:whole].copy_(source[:whole]), "b": lambda: target.copy_(source)}
    found = compare(variants, check=False, watch=False)
    print(found)
    assert found.decision is Decision.SLOWER


def test_larger_gemm_is_slower_at_both_clocks(torch: Any) -> None:
    found = compare(
        {"a": gemm(torch), "b": gemm(torch, 4096 + 256)}, check=False, own_steady=True, own_s=1.5, label="gemm with more"
    )
    print(found)
    assert found.decision is Decision.SLOWER
    assert found["b"].own_ratio is not None
    assert found["b"].own_ratio.centre > 1.02
    assert found.verdict is not None


def test_inputs_are_made_several_times_and_results_compared(torch: Any) -> None:
    """Two equal products on inputs that a function makes have matching results and the same time."""

    def inputs() -> tuple[Any, Any]:
        return (torch.randn(2048, 2048, device="cuda"), torch.randn(2048, 2048, device="cuda"))

    found = compare({"mm": torch.mm, "matmul": torch.matmul}, inputs=inputs, watch=False)
    print(found)
    assert found.matches["matmul"].holds
    assert found.decision is Decision.SAME
