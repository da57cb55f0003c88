"""Pipelines of CUDA kernels: CuPy launches on torch's stream, and ``gpuwatch diff --pipeline`` captures graphs."""

from pathlib import Path

import cupy
import numpy as np
import torch

BLOCKS, THREADS = 1056, 256
_NAME = "scale<float, 256>"
_SOURCE = Path(__file__).with_name("scale_template.cu").read_text()
_scale = cupy.RawModule(code=_SOURCE, options=("-std=c++17",), name_expressions=[_NAME]).get_function(_NAME)


def inputs(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the input of both pipelines, and a buffer for the intermediate result."""
    torch.manual_seed(seed)
    return torch.randn(1 << 26, device="cuda"), torch.empty(1 << 26, device="cuda")


def two(x: torch.Tensor, between: torch.Tensor) -> torch.Tensor:
    """Scale by 6 in two kernels."""
    return _launch(_launch(x, between, 2.0), torch.empty_like(x), 3.0)


def one(x: torch.Tensor, between: torch.Tensor) -> torch.Tensor:
    """Scale by 6 in one kernel."""
    return _launch(x, torch.empty_like(x), 6.0)


def _launch(source: torch.Tensor, target: torch.Tensor, factor: float) -> torch.Tensor:
    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        arguments = (source.data_ptr(), target.data_ptr(), np.float32(factor), np.int32(source.numel()))
        _scale((BLOCKS,), (THREADS,), arguments)
    return target
