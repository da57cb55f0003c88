"""The witness and the judge for GPU benchmark numbers."""

from __future__ import annotations

from annotate import __version__
from annotate.claims import Claim
from annotate.policy import Policy
from annotate.verdict import Finding, Status, Verdict
from gpuwatch.errors import GpuwatchError, RejectedError, UsageError
from gpuwatch.window import Window, window

__all__ = [
    "Claim",
    "Finding",
    "GpuwatchError",
    "Policy",
    "RejectedError",
    "Status",
    "UsageError",
    "Verdict",
    "Window",
    "__version__",
    "window",
]
