"""The windows that fooled the judge when they were invented: ``python -m tests.proof.fooling`` at commit 4b7a3af, 2026-11-22.

The windows' author had not read the rules.  The judge's author fixed the judge after seeing these windows, so only these counts
are a measurement.
"""

from __future__ import annotations

FOOLED_AT_FIRST: frozenset[str] = frozenset({
    # windows that are off, with an unacceptable verdict
    "switch-early", "dips-between-refreshes", "stretched-clock", "creeping-limit", "hot-memory", "frozen-page",
    "ramp-of-another-model", "switched-before", "pinpricks", "short-freezes", "long-window-seldom-read", "waiting-collectives",
    "spells-of-the-interpreter", "no-meter-but-the-mean-of-power", "half-of-the-sms", "remote-desktop", "jobs-between-lists",
    "second-rank-of-the-same-job", "zeros-throughout", "times-of-another-gpu", "early-exit-in-five-batches", "slow-buffers",
    "counted-twice", "overlapping-calls", "tiny-kernel-between-events",
    # honest windows with an unacceptable verdict
    "copies-from-the-host", "neighbour-that-holds-memory", "capped-product-timed", "capped-large-product-timed",
})  # fmt: skip
