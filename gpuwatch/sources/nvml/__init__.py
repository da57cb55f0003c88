"""The driver's own telemetry through NVML: the only package that imports pynvml.  This package calls no setter."""

from gpuwatch.sources.nvml.nvml_source import Nvml

__all__ = ["Nvml"]
