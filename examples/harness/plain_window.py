"""A benchmark without any harness: ``python examples/harness/plain_window.py``."""

from matmul import make_matmul

import gpuwatch

matmul = make_matmul()
matmul()
with gpuwatch.window("matmul") as w:
    for _ in w.iterations(300):
        matmul()
print(w.verdict)
