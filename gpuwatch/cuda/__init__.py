"""What runs on the GPU for us: stamps of the true clock.  Imported only in a process that already has a CUDA context."""

from __future__ import annotations
