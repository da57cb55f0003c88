"""Hazards of the L2 cache between calls."""

from __future__ import annotations

import numpy as np

from annotate.evidence import Evidence
from tests.campaign.edits import declaring
from tests.campaign.mutator import Mutator, limit_of

_L2_BYTES = 60 << 20


def _fits(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    set_bytes = limit_of("warm-cache-unintended", "fits_ratio") * _L2_BYTES / multiple
    return declaring(evidence, working_set_bytes=set_bytes, call_bytes=set_bytes, input_bytes=set_bytes, cache="cold")


def _small_flush(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    flush_bytes = limit_of("flush-insufficient", "least_ratio") * _L2_BYTES / multiple
    return declaring(evidence, flush_bytes=flush_bytes, working_set_bytes=None, cache="cold")


MUTATORS = (
    Mutator(rule="warm-cache-unintended", inject=_fits, limit="0.8 of the L2 cache, divided by the multiple"),
    Mutator(rule="flush-insufficient", inject=_small_flush, limit="a flush of 1.5 times the L2 cache, divided by the multiple"),
)
