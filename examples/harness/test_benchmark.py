"""pytest-benchmark, unchanged: ``pytest --gpuwatch examples/harness/test_benchmark.py``.

On a GPU add ``--benchmark-timer=gpuwatch.harness.synchronized_timer.synchronized``, or the rounds end before the GPU's work does.
"""

from matmul import make_matmul


def test_matmul(benchmark):
    benchmark(make_matmul())
