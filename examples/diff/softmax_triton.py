"""Softmax of rows in Triton: each row fits in one block, whose size is a power of two."""

import triton
import triton.language as tl


@triton.jit
def softmax(in_ptr, out_ptr, cols, BLOCK: tl.constexpr = 1024):  # noqa: N803 - as Triton writes constants
    offsets = tl.program_id(0) * cols + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < cols
    row = tl.load(in_ptr + offsets, mask=inside, other=-float("inf"))
    raised = tl.exp(row - tl.max(row, axis=0))
    tl.store(out_ptr + offsets, raised / tl.sum(raised, axis=0), mask=inside)
