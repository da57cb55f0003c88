"""Comparing functions on one GPU: interleaved blocks, one clock, one decision."""

from gpuwatch.comparing.blocks import Block, BlockTimer, Timed
from gpuwatch.comparing.compare_result import Compared
from gpuwatch.comparing.compare_run import compare
from gpuwatch.comparing.load_variants import Loaded, load

__all__ = ["Block", "BlockTimer", "Compared", "Loaded", "Timed", "compare", "load"]
