"""Numbers of examples for hypothesis: about a third of each test's number in the suite, all in ``make bench``."""

from __future__ import annotations

import os

# A defect that one example in ten reveals is missed by 20 examples in 12 % of runs, and by 60 examples in 0.2 %.
SHARE = 1.0 if os.environ.get("GPUWATCH_EXAMPLES") == "all" else 1 / 3
FEWEST_COUNT = 10


def share_of(count: int) -> int:
    """Return the number of a test's examples to try in this run."""
    return max(min(count, FEWEST_COUNT), round(count * SHARE))
