"""How a call becomes entries: how many calls to one, so that the timer's grain does not show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuwatch.measuring.cache import Setting
from gpuwatch.timers import Timer, TimingPlan

# What a timer reads around nothing, 3 us of events, is one per cent of this; so is what its stamps let the GPU rest.
ENTRY_S = 300e-6
_CALLS_MOST_COUNT = 2000
_TRIES_COUNT = 5
_LONG_S = 0.05  # a call as long is tried once: nobody waits for more


@dataclass(frozen=True, slots=True)
class Sized:
    """A plan whose entries are long enough, what a call took when it was tried, and the host's time to ask for one."""

    plan: TimingPlan
    call_s: float
    issue_s: float | None


def tried_s(setting: Setting, timer: Timer) -> tuple[float, float | None]:
    """About how long a call takes, and the host's part of it; its first call, which sets libraries up, has been made."""
    plan = TimingPlan(calls=setting.calls[:1], before=setting.before)
    taken = timer.take(plan, 1)
    if float(taken.timings.took_s[0]) < _LONG_S:
        taken = timer.take(plan, _TRIES_COUNT)
    return float(np.median(taken.timings.took_s)), taken.issue_s


def sized(setting: Setting, timer: Timer) -> Sized:
    call_s, issue_s = tried_s(setting, timer)
    count = 1
    if setting.batches:
        count = min(_CALLS_MOST_COUNT, int(-(-ENTRY_S // max(call_s, 1e-9)))) if call_s < ENTRY_S / 2 else 1
        # Whole rounds of the inputs, or the entry's last would be warm when the next begins.
        rounds = -(-count // len(setting.calls))
        count = rounds * len(setting.calls)
    return Sized(TimingPlan(calls=setting.calls, calls_count=count, before=setting.before), call_s, issue_s)
