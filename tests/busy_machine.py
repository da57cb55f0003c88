"""The policy of windows on a machine that runs other tests as well."""

from __future__ import annotations

import gpuwatch

# What a busy machine does to a window: launches wait, inside iterations or between them, and readings stay away.
# Rules are right to speak of it; they are accepted where they are not the subject.
BUSY_MACHINE = gpuwatch.Policy(accept=frozenset({"idle-stretch", "outliers", "dark-time"}))
