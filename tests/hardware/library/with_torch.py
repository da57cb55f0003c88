"""A torch script without gpuwatch: ranges around asynchronous launches, and a range in a captured graph."""

import time

import torch

a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
until = time.monotonic() + 3.0
while time.monotonic() < until:
    for _ in range(20):
        torch.mm(a, b)
    torch.cuda.synchronize()
until = time.monotonic() + 3.0
while time.monotonic() < until:
    for _ in range(20):
        torch.cuda.nvtx.range_push("timed")
        torch.mm(a, b)
        torch.cuda.nvtx.range_pop()
    torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    torch.cuda.nvtx.range_push("timed")
    torch.mm(a, b)
    torch.cuda.nvtx.range_pop()
graph.replay()
torch.cuda.synchronize()
