"""The policy of windows on a machine that runs other tests in parallel."""

from __future__ import annotations

import gpuwatch

# Effects of a busy machine on a window: launches wait, inside iterations or between them, and readings are missing.
# These findings are correct; tests about other subjects accept them.
BUSY_MACHINE = gpuwatch.Policy(accept=frozenset({"idle-stretch", "outliers", "dark-time"}))
