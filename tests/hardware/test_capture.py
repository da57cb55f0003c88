"""Tests of windows with CUDA graphs on a real GPU: a synchronisation by gpuwatch during a capture would destroy the graph."""

from __future__ import annotations

import pytest

import gpuwatch

pytestmark = pytest.mark.gpu


def test_window_inside_a_capture_keeps_the_graph_whole() -> None:
    import torch

    x = torch.randn(512, 512, device="cuda")
    y = torch.empty_like(x)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.mm(x, x, out=y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), gpuwatch.window("captured") as w:
        torch.mm(x, x, out=y)
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.allclose(y, x @ x, rtol=1e-2, atol=1e-2)
    assert w.verdict.findings


def test_window_around_replays_is_valid() -> None:
    import torch

    x = torch.randn(1 << 28, device="cuda")
    y = torch.empty_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.copy_(x)
    for _ in range(500):
        graph.replay()
    with gpuwatch.window("replayed") as w:
        for _ in range(6000):
            graph.replay()
    assert w.verdict.status is gpuwatch.Status.VALID, str(w.verdict)
