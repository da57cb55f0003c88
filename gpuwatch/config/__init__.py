"""The user's configuration: settings, where each came from, default paths, and amounts with units."""

from __future__ import annotations

from gpuwatch.config.settings import Settings, load

__all__ = ["Settings", "load"]
