"""Hazards of impossible numbers."""

from __future__ import annotations

import numpy as np

from annotate.evidence import Evidence
from tests.campaign.edits import declaring, valued
from tests.campaign.mutator import Mutator, limit_of

# Dense bf16 operations per SM and clock (fused multiply-adds count twice), by NVIDIA's white paper on Hopper.
_SM_COUNT, _FLOPS_A_CLOCK = 132, 4096


def _unchanged(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    return declaring(evidence, output_unchanged=True)


def _idle(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    """Declare operations that take longer than the GPU worked, and lower utilisation by the multiple."""
    timings = evidence.timings
    assert timings is not None
    clock_hz = 1980e6
    flops = 0.8 * float(np.diff(timings.at_ns).mean()) / 1e9 * clock_hz * _SM_COUNT * _FLOPS_A_CLOCK
    worked = 0.8 * limit_of("result-cached", "done_ratio") / multiple
    evidence = valued(evidence, "utilization_ratio", lambda at_ns, ratio: np.floor(100.0 * ratio * worked) / 100.0)
    return declaring(evidence, output_unchanged=None, dtype="bfloat16", call_flops_count=flops)


def _too_fast(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    """Declare operations beyond the peak at the calls' own clock, by the limit times the multiple."""
    timings = evidence.timings
    assert timings is not None
    assert timings.sm_clock_mhz is not None
    peak = float(np.median(timings.sm_clock_mhz)) * 1e6 * _SM_COUNT * _FLOPS_A_CLOCK
    beyond = 1.0 + multiple * (limit_of("impossible-time", "flops_ratio") - 1.0)
    return declaring(
        evidence, dtype="bfloat16", call_bytes=None, call_flops_count=beyond * peak * float(np.median(timings.took_s))
    )


def _wrong(evidence: Evidence, multiple: float, rng: np.random.Generator) -> Evidence:
    return declaring(evidence, reference_error_ratio=1e-2 * multiple + 1e-9)


MUTATORS = (
    Mutator(rule="result-cached", inject=_unchanged),
    Mutator(
        rule="result-cached",
        variant="idle",
        inject=_idle,
        limit="busy for half of the time that the declared operations take, divided by the multiple",
    ),
    Mutator(rule="impossible-time", inject=_too_fast, limit="2 % beyond the peak at the calls' own clock"),
    Mutator(rule="semantic-mismatch", inject=_wrong, limit="the allowed error"),
)
