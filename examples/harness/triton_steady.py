"""The replacement for do_bench that warms up until times and clock are steady: ``python examples/harness/triton_steady.py``."""

from matmul import make_matmul
from without_gpu import use_host_without_gpu

import gpuwatch

use_host_without_gpu()
low_ms, median_ms, high_ms = gpuwatch.do_bench(make_matmul(), quantiles=[0.2, 0.5, 0.8])
print(f"{median_ms:.4f} ms, from {low_ms:.4f} to {high_ms:.4f}")
