"""A GPU with physics: the source for machines without one, for demonstrations, and for counting false alarms."""

from gpuwatch.sources.simulated.offline import simulate
from gpuwatch.sources.simulated.scenes import FLEETS, SCENES, Scene
from gpuwatch.sources.simulated.simulated_gpu import OWN_PID
from gpuwatch.sources.simulated.simulated_source import Simulated

__all__ = ["FLEETS", "OWN_PID", "SCENES", "Scene", "Simulated", "simulate"]
