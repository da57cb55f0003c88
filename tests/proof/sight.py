"""The watcher's view of a window: the driver's refresh periods, the lanes' deadlines, and disturbances of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from annotate.evidence import SIGNALS, Lane
from gpuwatch.sampling.plan import FAST_ACTIVE_NS, FAST_IDLE_NS, ROW_NS, SLOW_ACTIVE_NS
from tests.proof.chance import generator
from tests.proof.disturbances import Disturbance

# Refresh periods of an H200's driver (docs/HARDWARE.md).  The two utilisation ratios share a phase, and so do the counters.
REFRESH_NS: Mapping[str, int] = {
    "sm_clock_mhz": 100_000_000,
    "power_w": 100_000_000,
    "power_average_w": 100_000_000,
    "temperature_c": 100_000_000,
    "power_cap_ns": 100_000_000,
    "utilization_ratio": 200_000_000,
}
_KEPT = frozenset({"sm_clock_mhz", "event_reasons_mask"})  # never missing: the window would be unobserved without these signals


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A stretch in which the daemon did not read some lanes, in seconds since the window began."""

    begin_s: float
    end_s: float
    lanes: frozenset[Lane]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The watcher's reads and their answers; the defaults are those of a healthy daemon on an H200."""

    refresh_factor: float = 1.0
    row_ns: int = ROW_NS
    pulse_ns: int = FAST_ACTIVE_NS
    idle_ns: int = FAST_IDLE_NS
    slow_ns: int = SLOW_ACTIVE_NS
    late_s: float = 2e-4  # mean delay of a row
    lead_s: float = 5.0  # readings start this long before the window, or after its start if negative
    tail_s: float = 0.5
    silences: tuple[Silence, ...] = ()
    missing: frozenset[str] = frozenset()
    missing_lanes: frozenset[Lane] = frozenset()
    host: bool = True
    refresh_known: bool = True
    lists_ratio: float = 1.0  # share of the process lists that were taken
    own_listed: bool = True
    utilization: bool = True
    hidden: bool = False  # other processes are in other namespaces


def sight(disturbances: Sequence[Disturbance], seed: int, window_s: float) -> Sight:
    """Return a healthy watcher's view after these disturbances."""
    rng = generator(seed, "sight")
    seen = Sight(tail_s=float(rng.uniform(0.3, 0.5)), refresh_known=bool(rng.random() < 0.85))
    for each in disturbances:
        seen = _blurred(seen, each, generator(seed, f"sight of {each.family}"), window_s)
    return seen


def _blurred(seen: Sight, each: Disturbance, rng: np.random.Generator, window_s: float) -> Sight:
    depth = each.depth
    match each.family, each.kind:
        case (("neighbour-slices" | "neighbour-bandwidth" | "neighbour-holds"), "hidden"):
            return replace(seen, hidden=True)
        case "evidence-gap", kind:
            silences = tuple(Silence(begin_s=p.begin_s, end_s=p.end_s, lanes=_SILENT[kind]) for p in each.pieces)
            return replace(seen, silences=(*seen.silences, *silences))
        case "records-short", kind:
            return _shortened(seen, kind, depth, window_s)
        case "lists-missing", kind:
            return _unlisted(seen, kind, depth)
        case "records-missing", "signals":
            names = sorted(SIGNALS.keys() - _KEPT)
            chosen = rng.choice(names, max(1, round(depth * len(names))), replace=False)
            return replace(seen, missing=seen.missing | {str(name) for name in chosen})
        case "records-missing", "host":
            return replace(seen, host=False)
        case "records-missing", kind:
            return replace(seen, missing_lanes=seen.missing_lanes | {_UNANSWERED[kind]})
        case "coarse-refresh", "page":
            return replace(seen, refresh_factor=1.0 + depth)
        case "coarse-refresh", "rows":
            # Equal periods switch the pulse lane off.
            row_ns = round(seen.row_ns * (1.0 + depth))
            return replace(seen, row_ns=row_ns, pulse_ns=row_ns, idle_ns=row_ns)
        case "coarse-refresh", _:
            return replace(seen, late_s=1e-3 * (1.0 + depth) ** 1.5)
    return seen


def _shortened(seen: Sight, kind: str, depth: float, window_s: float) -> Sight:
    match kind:
        case "begin-late":
            return replace(seen, lead_s=-depth * window_s)
        case "no-lead":
            return replace(seen, lead_s=5.0 * (1.0 - depth))
        case "end-early":
            return replace(seen, tail_s=-depth * window_s)
        case _:
            return replace(seen, tail_s=0.5 * (1.0 - depth))


def _unlisted(seen: Sight, kind: str, depth: float) -> Sight:
    match kind:
        case "some":
            return replace(seen, lists_ratio=1.0 - depth)
        case "none":
            return replace(seen, lists_ratio=0.0)
        case "namespace":
            return replace(seen, hidden=True, own_listed=False)
        case _:
            return replace(seen, utilization=False)


_SILENT = {
    "all": frozenset(Lane),
    "rows": frozenset({Lane.FAST, Lane.PULSE}),
    "processes": frozenset({Lane.PROCESSES}),
    "power": frozenset({Lane.POWER}),
}
_UNANSWERED = {"dense-power": Lane.POWER, "slow-lane": Lane.SLOW, "edges": Lane.EDGE}
