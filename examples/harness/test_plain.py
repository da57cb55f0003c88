"""Plain pytest: ``pytest --gpuwatch examples/harness/test_plain.py``.  Without --gpuwatch the test opens no window."""

import pytest
from matmul import make_matmul


@pytest.mark.gpuwatch(tolerance=0.02)
def test_matmul(gpu_window):
    matmul = make_matmul()
    matmul()
    with gpu_window() as w:
        for _ in w.iterations(300):
            matmul()
