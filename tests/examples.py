"""How many examples hypothesis tries: a share of each test's number in the normal suite, all of them in ``make bench``."""

from __future__ import annotations

import os

# A regression that one example in ten shows passes 20 examples once in eight runs, and 60 once in 500.
SHARE = 1.0 if os.environ.get("GPUWATCH_EXAMPLES") == "all" else 1 / 3
FEWEST_COUNT = 10


def share_of(count: int) -> int:
    """Return how many of a test's examples to try now."""
    return max(min(count, FEWEST_COUNT), round(count * SHARE))
