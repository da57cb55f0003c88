"""Triton's do_bench, unchanged: ``gpuwatch run --auto -- python examples/harness/triton_do_bench.py``."""

import triton.testing
from matmul import make_matmul
from without_gpu import use_host_without_gpu

use_host_without_gpu()
print(f"{triton.testing.do_bench(make_matmul()):.4f} ms")
