"""A clean window with every observation, the names that a rule reads in it, and copies without some of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from annotate.claims import Claim
from annotate.evidence import Evidence, Fact, Host, RecordedWindow, Timings, Trace, WorkRecord
from annotate.rule import Rule
from tests.annotate.builders import UUID, Signal, evidence
from tests.annotate.occurrences.plausibility import H200
from tests.annotate.occurrences.timing import every

# Every device record has these fields, so no test withholds them.
_ALWAYS = ("device.uuid", "device.name", "device.simulated")
_DEVICE = replace(H200, supported_reasons_mask=0x1FF, vbios_version="96.00")
_HOST = Host(
    boot_id="boot", hostname="host", span_s=6.0, cpu_s=6.0, run_wait_s=0.0, cpu_allowed_count=16, cgroup_throttled_s=0.0,
    steal_ratio=0.0, cpu_pressure_ratio=0.0, numa_nodes="0", profilers="", sharing="", threads_born_count=0,
    processes_born_count=0, born_cpu_s=0.0, wall_step_s=0.0, watcher_cpu_s=0.2,
)  # fmt: skip
_DECLARED: Mapping[str, Fact] = {
    "torch_version": "2.9.1", "environment": "", "cuda_uuids": UUID, "l2_bytes": 60 << 20, "launch_blocking": False,
    "profiler_used": False, "tampered": "", "alloc_count": 0, "alloc_retry_count": 0, "timer": "host", "timer_overhead_s": 0.0,
    "sync_s": 0.0, "busy_ratio": 0.95, "stamp_seen_ratio": 1.0, "stamp_spread_s": 1e-7, "warmup_count": 100,
    "dtype": "bfloat16", "call_flops_count": 2e11, "call_bytes": 1e9, "working_set_bytes": 1e9, "flush_bytes": 256 << 20,
    "input_zero_ratio": 0.0, "input_unique_ratio": 0.04, "input_dtype": "bfloat16", "input_bytes": 1e8, "output_unchanged": False,
    "reference_error_ratio": 1e-4, "reference_limit_ratio": 1e-2, "variants_count": 1, "aa_floor_ratio": 0.004,
    "design": "interleaved", "canary_clock_mhz": 1979.0, "canary_copy_bytes_count": 4.2e12, "canary_record_clock_mhz": 1980.0,
    "canary_record_copy_bytes_count": 4.205e12, "canary_record_count": 7,
}  # fmt: skip


def clean(*, timer: str = "host") -> Evidence:
    """Return 20 quiet seconds under a clock lock that holds, with times, declared facts, a simultaneous baseline and a record."""
    times = every(2e-3, took_s=1.9e-3, length_s=20.0)
    rng = np.random.default_rng(1)
    took_s = times.took_s * rng.normal(1.0, 0.01, len(times.took_s))  # the host's pauses vary, unlike untimed work
    signals: dict[str, Signal] = {"sm_clock_lock_mhz": 1980}
    about = evidence(
        length_s=20.0,
        signals=signals,
        device=_DEVICE,
        host=replace(_HOST, span_s=20.0),
        declared={**_DECLARED, "timer": timer},
        timings=Timings(times.at_ns, took_s, rng.normal(1979.0, 1.0, len(took_s))),
    )
    numbers = RecordedWindow(
        calls_rate_hz=500.0, mean_s=1.9e-3, median_s=1.9e-3, median_at_clock_s=1.9e-3, steady_clock_mhz=1979.0, clock_mhz=1979.0
    )
    return replace(about, baseline=about, record=WorkRecord((numbers,) * 6, 1979.0))


class _Read(Mapping[str, Any]):
    """A mapping that logs the names read from it."""

    def __init__(self, known: Mapping[str, Any], log: set[str], prefix: str) -> None:
        self._known, self._log, self._prefix = known, log, prefix

    def __getitem__(self, name: str) -> Any:
        self._log.add(self._prefix + name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def _watched(record: Any, log: set[str], names: Mapping[str, str], *, handed_on_by: str = "") -> Any:  # any frozen record
    """Return a copy of the record that logs reads of these fields.

    Reads by ``dataclasses``, which copies records, and by the module ``handed_on_by`` are not logged.
    """
    kind = type(record)

    class Watched(kind):  # type: ignore[valid-type,misc]  # a record's class is known only here
        def __getattribute__(self, name: str) -> Any:
            if name in names and sys._getframe(1).f_globals["__name__"] not in ("dataclasses", handed_on_by):
                log.add(names[name])
            return super().__getattribute__(name)

    return Watched(**{f.name: getattr(record, f.name) for f in fields(record)})


def read_by(rule: Rule, about: Evidence) -> set[str]:
    """Return the observations that a rule reads in this window, by the names that ``without`` takes."""
    log: set[str] = set()
    assert about.device is not None
    trace = replace(about.trace, columns=_Read(about.trace.columns, log, ""))
    # `durations` copies each iteration's clock for every caller, so its reads do not count for the rule.
    clock = {"sm_clock_mhz": "timings.sm_clock_mhz"}
    timings = about.timings and _watched(about.timings, log, clock, handed_on_by="annotate.times.durations")
    whole = Evidence(
        window=about.window,
        device=_watched(about.device, log, {f.name: f"device.{f.name}" for f in fields(about.device)}),
        trace=_watched(trace, log, {"process_lists": "process_list", "dense_power": "dense_power"}),
        host=_watched(about.host, log, {f.name: f"host.{f.name}" for f in fields(about.host)}),
        declared=_Read(about.declared, log, "declared."),
        timings=timings,
        baseline=about.baseline,
    )
    heard = _watched(whole, log, {"timings": "timings", "baseline": "baseline"})
    log.clear()
    rule.ask(heard, Claim.SUSTAINED)
    return {name for name in log if name not in _ALWAYS and about.observes(name)}


def without(about: Evidence, *names: str) -> Evidence:
    """Return the same window without these observations and declared facts."""
    for name in names:
        match name.partition("."):
            case ("host", _, fact):
                about = replace(about, host=replace(about.host, **{fact: None}))
            case ("device", _, fact):
                assert about.device is not None
                nothing: dict[str, Any] = {fact: None}  # the field's type allows None: the other fields are in _ALWAYS
                about = replace(about, device=replace(about.device, **nothing))
            case ("declared", _, fact):
                about = replace(about, declared={k: v for k, v in about.declared.items() if k != fact})
            case ("process_list", _, _):
                about = replace(about, trace=replace(about.trace, process_lists=()))
            case ("dense_power", _, _):
                about = replace(about, trace=replace(about.trace, dense_power=Trace().dense_power))
            case ("timings", "", _):
                about = replace(about, timings=None)
            case ("timings", _, _):
                assert about.timings is not None
                about = replace(about, timings=replace(about.timings, sm_clock_mhz=None))
            case ("baseline", _, _):
                about = replace(about, baseline=None)
            case _:
                columns = {k: v for k, v in about.trace.columns.items() if k != name}
                about = replace(about, trace=replace(about.trace, columns=columns))
    return about
