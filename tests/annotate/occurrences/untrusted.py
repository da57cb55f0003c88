"""Numbers claimed by code that may cheat, each with the witness's evidence.

Most cheats are published, and ``tests/hardware/cheats.py`` runs all but the forged facts on a real GPU.  The evidence here is
that of a simulated H200 that was busy for 97 % of four seconds, or less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from annotate.evidence import Evidence, Fact, OtherWork, Timings
from tests.annotate.builders import UUID, Signal, evidence
from tests.annotate.occurrences.plausibility import H200
from tests.annotate.occurrences.timing import every

CALL_S, COUNT, LENGTH_S = 0.97e-3, 4000, 4.0
WORK: Mapping[str, Fact] = {"call_flops_count": 0.7 * 989e12 * CALL_S, "dtype": "bf16"}  # seven tenths of the peak
HONEST = every(1e-3, took_s=CALL_S, length_s=LENGTH_S)
IDLE_W, BUSY_W, SPIN_W, COPY_W = 117.0, 690.0, 135.0, 480.0


@dataclass(frozen=True, slots=True)
class Cheat:
    """One cheat: its publication, a function that makes the witness's evidence, and the reason why it can stay hidden."""

    name: str
    published: str
    make: Callable[[], Evidence]
    limit: str = ""  # the reason why the cheat is found only with stated work


def _seen(
    *,
    busy_ratio: float = 0.97,
    power_w: float = BUSY_W,
    until_s: float = LENGTH_S,
    timings: Timings | None = HONEST,
    declared: Mapping[str, Fact] | None = None,
) -> Evidence:
    def watts(t: float) -> float:
        return power_w if busy_ratio and -4.0 <= t < until_s else IDLE_W

    def joules(t: float) -> float:
        return 1000.0 + IDLE_W * (t + 100.0) + (power_w - IDLE_W) * (min(max(t, -4.0), until_s) + 4.0) * bool(busy_ratio)

    signals: dict[str, Signal] = {
        "utilization_ratio": busy_ratio, "sm_activity_ratio": busy_ratio, "power_w": watts, "power_average_w": watts, "energy_j": joules,
    }  # fmt: skip
    device = replace(H200, idle_power_w=IDLE_W)
    return evidence(length_s=LENGTH_S, signals=signals, timings=timings, declared=declared, device=device)


def _scaled(ratio: float) -> Timings:
    return replace(HONEST, took_s=HONEST.took_s * ratio)


def _invented(count: int, call_s: float) -> Mapping[str, Fact]:
    return {"claimed_calls_count": count, "claimed_call_s": call_s}


def _batched() -> Timings:
    took_s = np.where(np.arange(COUNT) % 15 == 0, 15 * CALL_S, 2e-6)
    return Timings(HONEST.at_ns, took_s, None, 1)


def _forged() -> Evidence:
    """Return evidence with declarations that could explain busy time, clear a rule, or name another GPU."""
    forged: dict[str, Fact] = {
        "timer": "events", "busy_ratio": 0.0097, "cuda_uuids": f"{UUID},GPU-other", "flush_bytes": 1 << 30, "cache": "cold", "sync_s": 0.0,
        "output_unchanged": False, "tampered": "", "profiler_used": False, "warmup_steady": True, "every_s": 1e-3, "varies": True,
    }  # fmt: skip
    other = OtherWork(HONEST.at_ns + 9_700, np.full(COUNT, 0.99 * CALL_S), ("flush",) * COUNT)
    return replace(_seen(timings=_scaled(0.01), declared=forged), other_work=other)


_COPY = "a copy of a kept result is work: compare the outputs for other inputs"
_SAME_FACTOR = "count and time wrong by the same factor: state the work of a call"
CHEATS = (
    Cheat("honest", "–", _seen),
    Cheat("patched-events", "reference-kernels#162", lambda: _seen(timings=_scaled(0.01), declared={"timer": "events"})),
    Cheat("patched-statistics", "reference-kernels#162", lambda: _seen(timings=_scaled(0.01))),
    Cheat("patched-counter", "kind of #162", lambda: _seen(timings=_scaled(0.01), declared={"timer": "host", "sync_s": 0.0})),
    Cheat("other-stream", "KernelBench#82", lambda: _seen(timings=every(1e-3, took_s=5e-6), declared={"timer": "events"})),
    Cheat("cached-result", "reference-kernels#142, #162", lambda: _seen(busy_ratio=0.0, timings=every(1e-3, took_s=3e-6, calls_count=50))),
    Cheat("copied-result", "tensara#238", lambda: _seen(power_w=COPY_W, timings=every(1e-3, took_s=19.4e-6, calls_count=50)), _COPY),
    Cheat("batch-and-skip", "reference-kernels#104", lambda: _seen(timings=_batched())),
    Cheat("fewer-calls", "pygpubench#7", lambda: _seen(busy_ratio=0.1, timings=None, declared=_invented(COUNT, CALL_S))),
    Cheat(
        "scaled-calls",
        "kind of pygpubench#7",
        lambda: _seen(timings=None, declared=_invented(30 * COUNT, CALL_S / 30)),
        _SAME_FACTOR,
    ),
    Cheat("no-work", "pygpubench#7", lambda: _seen(busy_ratio=0.0, timings=None, declared=_invented(10_000, 3.3e-6))),
    Cheat("invented", "–", lambda: _seen(busy_ratio=0.0, timings=None, declared=_invented(COUNT, CALL_S))),
    Cheat("lazy-output", "reference-kernels#162", lambda: _seen(busy_ratio=0.0, timings=every(1e-3, took_s=1e-6, calls_count=50))),
    Cheat("unfinished-work", "kind of KernelBench#82", lambda: _seen(until_s=LENGTH_S + 0.5)),
    Cheat("spinning", "–", lambda: _seen(power_w=SPIN_W)),
    Cheat("forged-facts", "–", _forged),
)  # fmt: skip


def scenes() -> Iterator[Evidence]:
    for cheat in CHEATS:
        made = cheat.make()
        for work in ({}, WORK):
            yield replace(made, declared={**made.declared, **work, "untrusted": True})
