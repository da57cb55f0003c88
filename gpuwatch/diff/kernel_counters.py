"""Counters of both kernels in a profiler's groups, with ncu's metric names, units, and the direction that is faster."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

Readings: TypeAlias = Mapping[str, tuple[float, ...]]  # by counter: one value per repetition
REPEATS = 3
_T_95 = 4.303  # Student's quantile for a mean of three
_OF_PEAK = ".avg.pct_of_peak_sustained"
_SECTOR_BYTES = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.pct"
_STALLED = "smsp__warp_issue_stalled_{}_per_warp_active.pct"
_FLOPS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
REPLAY_CAVEAT = (
    "ncu replays a launch once for each set of counters, and flushes the caches before each replay. "
    "Its counters show only a direction; the times come from a pass without ncu"
)


@dataclass(frozen=True, slots=True)
class CounterMetric:
    """One counter: the sum of ncu's metrics times their factors.  The unit of a share is a ratio.

    ``faster`` is positive if more makes a kernel faster, negative if less does, 0 if unknown.  The absolute value
    is the weight of a factor e between the sides (for a share, of a difference of 1).
    """

    name: str
    group: str
    title: str
    faster: float
    ncu: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_share(self) -> bool:
        return self.name.endswith("_ratio")

    @property
    def is_extensive(self) -> bool:
        """Return True for a sum over a pipeline's launches; other counters are means weighted by duration."""
        return self.group != LAUNCH and self.name.endswith(("_count", "_bytes"))


TRAFFIC, HALVES, CACHES = "dram_bytes", "fp16_flops_count", "memory_throughput_ratio"
SOL, ARITHMETIC, CACHE, WARPS, LAUNCH = "speed of light", "arithmetic", "cache", "warp states", "launch"


def _flops(letter: str) -> dict[str, float]:
    return {_FLOPS.format(f"{letter}{name}"): count for name, count in (("add", 1.0), ("mul", 1.0), ("fma", 2.0))}


# ncu reports most shares as percentages, which the parser converts to ratios.
METRICS = (
    CounterMetric("sm_activity_ratio", SOL, "SMs with a warp", 0),  # from GPM only
    CounterMetric("sm_throughput_ratio", SOL, "SM throughput", 0.3, {f"sm__throughput{_OF_PEAK}_elapsed": 1}),
    CounterMetric(CACHES, SOL, "memory throughput", 0, {f"gpu__compute_memory_throughput{_OF_PEAK}_elapsed": 1}),
    CounterMetric("dram_activity_ratio", SOL, "DRAM activity", 0.5, {f"gpu__dram_throughput{_OF_PEAK}_elapsed": 1}),
    CounterMetric(TRAFFIC, SOL, "DRAM traffic", -1.0, {"dram__bytes_read.sum": 1, "dram__bytes_write.sum": 1}),
    CounterMetric("fp32_flops_count", ARITHMETIC, "fp32 operations", -0.4, _flops("f")),
    CounterMetric(HALVES, ARITHMETIC, "fp16 operations", -0.4, _flops("h")),
    CounterMetric("fp64_flops_count", ARITHMETIC, "fp64 operations", -0.4, _flops("d")),
    CounterMetric("instructions_count", ARITHMETIC, "warp instructions", -0.5, {"smsp__inst_executed.sum": 1}),
    CounterMetric(
        "tensor_activity_ratio", ARITHMETIC, "tensor activity", 1.5, {f"sm__pipe_tensor_cycles_active{_OF_PEAK}_active": 1}
    ),
    CounterMetric("thread_activity_ratio", ARITHMETIC, "thread activity", 1.5, {"smsp__thread_inst_executed_per_inst_executed.ratio": 1 / 32}),
    CounterMetric("l2_hit_ratio", CACHE, "L2 hits", 0.6, {"lts__t_sector_hit_rate.pct": 1}),
    CounterMetric("l1_hit_ratio", CACHE, "L1 hits", 0.5, {"l1tex__t_sector_hit_rate.pct": 1}),
    CounterMetric("bank_conflicts_count", CACHE, "bank conflicts", -1.0, {"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 1}),
    CounterMetric("load_efficiency_ratio", CACHE, "load efficiency", 2.0, {_SECTOR_BYTES.format("ld"): 1}),
    CounterMetric("store_efficiency_ratio", CACHE, "store efficiency", 2.0, {_SECTOR_BYTES.format("st"): 1}),
    CounterMetric("occupancy_ratio", WARPS, "occupancy", 0.7, {f"sm__warps_active{_OF_PEAK}_active": 1}),
    CounterMetric("stall_memory_ratio", WARPS, "stalled for memory", -0.8, {_STALLED.format("long_scoreboard"): 1}),
    CounterMetric("stall_queue_ratio", WARPS, "stalled for the memory queue", -0.8, {_STALLED.format("lg_throttle"): 1}),
    CounterMetric("stall_compute_ratio", WARPS, "stalled for a result", -0.8, {_STALLED.format("short_scoreboard"): 1}),
    CounterMetric("stall_sync_ratio", WARPS, "stalled at a barrier", -0.8, {_STALLED.format("barrier"): 1}),
    CounterMetric("registers_count", LAUNCH, "registers, allocated", 0, {"launch__registers_per_thread": 1}),
    CounterMetric("shared_bytes", LAUNCH, "shared memory, allocated", 0, {"launch__shared_mem_per_block": 1}),
)  # fmt: skip
DURATION = "gpu__time_duration.sum"
CounterSource: TypeAlias = Literal["ncu", "GPM", "none"]


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of both sides and their source; ``says`` describes the source."""

    source: CounterSource
    says: str
    a: Readings = field(default_factory=dict)
    b: Readings = field(default_factory=dict)

    def mean(self, side: Literal["a", "b"], name: str) -> float | None:
        """Return a counter's mean; None if the counter was not read."""
        values = (self.a if side == "a" else self.b).get(name)
        return statistics.fmean(values) if values else None

    def is_uncertain(self, name: str) -> bool:
        """Return True if the interval of the sides' difference includes zero; False without an interval or with zero width."""
        pairs = [b - a for a, b in zip(self.a.get(name, ()), self.b.get(name, ()), strict=False)]
        if len(pairs) < REPEATS:
            return False  # no interval
        half_width = _T_95 * statistics.stdev(pairs) / math.sqrt(len(pairs))
        return half_width > 0 and abs(statistics.fmean(pairs)) <= half_width

    def without(self, name: str) -> "Counters":
        """Return the counters without the named one."""
        a, b = ({each: values for each, values in side.items() if each != name} for side in (self.a, self.b))
        return replace(self, a=a, b=b)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        rows = []
        for each in (metric for metric in METRICS if metric.name in self.a or metric.name in self.b):
            a, b = self.mean("a", each.name), self.mean("b", each.name)
            uncertain = self.is_uncertain(each.name)
            rows.append({"name": each.name, "group": each.group, "a": a, "b": b, "is_uncertain": uncertain})
        return {"source": self.source, "says": self.says, "metrics": rows}
