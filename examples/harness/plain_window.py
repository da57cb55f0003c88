"""A benchmark without any harness: ``python examples/harness/plain_window.py``."""

from matmul import make_matmul

import gpuwatch

matmul = make_matmul()
with gpuwatch.window("matmul", warm_up=matmul) as w:
    for _ in w.iterations(300):
        matmul()
print(w.verdict)
