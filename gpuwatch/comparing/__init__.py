"""Comparing functions on one GPU: interleaved blocks, one clock, one decision."""

from __future__ import annotations

from gpuwatch.comparing.blocks import Block, BlockTimer, Timed
from gpuwatch.comparing.compared import Compared, compare
from gpuwatch.comparing.loading import Loaded, load

__all__ = ["Block", "BlockTimer", "Compared", "Loaded", "Timed", "compare", "load"]
