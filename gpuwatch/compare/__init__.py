"""Comparing functions on one GPU: interleaved blocks, one clock, one decision."""

from __future__ import annotations

from gpuwatch.compare.blocks import Block, BlockTimer, Timed
from gpuwatch.compare.comparing import Compared, compare
from gpuwatch.compare.loading import Loaded, load

__all__ = ["Block", "BlockTimer", "Compared", "Loaded", "Timed", "compare", "load"]
