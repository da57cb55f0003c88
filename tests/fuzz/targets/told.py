"""Target: declared facts with any scalar values, and times that pass the daemon's check.

No rule fails on such facts and times, and the verdict's status is never better than without them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from annotate.declared import FACTS
from annotate.evidence import Evidence, Timings
from annotate.judge import judge
from gpuwatch.errors import UsageError
from gpuwatch.wire import messages, packed_times
from tests.annotate.builders import evidence
from tests.fuzz.dealt import Dealt

_NAMES = (*FACTS, "other")
_NUMBERS = (0.0, 1e-9, 1e-3, 0.5, 1.0, 1e3, 1e6, 9e8)


@cache
def _seen() -> tuple[Evidence, int]:
    about = evidence(length_s=0.3, period_s=0.1, signals={"sm_clock_mhz": 1980, "power_w": 600.0, "utilization_ratio": 0.9})
    return about, judge(about).status.badness


def target(data: bytes) -> None:
    dealt = Dealt(data)
    about, badness = _seen()
    told: dict[str, messages.FactValue] = {}
    for _ in range(1 + dealt.byte() % 6):
        name, value = dealt.choice(_NAMES), dealt.value()
        if not isinstance(value, list | dict):
            told[name] = value
    try:
        timings = _timings(dealt, about.window.begin_ns)
    except UsageError:
        timings = None
    verdict = judge(replace(about, declared=told, timings=timings))
    assert verdict.failed == ()
    assert verdict.status.badness >= badness


def _timings(dealt: Dealt, begin_ns: int) -> Timings | None:
    """Return times after packing, the daemon's check and unpacking, or None without times.

    Raises UsageError: when the check rejects the times.
    """
    count = dealt.byte() % 40
    if not count:
        return None
    ats = [begin_ns + i * 5_000_000 if dealt.byte() % 8 else dealt.number() for i in range(count)]
    tooks = [dealt.choice(_NUMBERS) if dealt.byte() % 8 == 0 else 4e-3 + dealt.byte() * 1e-6 for _ in range(count)]
    clocks = [float(dealt.number(4)) if dealt.byte() % 8 == 0 else 1980.0 for _ in range(count)] if dealt.byte() % 2 else []
    piece = messages.Times(
        run="r", at_ns=np.array(ats, "<i8").tobytes(), took_s=np.array(tooks, "<f8").tobytes(),
        sm_clock_mhz=np.array(clocks, "<f4").tobytes(), calls_count=abs(dealt.number(2)) + 1,
    )  # fmt: skip
    packed_times.check(piece, None, 0)
    found = packed_times.joined([piece])
    return found.unpacked() if found is not None else None
