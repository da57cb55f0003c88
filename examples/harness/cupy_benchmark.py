"""An unchanged CuPy benchmark, for a GPU: ``gpuwatch run --auto -- python examples/harness/cupy_benchmark.py``."""

import cupy
from cupyx.profiler import benchmark

a, b = (cupy.random.random((4096, 4096), dtype=cupy.float32) for _ in "ab")
print(benchmark(cupy.matmul, (a, b), n_repeat=200))
