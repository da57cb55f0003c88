"""Simulated GPUs with physics: the source for machines without a GPU, for demonstrations, and for counting false alarms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuwatch.sources.simulated.scenes import FLEETS, SCENES, Scene
from gpuwatch.sources.simulated.simulated_gpu import OWN_PID
from gpuwatch.sources.simulated.simulated_source import Simulated

if TYPE_CHECKING:
    from gpuwatch.sources.simulated.offline import simulate


def __getattr__(name: str) -> Any:  # the type depends on the name
    if name != "simulate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gpuwatch.sources.simulated.offline import simulate  # imports numpy, which a daemon does not need

    globals()[name] = simulate
    return simulate


__all__ = ["FLEETS", "OWN_PID", "SCENES", "Scene", "Simulated", "simulate"]
