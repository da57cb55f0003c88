"""Simulated times of iterations, declared facts and host facts of a measured process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np

from annotate.evidence import Fact, Host, Timings, WindowRecord
from gpuwatch.wire.timings import batched, recorded
from tests.annotate.builders import UUID
from tests.proof.chance import generator
from tests.proof.disturbances import Disturbance
from tests.proof.streams import Iterations
from tests.proof.workloads import Workload

_STAMP_S = 4e-8  # standard deviation of the error of an iteration's stamps
_SPREAD_S = 9.6e-8
_MOST_COUNT = 200_000  # most times of a window; more are batched


class Variant(StrEnum):
    """The times that a window records of its iterations."""

    PLAIN = "plain"  # nothing
    TIMES = "times"  # start times and durations
    DURATIONS = "durations"  # durations only, recorded at the end
    STAMPED = "stamped"  # start times, durations, true clocks


def timings(
    variant: Variant, ran: Iterations, window: WindowRecord, epoch_ns: int, batch_count: int, seed: int
) -> Timings | None:
    """Return the iterations as the window would record them, or None for a plain window."""
    if variant is Variant.PLAIN:
        return None
    if variant is Variant.DURATIONS:
        return recorded(ran.took_s.tolist(), None, window.begin_ns, window.end_ns)
    begins_ns = np.round(ran.begin_s * 1e9).astype(np.int64) + epoch_ns
    clock_mhz = None
    if variant is Variant.STAMPED:
        noise = generator(seed, "stamps").standard_normal(ran.count)
        # The wire carries clocks as 32-bit numbers.
        clock_mhz = (ran.clock_mhz * (1.0 + _STAMP_S / ran.took_s * noise)).astype(np.float32).astype(np.float64)
    return batched(Timings(begins_ns, ran.took_s, clock_mhz), max(batch_count, -(-ran.count // _MOST_COUNT)))


def declared_facts(
    variant: Variant, ran: Iterations, disturbances: Sequence[Disturbance], stamped_mhz: float | None
) -> dict[str, Fact]:
    """Return the facts declared at a window's end; ``stamped_mhz`` is the mean clock from the window's first to last stamp."""
    others = [each for each in disturbances if each.family == "own-other-work"]
    found: dict[str, Fact] = {
        "environment": "",
        "torch_version": "2.11.0+cu130",
        "cuda_version": "13.0",
        "cudnn_version": "91900",
        "matmul_precision": "highest",
        "cudnn_tf32": True,
        "cudnn_benchmark": False,
        "deterministic": False,
        "launch_blocking": False,
        "profiler_used": False,
        "tampered": "",
        "sm_count": 132,
        "l2_bytes": 62_914_560,
        "cuda_uuids": UUID,
        "sync_s": 1.1e-5,
        "alloc_count": len(others),
        "alloc_retry_count": 0,
        "reserved_change_bytes": 33_554_432 * len(others),
    }
    if stamped_mhz is not None:
        found |= {"true_clock_mhz": stamped_mhz, "stamped_s": ran.window_end_s - ran.window_begin_s - 2e-5}
    if variant is Variant.DURATIONS:
        found["timer"] = "caller"
    elif variant is not Variant.PLAIN:
        found["timer"] = "events"
    if variant is Variant.STAMPED:
        unseen = sum(0.01 * _mean_depth(each, ran) for each in others)
        found |= {"stamp_spread_s": _SPREAD_S, "stamp_seen_ratio": round(1.0 - unseen, 6)}
    return found


def _mean_depth(each: Disturbance, ran: Iterations) -> float:
    length_s = ran.window_end_s - ran.window_begin_s
    return each.depth * sum((min(p.end_s, length_s) - max(p.begin_s, 0.0)) * p.level for p in each.pieces) / length_s


def host(ran: Iterations, workload: Workload, disturbances: Sequence[Disturbance], seed: int) -> Host:
    """Return the host facts of a launching thread that spins except during sleeps and hold-ups."""
    rng = generator(seed, "host")
    span_s = ran.window_end_s - ran.window_begin_s - float(rng.uniform(1e-3, 4e-3))
    held = _held_up_s(disturbances, span_s)
    asleep_s = held["sleep"] + held["paging"] + held["throttled"] + held["stopped"] + held["preempted"] + held["waits"]
    if workload.gap_s > 1e-3:
        asleep_s += span_s * (1.0 - workload.share)
    company = 0.03 * any(each.family.startswith("neighbour") for each in disturbances)
    waited_ratio = held["preempted"] / span_s
    return Host(
        boot_id="proof", hostname="vm", kernel="6.18.44", container="docker", cpu_allowed_count=16,
        span_s=span_s,
        cpu_s=max(0.0, span_s * 1.001 - asleep_s),
        run_wait_s=held["preempted"] + float(rng.exponential(1.5e-4)),
        threads_count=19,
        cgroup_throttled_s=held["throttled"] or (0.0 if rng.random() < 0.5 else None),
        steal_ratio=float(rng.choice([0.0, 2.1e-4])),
        cpu_busy_ratio=float(min(1.0, 0.064 + company + 0.01 * rng.random() + min(0.93, 8.0 * waited_ratio))),
        cpu_pressure_ratio=float(min(1.0, 0.9 * waited_ratio + rng.exponential(1e-4))),
        numa_nodes="0", profilers="idle:libcupti.so.13", sharing="",
        threads_born_count=0, processes_born_count=0, born_cpu_s=0.0,
        wall_step_s=float(rng.normal(0.0, 8e-9)),
        watcher_cpu_s=0.028 * span_s,
    )  # fmt: skip


def _held_up_s(disturbances: Sequence[Disturbance], span_s: float) -> Mapping[str, float]:
    """Return the seconds in which the launching thread did not run, by cause."""
    held = dict.fromkeys(("sleep", "paging", "throttled", "stopped", "preempted", "waits"), 0.0)
    for each in disturbances:
        if each.family in ("host-stall", "idle-stretch"):
            held[each.kind] += sum(min(p.end_s, span_s) - min(p.begin_s, span_s) for p in each.pieces)
    return held
