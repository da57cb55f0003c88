"""Rates of found and invented differences in 3 s of H200 recordings, and of a GEMM and a copy on simulated GPUs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from annotate.compare.decision import FLOOR_RATIO, Decision
from annotate.compare.quad_decision import decide
from annotate.evidence import Values
from tests.gpuwatch.comparing.recorded import SCENARIOS, dealt
from tests.gpuwatch.comparing.simulated import COPY, GEMM, Kernel, quads_of, trials
from tests.rate_bounds import clopper_pearson

TRIALS_COUNT = 400
# One standard deviation of the effect of buffer addresses on an H200 (docs/BENCHMARKS.md, comparison).
_PLACEMENT_RATIO = 0.0013


def main() -> dict[str, float]:
    """Print the tables; return the worst figures of recordings and simulated cards at the default floor."""
    figures = {"found_ratio": 1.0, "found_on_own_buffers_ratio": 1.0, "invented_ratio": 0.0}

    def note(change: float, hits_ratio: float) -> None:
        if change:
            figures["found_ratio"] = min(figures["found_ratio"], hits_ratio)
        else:
            figures["invented_ratio"] = max(figures["invented_ratio"], hits_ratio)

    print(f"\ncompare(): {TRIALS_COUNT} trials each, 3 s of blocks of 3 ms; 95 % Clopper-Pearson bounds")
    print(f"{'kernel':<18} {'floor':<22} {'true':>7} {'found':>11} {'bounds':>16} {'error p95':>10}")
    print(f"{'':<8} recordings of an H200, split between two variants (trials overlap: bounds are too narrow)")
    for scenario in SCENARIOS:
        for change in (0.0, 0.005, -0.005):
            rows = np.array(list(dealt(scenario, change, TRIALS_COUNT)))
            note(change, _print(scenario, f"default {FLOOR_RATIO:.2%}", rows, FLOOR_RATIO, change))
    print(f"{'':<8} simulated cards")
    for name, kernel in (("gemm", GEMM), ("copy", COPY)):
        null = trials(kernel, kernel, TRIALS_COUNT, seed=99)
        measured = float(np.percentile(np.abs(np.median(null, axis=1)), 95))
        for floor_name, floor_ratio in ((f"default {FLOOR_RATIO:.2%}", FLOOR_RATIO), (f"measured {measured:.3%}", measured)):
            for change in (0.0, 0.005, -0.005):
                hits_ratio = _row(name, kernel, floor_name, floor_ratio, change, placed=False)
                if floor_ratio == FLOOR_RATIO:
                    note(change, hits_ratio)
        for change in (0.0, 0.005):
            hits_ratio = _row(name, kernel, "default, own buffers", FLOOR_RATIO, change, placed=True)
            if change:
                figures["found_on_own_buffers_ratio"] = min(figures["found_on_own_buffers_ratio"], hits_ratio)
            else:
                note(change, hits_ratio)
    return figures


def _row(name: str, kernel: Kernel, floor_name: str, floor_ratio: float, change: float, *, placed: bool) -> float:
    rows = trials(kernel, replace(kernel, took_s=kernel.took_s * (1 + change)), TRIALS_COUNT, seed=3)
    if placed:
        rows = rows + _PLACEMENT_RATIO * np.random.default_rng(5).standard_normal((len(rows), 1))
    return _print(name, floor_name, rows, floor_ratio, change)


def _print(name: str, floor_name: str, rows: Values, floor_ratio: float, change: float) -> float:
    """Print the row; return the ratio of trials that found the change, or any difference if ``change`` is 0."""
    found = [decide("a", "b", quads_of(row), floor_ratio=floor_ratio).decision for row in rows]
    wanted = {0.0: (Decision.FASTER, Decision.SLOWER)}.get(change, (Decision.SLOWER if change > 0 else Decision.FASTER,))
    hits = sum(decision in wanted for decision in found)
    low, high = clopper_pearson(hits, len(found))
    error = float(np.percentile(np.abs(np.median(rows, axis=1) - np.log1p(change)), 95))
    print(f"{name:<18} {floor_name:<22} {change:>+7.1%} {hits:>7}/{len(found)} {f'{low:.1%} - {high:.1%}':>16} {error:>10.3%}")
    return hits / len(found)


if __name__ == "__main__":
    main()
