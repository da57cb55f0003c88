"""Kinds of kernel for windows on a real GPU.  Limits of rules were set on recordings of the ``recorded`` kernels only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.hardware.workloads import copy, gemm

Call = Callable[[], object]


@dataclass(frozen=True)
class Kernel:
    """One kind of work: the name, the factory, and the flag of kernels on which limits of rules were set."""

    name: str
    make: Callable[[], Call]
    recorded: bool
    capped: bool = True  # by power, at the factory limit


def _random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def _conv() -> Call:
    x, weight = _random(64, 256, 56, 56).to(memory_format=torch.channels_last), _random(256, 256, 3, 3)
    weight = weight.to(memory_format=torch.channels_last)
    return lambda: torch.nn.functional.conv2d(x, weight, padding=1)


def _attention() -> Call:
    q, k, v = (_random(8, 16, 4096, 128) for _ in range(3))
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)


def _softmax() -> Call:
    x = _random(16384, 8192, dtype=torch.float32)
    return lambda: torch.softmax(x, -1)


def _layer_norm() -> Call:
    x, weight = _random(32768, 8192), _random(8192)
    return lambda: torch.nn.functional.layer_norm(x, (8192,), weight)


def _fft() -> Call:
    x = torch.randn(256, 1 << 18, device="cuda", dtype=torch.complex64)
    return lambda: torch.fft.fft(x)


def _sort() -> Call:
    x = _random(1 << 26, dtype=torch.float32)
    return lambda: torch.sort(x)


def _gather() -> Call:
    table, rows = _random(1 << 20, 512), torch.randint(0, 1 << 20, (1 << 18,), device="cuda")
    return lambda: torch.nn.functional.embedding(rows, table)


def _cumsum() -> Call:
    x = _random(16384, 16384, dtype=torch.float32)
    return lambda: torch.cumsum(x, 1)


def _mixed() -> Call:
    a, b = _random(4096, 4096), _random(4096, 4096)
    out, big = torch.empty_like(a), _random(1 << 27)
    target = torch.empty_like(big)

    def call() -> None:
        torch.mm(a, b, out=out)
        target.copy_(big)

    return call


def _gemm_rectangular() -> Call:
    a, b = _random(8192, 1024), _random(1024, 16384)
    out = torch.empty(8192, 16384, device="cuda", dtype=torch.bfloat16)
    return lambda: torch.mm(a, b, out=out)


def _graph_gemm() -> Call:
    call = gemm(2048)
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            call()
    replay: Call = graph.replay
    return replay


def _decode() -> Call:
    """Make eight layers for a few tokens: products that read the weights from memory, with activations."""
    x = _random(8, 8192)
    weights = [_random(8192, 8192) / 90.0 for _ in range(8)]  # keeps the numbers' magnitude

    def call() -> None:
        y = x
        for weight in weights:
            y = torch.nn.functional.silu(torch.mm(y, weight))

    return call


def _decode_graph() -> Call:
    """Make 48 small layers for a few tokens, replayed as one graph, so that the host launches once."""
    x = _random(8, 4096)
    weights = [_random(4096, 4096) / 64.0 for _ in range(48)]  # keeps the numbers' magnitude

    def layers() -> torch.Tensor:
        y = x
        for weight in weights:
            y = torch.nn.functional.silu(torch.mm(y, weight))
        return y

    layers()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layers()

    def call() -> object:
        graph.replay()
        return x, weights  # the replay's input, for callers that change it

    return call


def _gemm_of(size: int, **kind: Any) -> Callable[[], Call]:
    return lambda: gemm(size, **kind)


KERNELS = (
    Kernel("copy-1g", copy, recorded=True, capped=False),
    Kernel("gemm-4096", _gemm_of(4096), recorded=True),
    Kernel("gemm-16384", _gemm_of(16384), recorded=True),
    Kernel("gemm-4096-fp32", _gemm_of(4096, dtype=torch.float32), recorded=True, capped=False),
    Kernel("conv-3x3", _conv, recorded=True),
    Kernel("attention", _attention, recorded=True),
    Kernel("softmax-fp32", _softmax, recorded=True, capped=False),
    Kernel("gemm-8192", _gemm_of(8192), recorded=False),
    Kernel("gemm-6144-fp16", _gemm_of(6144, dtype=torch.float16), recorded=False),
    Kernel("gemm-rectangular", _gemm_rectangular, recorded=False),
    Kernel("graph-of-gemm-2048", _graph_gemm, recorded=False),
    Kernel("gemm-and-copy", _mixed, recorded=False),
    Kernel("layer-norm", _layer_norm, recorded=False),
    Kernel("fft", _fft, recorded=True),  # a limit of the first judge was changed after windows of this kernel
    Kernel("sort", _sort, recorded=False, capped=False),
    Kernel("gather", _gather, recorded=False, capped=False),
    Kernel("cumsum", _cumsum, recorded=False, capped=False),
    Kernel("decode", _decode, recorded=False, capped=False),
    Kernel("decode-graph", _decode_graph, recorded=False, capped=False),
)
