"""Triton's perf_report with one import for gpuwatch: ``python examples/harness/triton_perf_report.py``."""

import triton.testing
from matmul import make_matmul
from without_gpu import use_host_without_gpu

import gpuwatch.auto  # noqa: F401 - the import opens the windows

use_host_without_gpu()


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["side"],
        x_vals=[2048, 4096],
        line_arg="provider",
        line_vals=["library"],
        line_names=["library"],
        plot_name="matmul",
        ylabel="ms",
        args={},
    )
)
def bench(side, provider):
    return triton.testing.do_bench(make_matmul(side))


bench.run(print_data=True)
