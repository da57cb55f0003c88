"""Missing evidence never clears a hazard: each rule is asked again without each observation that it read.

A rule may stay clear only by another witness, which is then withheld as well (``INSTEAD``), or for a reason (``SPARED``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest

from annotate.claims import Claim
from annotate.evidence import SIGNALS, Evidence, Lane
from annotate.rule import Answer, Clear, Rule
from annotate.rules import RULES
from tests.annotate.withholding import clean, read_by, without

_ANY_FAST = tuple(name for name, lane in SIGNALS.items() if lane == Lane.FAST)
_CAP = ("power_violation_ns", "power_cap_ns", "event_reasons_mask")
_WORK = ("declared.call_flops_count", "declared.call_bytes")
_CLOCK = (("timings", "sm_clock_mhz"), ("timings.sm_clock_mhz", "sm_clock_mhz"))

# Witnesses that replace each other: without all witnesses of a group, a rule must not clear.
INSTEAD: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "stale-daemon": (_ANY_FAST,),
    "no-work": (("sm_activity_ratio", "utilization_ratio", "dense_power"), ("sm_activity_ratio", "utilization_ratio", "energy_j")),
    "idle-stretch": (("dense_power", "utilization_ratio"),),
    "throttle-thermal": (("thermal_violation_ns", "sw_thermal_ns", "event_reasons_mask"), ("hw_thermal_ns", "event_reasons_mask")),
    "throttle-power-brake": (("power_brake_ns", "event_reasons_mask"),),
    "power-limited": (_CAP,),
    "sync-boost-limited": (("sync_boost_ns", "event_reasons_mask"),),
    "power-reading-stale": (("dense_power", "power_w", "power_average_w"),),
    **dict.fromkeys(("clock-drift", "clock-ramp", "regime-change"), _CLOCK),
    "locked-clock-missed": _CLOCK,
    "work-levels": (
        ("dense_power", "dram_activity_ratio"),
        ("device.power_limit_w", "dram_activity_ratio"),
        (*_CAP, "dram_activity_ratio"),
    ),
    "clock-controller-present": (("power_limit_w", "device.power_limit_w"), ("sm_clock_lock_mhz", "event_reasons_mask")),
    "clock-low-no-reason": (
        ("declared.canary_record_clock_mhz", "sm_clock_lock_mhz", "device.sm_clock_max_mhz"),
        ("declared.canary_record_count", "sm_clock_lock_mhz", "device.sm_clock_max_mhz"),
    ),
    "bursty-duty-cycle": (_CAP, ("timings", "utilization_ratio", "declared.busy_ratio", "sm_activity_ratio")),
    "contention-residual": (("memory_used_bytes", "process_list"), ("device.memory_reserved_bytes", "process_list")),
    "contention-self": (
        ("declared.stamp_seen_ratio", "declared.stamp_spread_s", "declared.busy_ratio"),
        ("declared.stamp_seen_ratio", "declared.stamp_spread_s", "utilization_ratio"),
    ),
    "warm-cache-unintended": (
        ("declared.flush_bytes", "declared.l2_bytes"),
        ("declared.flush_bytes", "declared.working_set_bytes", "declared.call_bytes", "declared.input_bytes"),
    ),
    "result-cached": (
        ("declared.output_unchanged", "utilization_ratio"),
        ("declared.output_unchanged", "timings"),
        ("declared.output_unchanged", *_WORK),
        ("declared.output_unchanged", "device.cuda_cores_count", "device.memory_bus_bits_count"),
        ("declared.output_unchanged", "device.compute_capability", "declared.l2_bytes"),
    ),
    "nvml-clock-untrue": (("timings.sm_clock_mhz",),),
    "impossible-time": (_WORK,),
    "persistence-off": (("persistence_mode", "device.persistence_mode"),),
    "software-mismatch": (
        ("device.driver_version", "declared.torch_version", "declared.launch_blocking", "declared.timer", "declared.dtype", "declared.input_dtype",
         "declared.input_bytes", "declared.environment"),
    ),
    "clock-between-arms": (("timings", "sm_clock_mhz"), ("timings.sm_clock_mhz", "sm_clock_mhz")),
}  # fmt: skip

_WORDS = "only grades or describes a finding"
_IDLING = "separates idle moments from work; without it all moments count as work, which finds more"
_ASKED_ALONG = "read with the other facts of a timed loop; decides nothing here"
_COMPANY = "read with the other evidence of neighbours; memory can reveal neighbours but not exclude them"
_MEMORY = ("memory_used_bytes", "device.memory_reserved_bytes")
_CRESTS = "without a known cap the crests of the clock's swing stay references, which finds more"
_LOAD = "shows when load began; the shape depends on the clock alone"
_WITNESSES = "one of several witnesses of busy time; utilisation decides if available"
_STAMPS = "without stamps, times are judged as measured and follow the clock"
_NOT_THERE = "the driver reports it only for a GPU with the feature"
_TELLER = "a process that declares nothing must not fare worse; the rule's page lists this blind spot"

# Evidence that a rule does not need to clear, with the reason.
SPARED: Mapping[str, Mapping[str, str]] = {
    "throttle-hw-slowdown": dict.fromkeys(("hw_thermal_ns", "power_brake_ns"), "the reason bit covers both"),
    "clock-drift": {"event_reasons_mask": _IDLING, "dense_power": _LOAD, "power_violation_ns": _CRESTS},
    "clock-ramp": {"event_reasons_mask": _IDLING, "dense_power": _LOAD, "power_violation_ns": _CRESTS},
    "locked-clock-missed": {
        "power_violation_ns": "a cap with an effect moves the clock off its lock",
        "device.sm_clock_max_mhz": "only limits a lock above the maximum",
    },
    "clock-controller-present": {"device.sm_clock_max_mhz": "the reason bit of application clocks then decides"},
    "clock-low-no-reason": {
        "event_reasons_mask": "excuses a low clock; the clock was not low",
        "power_violation_ns": "the counter of capped time shows the same",
        "declared.canary_copy_bytes_count": _TELLER,
        "declared.canary_record_copy_bytes_count": _TELLER,
    },
    "nvml-clock-untrue": {"utilization_ratio": "stamped iterations alone fill the time"},
    "unaccounted-time": {
        **dict.fromkeys(("process_list", "dense_power", "device.power_limit_w", "energy_j", "sm_activity_ratio"), _WITNESSES),
        "timings": "without times, the books compare the busy time of the window's processes",
        "timings.sm_clock_mhz": _ASKED_ALONG,
    },
    "no-work": dict.fromkeys(("process_list", "device.power_limit_w"), "show energy and the owner of the work; utilisation decides"),
    "idle-stretch": dict.fromkeys(
        (name for name in _ANY_FAST if name != "utilization_ratio"), "any reading shows how often the driver was read"
    ),
    "regime-change": {"event_reasons_mask": _IDLING, "dense_power": _LOAD, "power_violation_ns": _CRESTS},
    "dark-time": dict.fromkeys((name for name in SIGNALS if name != "sm_clock_mhz"), "any reading shows that the daemon watched"),
    "clock-levels": {
        "event_reasons_mask": _IDLING,
        "dense_power": _LOAD,
        "power_violation_ns": _CRESTS,
        "utilization_ratio": "power shows the load; utilisation only separates a short load from idle",
    },
    "bursty-duty-cycle": {"timings.sm_clock_mhz": _ASKED_ALONG},
    "work-levels": {
        "timings": "without times, the witnesses alone decide",
        "timings.sm_clock_mhz": "the gaps between times show when load began; their clock is read too",
        "sm_clock_mhz": "a changed clock explains power; without the clock nothing does, which finds more",
    },
    "contention-process": dict.fromkeys(_MEMORY, _COMPANY),
    "overlapping-window": dict.fromkeys((*_MEMORY, "process_list"), "the daemon's list of windows decides"),
    "contention-shared-partition": {
        "process_list": "the pipe of the MPS server is evidence too",
        "mig_mode": _NOT_THERE,
        "device.mig_mode": _NOT_THERE,
    },
    "display-active": {"event_reasons_mask": "a second sign (see the rule's page)", **dict.fromkeys(_MEMORY, _COMPANY)},
    "numa-pcie-affinity": {"event_reasons_mask": _IDLING},
    "missing-sync": {"utilization_ratio": _ASKED_ALONG},
    "wrong-stream": {
        "declared.timer_overhead_s": _WORDS,
        "utilization_ratio": "times this long enclose work",
        **dict.fromkeys(("declared.stamp_seen_ratio", "declared.stamp_spread_s"), _TELLER),
    },
    "host-bound": {"declared.cuda_uuids": "a GPU this busy did not wait for the host"},
    "short-kernel": {"utilization_ratio": _ASKED_ALONG},
    "timer-overhead": {"utilization_ratio": _ASKED_ALONG},
    "profiler-attached": {
        "timings": _WORDS,
        "utilization_ratio": _WORDS,
        "declared.launch_blocking": _TELLER,
        "declared.profiler_used": _TELLER,
    },
    "warm-cache-unintended": {
        "timings": "sizes decide",
        "utilization_ratio": _ASKED_ALONG,
        "device.mem_clock_max_mhz": "sizes decide",
        "device.memory_bus_bits_count": "sizes decide",
    },
    "flush-insufficient": {"declared.working_set_bytes": "a large working set is another way to be cold"},
    "allocator-churn": {"declared.alloc_count": _TELLER, "declared.alloc_retry_count": _TELLER},
    "data-dependent-power": dict.fromkeys(("power_violation_ns", "power_w", "device.power_limit_w"), "the inputs decide"),
    "background-thread": {"host.born_cpu_s": "no thread started", "host.span_s": "no thread started"},
    "result-cached": {
        "declared.timer": "declared work counts with any timer",
        "declared.dtype": "the fastest data type then bounds the work",
        "declared.cuda_uuids": "the output was compared",
        "declared.working_set_bytes": "only reduces the traffic",
        "device.sm_clock_max_mhz": "memory traffic then decides",
        "device.mem_clock_max_mhz": "arithmetic then decides",
    },
    "impossible-time": {
        "sm_clock_mhz": "only bounds stamps; times and the declared work decide",
        "declared.dtype": "the fastest data type then bounds the work",
        "declared.cuda_uuids": _TELLER,
        "declared.l2_bytes": "the largest cache of the generation is then the bound",
        "declared.working_set_bytes": "the bytes of a call are used instead",
        "device.sm_clock_max_mhz": "stamps then give the clock",
        "timings.sm_clock_mhz": "the highest clock is then the bound",
        "utilization_ratio": _ASKED_ALONG,
    },
    "outliers": {
        **dict.fromkeys(("host.run_wait_s", "host.span_s"), _WORDS),
        **dict.fromkeys(("event_reasons_mask", "sm_clock_mhz", "timings.sm_clock_mhz"), _STAMPS),
        "power_violation_ns": _ASKED_ALONG,
    },
    "bimodal": {"timings.sm_clock_mhz": _STAMPS},
    "iteration-growth": {
        **dict.fromkeys(("event_reasons_mask", "sm_clock_mhz", "timings.sm_clock_mhz"), _STAMPS),
        "power_violation_ns": _ASKED_ALONG,
    },
    "iteration-levels": {
        **dict.fromkeys(("event_reasons_mask", "sm_clock_mhz", "timings.sm_clock_mhz"), _STAMPS),
        "power_violation_ns": _ASKED_ALONG,
    },
    "setting-changed": {
        **dict.fromkeys(("compute_mode", "ecc_mode", "mig_mode", "persistence_mode", "sm_clock_lock_mhz"), _NOT_THERE),
        "dense_power": "shows a limit that was raised between two readings; the readings decide",
        **dict.fromkeys(("timings", "timings.sm_clock_mhz"), "show when load began, for the power record alone"),
    },
    "clock-source-step": {"timings": "without times, none can lie outside the window"},
    "hardware-mismatch": {
        f"device.{name}": "only fields known for both are compared, and one UUID is one board (see the rule's page)"
        for name in (
            "memory_total_bytes", "compute_capability", "cuda_cores_count", "mig_mode", "virtualization", "vbios_version",
            "sm_clock_max_mhz", "mem_clock_max_mhz", "pcie_generation_max_count", "pcie_width_max_count", "ecc_mode",
            "persistence_mode",
        )
    },
    "order-bias": {"declared.design": "only the value sequential is trusted"},
}  # fmt: skip
# A driver that does not list its supported reasons is assumed to report all.
_EVERYWHERE = {"device.supported_reasons_mask"}


@cache
def window(rule: Rule) -> Evidence:
    """Return a window in which the rule is clear: for most rules, with times of the host's clock."""
    host = clean()
    # With stamps some rules give bounds of 0 in place of clear, hence a window without times.
    for about in (host, clean(timer="events"), replace(host, timings=None)):
        if isinstance(rule.ask(about, Claim.SUSTAINED), Clear):
            return about
    raise AssertionError(f"{rule.name} is clear in no window")


def ask(rule: Rule, *withheld: str) -> Answer:
    return rule.ask(without(window(rule), *withheld), Claim.SUSTAINED)


EVERY_RULE = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


@EVERY_RULE
def test_rule_does_not_clear_without_evidence(rule: Rule) -> None:
    """A rule does not clear without evidence that it read, unless another witness or a reason is listed."""
    still_clear = {name for name in read_by(rule, window(rule)) if isinstance(ask(rule, name), Clear)} - _EVERYWHERE
    excused = {name for group in INSTEAD.get(rule.name, ()) for name in group} | SPARED.get(rule.name, {}).keys()
    assert still_clear <= excused, f"clear without {sorted(still_clear - excused)}"
    assert SPARED.get(rule.name, {}).keys() <= still_clear, "a reason is obsolete"


@pytest.mark.parametrize(("name", "group"), [(name, group) for name, groups in INSTEAD.items() for group in groups])
def test_rule_does_not_clear_without_every_witness(name: str, group: tuple[str, ...]) -> None:
    rule = next(rule for rule in RULES if rule.name == name)
    assert not isinstance(ask(rule, *group), Clear)


@EVERY_RULE
def test_rule_does_not_clear_without_its_needs(rule: Rule) -> None:
    assert all(not isinstance(ask(rule, need), Clear) for need in rule.needs)
