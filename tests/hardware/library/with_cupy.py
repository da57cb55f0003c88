"""A CuPy script with ranges of ``cupyx.profiler.time_range``."""

import time

import cupy
from cupyx.profiler import time_range

a, b = (cupy.random.standard_normal((8192, 8192), dtype=cupy.float32).astype(cupy.float16) for _ in range(2))
out = a @ b
stream = cupy.cuda.get_current_stream()
until = time.monotonic() + 3.0
while time.monotonic() < until:
    for _ in range(20):
        cupy.matmul(a, b, out=out)
    stream.synchronize()
until = time.monotonic() + 3.0
while time.monotonic() < until:
    for _ in range(20):
        with time_range("timed"):
            cupy.matmul(a, b, out=out)
    stream.synchronize()
