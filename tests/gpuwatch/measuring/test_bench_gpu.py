"""Tests of bench() on a real GPU; ``pytest -m gpu -s`` shows a short table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuwatch.errors import UsageError
from gpuwatch.measuring import Measurement, bench

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

torch: Any = pytest.importorskip("torch")  # no types


@pytest.fixture(autouse=True, scope="module")
def _gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("expected a GPU that torch can use, found none")
    torch.cuda.init()


def shown(measured: Measurement) -> Measurement:
    m = measured
    clock = f"{m.clock_mhz:.0f} MHz" if m.clock_mhz else "no clock"
    issue_s, width = m.issue_s or 0.0, m.attempt.interval.half_width_ratio if m.attempt.interval else float("nan")
    print(
        f"\n{m.label:<28} {m.timer:<6} {m.cache or '-':<4} {1e6 * m.median_s:10.2f} us ±{100 * width:.2f} %  CV {100 * m.cv_ratio:.2f} %"
        f"  x{m.calls_count:<4} {clock}  issue {1e6 * issue_s:.1f} us  overhead {1e6 * m.timer_overhead_s:.2f} us"
        f"  busy {m.attempt.busy_ratio}  warm-up {m.warmup.took_s:.1f} s {m.warmup.steady}  {m.attempt.took_s:.1f} s"
        f"  {m.verdict.status.value}: {[finding.rule for finding in m.verdict.hazards]}"
    )
    print(m)
    return m


def product(size: int) -> tuple[Callable[..., Any], tuple[Any, Any], float]:
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return torch.mm, (a, b), 2.0 * size**3


def test_gemm_4096_is_timed_with_the_true_clock() -> None:
    fn, args, flops = product(4096)
    measured = shown(
        bench(fn, args=args, flops=flops, reference=lambda a, b: a.float() @ b.float(), label="gemm 4096 bf16", max_s=6.0)
    )
    assert measured.timer == "events"
    assert measured.cache == "cold"
    assert measured.dtype == "bfloat16"
    assert measured.clock_mhz is not None
    assert measured.ci_s is not None
    assert measured.flops_peak_ratio is None or 0.2 < measured.flops_peak_ratio < 1.05


def test_short_addition_is_batched_with_rotated_inputs() -> None:
    x, y = (torch.randn(1 << 20, device="cuda") for _ in range(2))
    measured = shown(bench(torch.add, args=(x, y), bytes=3 * x.nbytes, label="add 1M fp32", max_s=4.0))
    assert measured.cache == "cold"
    assert measured.calls_count > 1
    assert measured.bytes_peak_ratio is None or measured.bytes_peak_ratio < 1.1
    warm = shown(bench(torch.add, args=(x, y), cache="warm", label="add 1M fp32", max_s=4.0))
    assert warm.median_s < 1.02 * measured.median_s


def test_graph_and_events_agree_for_a_long_kernel() -> None:
    fn, args, _ = product(2048)
    events = shown(bench(fn, args=args, cache="warm", label="gemm 2048 bf16", timer="events", max_s=4.0))
    graph = shown(bench(fn, args=args, cache="warm", label="gemm 2048 bf16", timer="graph", max_s=4.0))
    host = shown(bench(fn, args=args, cache="warm", label="gemm 2048 bf16", timer="host", max_s=4.0))
    assert graph.median_s == pytest.approx(events.median_s, rel=0.1)
    assert host.median_s > 0.9 * graph.median_s


def test_graph_and_held_events_do_not_lengthen_a_kernel() -> None:
    """Within 10 %, a graph times a short kernel no longer than held events, and held events no longer than the host's clock."""
    x = torch.randn(1024, device="cuda")
    graph = shown(bench(torch.neg, args=(x,), cache="warm", label="neg 1k", timer="graph", max_s=3.0))
    events = shown(bench(torch.neg, args=(x,), cache="warm", label="neg 1k", timer="events", max_s=3.0))
    host = shown(bench(torch.neg, args=(x,), cache="warm", label="neg 1k", timer="host", max_s=3.0))
    assert graph.median_s <= 1.1 * events.median_s
    assert events.median_s <= 1.1 * host.median_s


def test_copy_reaches_most_of_the_memory_peak() -> None:
    source, target = (torch.empty(1 << 28, dtype=torch.float32, device="cuda").normal_() for _ in range(2))
    measured = shown(bench(target.copy_, args=(source,), bytes=2 * source.nbytes, label="copy 1 GiB", max_s=4.0))
    assert measured.bytes_peak_ratio is None or 0.5 < measured.bytes_peak_ratio < 1.05


def test_host_function_is_timed_by_host_despite_a_gpu() -> None:
    assert shown(bench(lambda: sum(range(20_000)), label="host sum", min_s=0.5, max_s=2.0)).timer == "host"


def test_uncapturable_function_is_refused_in_one_line() -> None:
    x = torch.randn(1024, device="cuda")
    with pytest.raises(UsageError, match="cannot be captured"):
        bench(lambda: x.sum().item(), timer="graph", cache="warm")
    # The process can continue.
    assert shown(bench(torch.sum, args=(x,), cache="warm", label="sum 1k", max_s=2.0)).median_s > 0


def test_cached_result_is_found_on_a_gpu() -> None:
    cached: list[Any] = []

    def memoised(a: Any, b: Any) -> Any:
        if not cached:
            cached.append(a @ b)
        return cached[0]

    fn, args, _ = product(1024)
    kept = args[0].clone()
    assert bench(memoised, args=args, check_inputs=True, cache="warm", timer="host", max_s=1.0).output_unchanged is True
    assert bench(fn, args=args, check_inputs=True, cache="warm", max_s=1.0).output_unchanged is False
    assert torch.equal(args[0], kept)
