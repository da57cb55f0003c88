"""The size of an entry: enough calls to hide the timer's resolution."""

import numpy as np

from gpuwatch.measuring.cache import CacheSetting
from gpuwatch.timers import Timer, TimingPlan

# Long enough that events and stamps take a small share of an entry (docs/decisions/0051).
ENTRY_S = 300e-6
_CALLS_MOST_COUNT = 2000
_TRIES_COUNT = 5
_LONG_S = 0.05  # a call of this length or longer is tried once


def try_call(setting: CacheSetting, timer: Timer) -> tuple[float, float | None]:
    """Estimate the time of one call and the host's time to launch it, None for the host's timer."""
    plan = TimingPlan(calls=setting.calls[:1], before=setting.before)
    taken = timer.take(plan, 1)
    if float(taken.timings.took_s[0]) < _LONG_S:
        taken = timer.take(plan, _TRIES_COUNT)
    return float(np.median(taken.timings.took_s)), taken.issue_s


def size_entries(setting: CacheSetting, timer: Timer) -> tuple[TimingPlan, float, float | None]:
    """Return the plan of the entries, the estimated time of an entry, and the host's time to launch a call."""
    call_s, issue_s = try_call(setting, timer)
    count = 1
    if setting.batches:
        count = min(_CALLS_MOST_COUNT, int(-(-ENTRY_S // max(call_s, 1e-9)))) if call_s < ENTRY_S / 2 else 1
        # Whole rounds of the inputs: otherwise an input would still be in the cache at its next use.
        rounds = -(-count // len(setting.calls))
        count = rounds * len(setting.calls)
    return TimingPlan(calls=setting.calls, calls_count=count, before=setting.before), call_s * count, issue_s
