"""What was not observed clears nothing: each rule is asked again without each thing it looked at.

It may stay clear only where another witness speaks, which is then withheld as well, or for a reason that stands here.
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

# Witnesses that stand for each other: without all of a group a rule must not clear.
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

_WORDS = "it grades or words what was found"
_IDLING = "it tells idle moments from work; without it all count as work, which finds more and clears less"
_ASKED_ALONG = "what describes a timed loop is gathered whole; nothing here is decided by it"
_COMPANY = "whoever else was there is gathered whole; memory convicts and never clears"
_MEMORY = ("memory_used_bytes", "device.memory_reserved_bytes")
_CRESTS = "without a known cap the crests of its swing stay references, which finds more"
_LOAD = "it tells when load began; the shape is the clock's alone"
_WITNESSES = "every witness of busy time is gathered; utilisation decides where it answers"
_STAMPS = "without stamps times are judged as they are, and follow the clock"
_NOT_THERE = "the driver tells it of no GPU that has not got it"
_TELLER = "a process that tells nothing must not fare worse: the rule's page says what is unseen then"

# What a rule may do without, and why.
SPARED: Mapping[str, Mapping[str, str]] = {
    "throttle-hw-slowdown": dict.fromkeys(("hw_thermal_ns", "power_brake_ns"), "the bit covers it as well"),
    "clock-drift": {"event_reasons_mask": _IDLING, "dense_power": _LOAD, "power_violation_ns": _CRESTS},
    "clock-ramp": {"event_reasons_mask": _IDLING, "dense_power": _LOAD, "power_violation_ns": _CRESTS},
    "mem-clock-change": {"event_reasons_mask": _IDLING, "utilization_ratio": "a clock that was never low needs no load"},
    "locked-clock-missed": {
        "power_violation_ns": "a cap that matters takes the clock off its lock",
        "device.sm_clock_max_mhz": "it only bounds a lock above it",
    },
    "clock-controller-present": {"device.sm_clock_max_mhz": "the reason of application clocks speaks then"},
    "clock-low-no-reason": {
        "event_reasons_mask": "it excuses a low clock, and none was low",
        "power_violation_ns": "the counter of capped time tells as well",
        "declared.canary_copy_bytes_count": _TELLER,
        "declared.canary_record_copy_bytes_count": _TELLER,
    },
    "nvml-clock-untrue": {"utilization_ratio": "stamped iterations fill the time by themselves"},
    "unaccounted-time": {
        **dict.fromkeys(("process_list", "dense_power", "device.power_limit_w", "energy_j", "sm_activity_ratio"), _WITNESSES),
        "timings": "without times the books are of the own processes' busy time",
        "timings.sm_clock_mhz": _ASKED_ALONG,
    },
    "no-work": dict.fromkeys(("process_list", "device.power_limit_w"), "they tell of energy and of whose work it was; utilisation speaks"),
    "idle-stretch": dict.fromkeys(
        (name for name in _ANY_FAST if name != "utilization_ratio"), "any reading tells how often the driver was asked"
    ),
    "regime-change": {"event_reasons_mask": _IDLING, "dense_power": _LOAD, "power_violation_ns": _CRESTS},
    "dark-time": dict.fromkeys((name for name in SIGNALS if name != "sm_clock_mhz"), "any reading shows that somebody watched"),
    "clock-levels": {
        "event_reasons_mask": _IDLING,
        "dense_power": _LOAD,
        "power_violation_ns": _CRESTS,
        "utilization_ratio": "power shows the load; utilisation only tells a short one from rest",
    },
    "bursty-duty-cycle": {"timings.sm_clock_mhz": _ASKED_ALONG},
    "work-levels": {
        "timings": "without times the witnesses speak alone",
        "timings.sm_clock_mhz": "the gaps of times tell when load began; their clock is asked along",
        "sm_clock_mhz": "a clock that moved explains power; without it nothing does, which finds more and clears less",
    },
    "contention-process": dict.fromkeys(_MEMORY, _COMPANY),
    "overlapping-window": dict.fromkeys((*_MEMORY, "process_list"), "the daemon's list of windows decides"),
    "contention-shared-partition": {
        "process_list": "MPS's server is seen by its pipe too",
        "mig_mode": _NOT_THERE,
        "device.mig_mode": _NOT_THERE,
    },
    "display-active": {"event_reasons_mask": "a second sign, as its page says", **dict.fromkeys(_MEMORY, _COMPANY)},
    "numa-pcie-affinity": {"event_reasons_mask": _IDLING},
    "missing-sync": {"utilization_ratio": _ASKED_ALONG},
    "wrong-stream": {
        "declared.timer_overhead_s": _WORDS,
        "utilization_ratio": "times this long enclose work",
        **dict.fromkeys(("declared.stamp_seen_ratio", "declared.stamp_spread_s"), _TELLER),
    },
    "host-bound": {"declared.cuda_uuids": "a GPU so busy was fed"},
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
    "flush-insufficient": {"declared.working_set_bytes": "it is the other way to be cold"},
    "allocator-churn": {"declared.alloc_count": _TELLER, "declared.alloc_retry_count": _TELLER},
    "data-dependent-power": dict.fromkeys(("power_violation_ns", "power_w", "device.power_limit_w"), "the inputs decide"),
    "background-thread": {"host.born_cpu_s": "nobody was born", "host.span_s": "nobody was born"},
    "result-cached": {
        "declared.timer": "work declared is weighed whoever timed it",
        "declared.dtype": "the fastest type bounds the work then",
        "declared.cuda_uuids": "the output was compared",
        "declared.working_set_bytes": "it only lessens the traffic",
        "device.sm_clock_max_mhz": "traffic is weighed then",
        "device.mem_clock_max_mhz": "arithmetic is weighed then",
    },
    "impossible-time": {
        "sm_clock_mhz": "it only bounds stamps: times and the declared work decide",
        "declared.dtype": "the fastest type bounds the work then",
        "declared.cuda_uuids": _TELLER,
        "declared.l2_bytes": "the largest cache of the generation bounds it then",
        "declared.working_set_bytes": "a call's bytes stand for it",
        "device.sm_clock_max_mhz": "stamps give the clock then",
        "timings.sm_clock_mhz": "the highest clock bounds it then",
        "utilization_ratio": _ASKED_ALONG,
    },
    "outliers": {"host.run_wait_s": _WORDS, "host.span_s": _WORDS, "timings.sm_clock_mhz": _STAMPS},
    "bimodal": {"timings.sm_clock_mhz": _STAMPS},
    "iteration-growth": {
        **dict.fromkeys(("event_reasons_mask", "sm_clock_mhz", "timings.sm_clock_mhz"), _STAMPS),
        "power_violation_ns": _ASKED_ALONG,
    },
    "iteration-levels": {
        **dict.fromkeys(("event_reasons_mask", "sm_clock_mhz", "timings.sm_clock_mhz"), _STAMPS),
        "power_violation_ns": _ASKED_ALONG,
    },
    "setting-changed": dict.fromkeys(("compute_mode", "ecc_mode", "mig_mode", "persistence_mode", "sm_clock_lock_mhz"), _NOT_THERE),
    "clock-source-step": {"timings": "where no times were handed over, none can lie elsewhere"},
    "hardware-mismatch": {
        f"device.{name}": "only what is known of both is compared, and one UUID is one board; its page says so"
        for name in (
            "memory_total_bytes", "compute_capability", "cuda_cores_count", "mig_mode", "virtualization", "vbios_version",
            "sm_clock_max_mhz", "mem_clock_max_mhz", "pcie_generation_max_count", "pcie_width_max_count", "ecc_mode",
            "persistence_mode",
        )
    },
    "order-bias": {"declared.design": "it is only believed where it says sequential"},
}  # fmt: skip
# A driver that does not tell which reasons it reports is taken to report all.
_EVERYWHERE = {"device.supported_reasons_mask"}


@cache
def window(rule: Rule) -> Evidence:
    """One in which the rule is clear: most are when the host's clock took the times."""
    host = clean()
    # Stamps that deny a hazard are found with bounds of 0, which take the place of what the driver's clock left open.
    for about in (host, clean(timer="events"), replace(host, timings=None)):
        if isinstance(rule.ask(about, Claim.SUSTAINED), Clear):
            return about
    raise AssertionError(f"{rule.name} is clear in no window")


def ask(rule: Rule, *withheld: str) -> Answer:
    return rule.ask(without(window(rule), *withheld), Claim.SUSTAINED)


EVERY_RULE = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


@EVERY_RULE
def test_rule_clears_nothing_without_its_evidence(rule: Rule) -> None:
    """A rule clears nothing without what it looked at but for a reason."""
    still_clear = {name for name in read_by(rule, window(rule)) if isinstance(ask(rule, name), Clear)} - _EVERYWHERE
    excused = {name for group in INSTEAD.get(rule.name, ()) for name in group} | SPARED.get(rule.name, {}).keys()
    assert still_clear <= excused, f"clear without {sorted(still_clear - excused)}"
    assert SPARED.get(rule.name, {}).keys() <= still_clear, "a reason nobody needs any more"


@pytest.mark.parametrize(("name", "group"), [(name, group) for name, groups in INSTEAD.items() for group in groups])
def test_a_rule_clears_nothing_once_every_witness_is_withheld(name: str, group: tuple[str, ...]) -> None:
    rule = next(rule for rule in RULES if rule.name == name)
    assert not isinstance(ask(rule, *group), Clear)


@EVERY_RULE
def test_a_rule_clears_nothing_without_what_it_says_it_needs(rule: Rule) -> None:
    assert all(not isinstance(ask(rule, need), Clear) for need in rule.needs)
