"""Benchmarks with the judge's verdict: ``gpuwatch.bench``."""

from gpuwatch.measuring.attempt import Attempt, Warmup
from gpuwatch.measuring.benchmark import bench
from gpuwatch.measuring.environment import BenchEnvironment
from gpuwatch.measuring.measurement import Measurement
from gpuwatch.measuring.reference import Match
from gpuwatch.measuring.stopping import Stopped

__all__ = ["Attempt", "BenchEnvironment", "Match", "Measurement", "Stopped", "Warmup", "bench"]
