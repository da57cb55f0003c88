"""pytest-benchmark, unchanged: ``pytest --gpuwatch examples/harness/test_benchmark.py``.

On a GPU add ``--benchmark-timer=gpuwatch.harness.synchronized_timer.synchronized``, so that a round waits for its GPU work.
"""

from matmul import make_matmul


def test_matmul(benchmark):
    benchmark(make_matmul())
