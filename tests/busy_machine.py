"""The policy of windows on a machine that runs other tests as well."""

from __future__ import annotations

import gpuwatch

# The rules on a busy machine are right to speak on one: they are accepted where they are not the subject.
BUSY_MACHINE = gpuwatch.Policy(accept=frozenset({"cpu-starvation", "sampler-gap"}))
