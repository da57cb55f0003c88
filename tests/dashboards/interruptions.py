"""Cases for promtool: a host that is well and a host in each alert's trouble, through gaps, restarts and reloads.

A series belongs to somebody: a state, the driver's counter, or the daemon's.  From that follows what each interruption does
to it, so that every alert meets every interruption, with its trouble and without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from dashboards.alerts import ALERTS


class Interruption(StrEnum):
    """What befalls the series half-way."""

    NONE = "nothing"
    GAP = "scrape gap"  # Prometheus itself is down
    RESTART = "daemon restart"  # the daemon's counters begin anew, the driver's stay
    RELOAD = "driver reload"  # the driver's counters begin anew, the daemon's stay


@dataclass(frozen=True, slots=True)
class Scale:
    """One timeline: samples this many minutes apart, an interruption at ``at``, and the end of it all."""

    step_minutes: int
    at: int
    end: int
    gap: int = 12

    def back(self, interruption: Interruption) -> int:
        """The first sample after the interruption."""
        return self.at + {Interruption.NONE: 0, Interruption.GAP: self.gap}.get(interruption, 1)


HOURS = Scale(1, 20, 195)
DAYS = Scale(10, 150, 315)  # beyond a day from the interruption, where an offset of a day falls into it

Samples: TypeAlias = list[float | None]
Signal: TypeAlias = Callable[[Scale, Interruption], Samples]


def _shown(scale: Scale, interruption: Interruption, value: Callable[[int], float | None], *, of_gpu: bool) -> Samples:
    gone = {Interruption.GAP, Interruption.RESTART} | ({Interruption.RELOAD} if of_gpu else set())
    back = scale.back(interruption)
    return [None if interruption in gone and scale.at <= n < back else value(n) for n in range(scale.end + 1)]


def state(value: float, meanwhile: float | None = None) -> Signal:
    """A gauge; ``meanwhile`` is what it reads while the driver is away, where it is read then at all."""

    def made(scale: Scale, interruption: Interruption) -> Samples:
        away = interruption is Interruption.RELOAD and meanwhile is not None
        return _shown(scale, interruption, lambda n: meanwhile if away and n == scale.at else value, of_gpu=meanwhile is None)

    return made


def falling(value: float, after: float) -> Signal:
    """A gauge that changes ten samples before the interruption."""
    return lambda scale, interruption: _shown(
        scale, interruption, lambda n: value if n < scale.at - 10 else after, of_gpu=False
    )


def driver(start: float, step: float = 0.0) -> Signal:
    """A counter since the driver was loaded."""

    def made(scale: Scale, interruption: Interruption) -> Samples:
        anew = interruption is Interruption.RELOAD
        return _shown(
            scale, interruption, lambda n: step * (n - scale.at) if anew and n >= scale.at else start + step * n, of_gpu=True
        )

    return made


def daemon(start: float, step: float = 0.0) -> Signal:
    """A counter since the daemon was started."""

    def made(scale: Scale, interruption: Interruption) -> Samples:
        anew = interruption is Interruption.RESTART
        return _shown(
            scale, interruption, lambda n: step * (n - scale.at) if anew and n >= scale.at else start + step * n, of_gpu=False
        )

    return made


def started(scale: Scale, interruption: Interruption) -> Samples:
    """The wall time at which the daemon was started: a day before the first sample, or at the restart."""
    again_s = scale.at * scale.step_minutes * 60.0
    anew = interruption is Interruption.RESTART
    return _shown(scale, interruption, lambda n: again_s if anew and n >= scale.at else -86_400.0, of_gpu=False)


def xid(scale: Scale, interruption: Interruption) -> Samples:
    """The wall time of an Xid shortly before the interruption, or in the gap; the daemon forgets it when it ends."""
    came = scale.at + 8 if interruption is Interruption.GAP else scale.at - 3
    forgets = interruption is Interruption.RESTART
    return _shown(
        scale, interruption, lambda n: None if n < came or (forgets and n >= scale.at) else came * scale.step_minutes * 60.0,
        of_gpu=False,
    )  # fmt: skip


def up(scale: Scale, interruption: Interruption) -> Samples:
    """Prometheus' own series of a target: it knows of a restart, and nothing of its own absence."""
    back = scale.back(interruption)
    meanwhile: Mapping[Interruption, float | None] = {Interruption.GAP: None, Interruption.RESTART: 0.0}
    return [meanwhile.get(interruption, 1.0) if scale.at <= n < back else 1.0 for n in range(scale.end + 1)]


def host(metric: str, name: str = "a", **labels: str) -> str:
    """A series of a host."""
    said = {"job": "gpuwatch", "instance": name, **labels}
    inside = ",".join(f'{label}="{value}"' for label, value in said.items())
    return f"{metric}{{{inside}}}"


def gpu(metric: str, uuid: str = "U", **labels: str) -> str:
    """A series of one of host a's GPUs."""
    return host(f"gpuwatch_{metric}", uuid=uuid, gpu=str("UVW".index(uuid)), **labels)


def held(reason: str, source: str = "driver") -> str:
    return gpu("gpu_clock_event_seconds_total", reason=reason, source=source)


def judged(status: str) -> str:
    return host("gpuwatch_windows_total", status=status)


# A host that is well, and was not always: each counter has a past that an alert must not take for news.
HEALTHY: Mapping[str, Signal] = {
    **{host("up", name): up for name in "abc"},
    **{host("gpuwatch_gpus", name, state="answering"): state(3, 3) for name in "abc"},
    host("gpuwatch_up"): state(1, 0),
    host("gpuwatch_simulated"): state(0, 0),
    **{gpu("gpu_up", uuid): state(1, 0) for uuid in "UVW"},
    **{gpu("reading_age_seconds", uuid, lane="fast"): state(0.05, 20) for uuid in "UVW"},
    gpu("gpu_processes_complete"): state(1),
    gpu("gpu_persistence_mode"): state(1),
    gpu("samples_total", lane="fast"): daemon(50_000, 1200),
    gpu("samples_total", lane="pulse"): daemon(9000),
    gpu("samples_missed_total", lane="fast"): daemon(40_000, 6),
    gpu("samples_missed_total", lane="pulse"): daemon(0),
    gpu("gpu_clock_event_active", reason="sw_thermal_slowdown"): state(1),
    held("sw_thermal_slowdown"): driver(5000, 0.2),
    held("hw_thermal_slowdown"): driver(900),
    held("hw_power_brake_slowdown"): driver(70),
    held("hw_slowdown", "sampled"): daemon(300),
    held("sw_power_cap"): driver(900, 30),
    gpu("gpu_xid_errors_total", xid="79"): daemon(2),
    gpu("gpu_xid_last_timestamp_seconds", xid="79"): state(-7200, -7200),
    gpu("gpu_xid_last_timestamp_seconds", xid="31"): state(-7200, -7200),
    gpu("gpu_ecc_errors_total", kind="corrected"): driver(3, 1),
    gpu("gpu_ecc_errors_total", kind="uncorrected"): driver(0),
    gpu("gpu_row_remap_pending"): state(0),
    gpu("gpu_row_remap_failed"): state(0),
    gpu("gpu_pcie_link_width", kind="current"): state(16),
    gpu("gpu_pcie_link_width", kind="max"): state(16),
    gpu("gpu_power_limit_watts", kind="enforced"): state(700),
    gpu("gpu_power_limit_watts", kind="default"): state(700),
    **{gpu("gpu_clock_ratio_sum", uuid, domain="sm", load="busy"): daemon(70_000, 900) for uuid in "UVW"},
    **{gpu("gpu_clock_ratio_count", uuid, domain="sm", load="busy"): daemon(100_000, 1200) for uuid in "UVW"},
    host("gpuwatch_windows_in_hand"): state(1, 1),
    judged("valid"): daemon(500, 1),
    judged("rejected"): daemon(9000),
    judged("flagged"): daemon(300),
    judged("unproven"): daemon(200),
    host("gpuwatch_daemon_cpu_seconds_total"): daemon(8000, 0.6),
    host("gpuwatch_daemon_start_timestamp_seconds"): started,
    host("gpuwatch_store_disk_full"): state(0, 0),
    host("gpuwatch_store_rows_dropped_total"): daemon(40),
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """How series of HEALTHY read while an alert is right: another signal, or None for a series that is not there."""

    series: Mapping[str, Signal | None]
    scale: Scale = HOURS
    needs: int | None = None  # minutes from the end of an interruption until it fires; else its hold and five
    also: tuple[str, ...] = ()  # other alerts that are right about it
    ended_by: frozenset[Interruption] = field(default_factory=frozenset)


_STILL = {judged(status): daemon(start) for status, start in (("valid", 500), ("rejected", 9000), ("flagged", 300))}
TROUBLES: Mapping[str, Trouble] = {
    "GpuwatchAbsent": Trouble({host("up", name): None for name in "abc"}),
    "GpuwatchDown": Trouble({host("up"): state(0, 0)}),
    "GpuwatchNoDriver": Trouble({host("gpuwatch_up"): state(0, 0)}),
    "GpuwatchSimulated": Trouble({host("gpuwatch_simulated"): state(1, 1)}),
    "GpuwatchGpuLost": Trouble({gpu("gpu_up"): state(0, 0)}),
    "GpuwatchGpuMissing": Trouble(
        {host("gpuwatch_gpus", state="answering"): falling(3, 2)}, also=("GpuwatchFewerGpusThanSiblings",)
    ),
    "GpuwatchFewerGpusThanSiblings": Trouble({host("gpuwatch_gpus", state="answering"): state(2, 2)}),
    "GpuwatchStale": Trouble({gpu("reading_age_seconds", lane="fast"): state(60, 60)}),
    "GpuwatchNeverRead": Trouble({gpu("reading_age_seconds", lane="fast"): None}),
    "GpuwatchSamplesMissed": Trouble({gpu("samples_missed_total", lane="fast"): daemon(40_000, 200)}),
    "GpuwatchProcessListIncomplete": Trouble({gpu("gpu_processes_complete"): state(0)}),
    "GpuwatchHardwareSlowdown": Trouble({held("hw_slowdown", "sampled"): daemon(300, 30)}),
    "GpuwatchPowerBrake": Trouble({held("hw_power_brake_slowdown"): driver(70, 30)}),
    "GpuwatchThermal": Trouble({held("hw_thermal_slowdown"): driver(900, 30)}),
    "GpuwatchXid": Trouble({gpu("gpu_xid_last_timestamp_seconds", xid="79"): xid}, needs=3),
    "GpuwatchXidOfApplication": Trouble({gpu("gpu_xid_last_timestamp_seconds", xid="31"): xid}, needs=3),
    "GpuwatchEccUncorrected": Trouble(
        {gpu("gpu_ecc_errors_total", kind="uncorrected"): driver(2)}, ended_by=frozenset({Interruption.RELOAD})
    ),
    "GpuwatchRowRemapPending": Trouble({gpu("gpu_row_remap_pending"): state(1)}),
    "GpuwatchRowRemapFailed": Trouble({gpu("gpu_row_remap_failed"): state(1)}),
    "GpuwatchPcieLinkDegraded": Trouble({gpu("gpu_pcie_link_width", kind="current"): state(8)}),
    "GpuwatchPowerLimitLowered": Trouble({gpu("gpu_power_limit_watts", kind="enforced"): state(500)}),
    "GpuwatchSlowTwin": Trouble({gpu("gpu_clock_ratio_sum", domain="sm", load="busy"): daemon(70_000, 600)}),
    "GpuwatchPersistenceOff": Trouble({gpu("gpu_persistence_mode"): state(0)}),
    "GpuwatchWindowsSpoilt": Trouble({judged("rejected"): daemon(9000, 5)}, scale=DAYS, needs=10),
    "GpuwatchWindowsUnproven": Trouble({judged("unproven"): daemon(200, 5)}, scale=DAYS, needs=10),
    "GpuwatchJudgeStuck": Trouble(_STILL, needs=150),
    "GpuwatchDaemonCostly": Trouble({host("gpuwatch_daemon_cpu_seconds_total"): daemon(8000, 30)}),
    "GpuwatchStoreDiskFull": Trouble({host("gpuwatch_store_disk_full"): state(1, 1)}),
    "GpuwatchStoreRowsDropped": Trouble({host("gpuwatch_store_rows_dropped_total"): daemon(40, 5)}),
}
# Prometheus evaluates nothing while it is down; promtool does, and misses every target.
_NOT_IN_A_GAP = "GpuwatchAbsent"


def quiet(scale: Scale, interruption: Interruption) -> dict[str, Any]:
    """A case in which no alert ever fires, as promtool reads it (JSON, hence Any)."""
    minutes = scale.end * scale.step_minutes
    ever = f'ALERTS{{alertstate="firing",alertname!="{_NOT_IN_A_GAP}"}}' if scale is DAYS else 'ALERTS{alertstate="firing"}'
    expr = f"count by (alertname) (count_over_time({ever}[{minutes}m]))"
    return _case(f"well through {interruption}", scale, interruption, HEALTHY, {expr: []}, minutes)


def firing(name: str, interruption: Interruption) -> dict[str, Any]:
    """A case in which an alert fires again soon after an interruption, or has ended with it, and others keep silent."""
    trouble = TROUBLES[name]
    changed = {series: signal for series, signal in {**HEALTHY, **trouble.series}.items() if signal is not None}
    minutes = trouble.scale.back(interruption) * trouble.scale.step_minutes + (trouble.needs or _hold_minutes(name) + 5)
    ended = interruption in trouble.ended_by
    others = "|".join((name, *trouble.also, *((_NOT_IN_A_GAP,) if trouble.scale is DAYS else ())))
    expected = {
        f'count(ALERTS{{alertname="{name}",alertstate="firing"}})': [] if ended else [{"labels": "{}", "value": 1}],
        f'ALERTS{{alertname!~"{others}",alertstate="firing"}}': [],
    }
    return _case(f"{name} through {interruption}", trouble.scale, interruption, changed, expected, minutes)


def _hold_minutes(name: str) -> int:
    (hold,) = (alert.hold for alert in ALERTS if alert.name == name)
    return int(hold[:-1]) * {"m": 1, "h": 60}[hold[-1]]


def _case(
    name: str, scale: Scale, interruption: Interruption, series: Mapping[str, Signal], expected: Mapping[str, object],
    minutes: int,
) -> dict[str, Any]:  # fmt: skip
    shown_count = minutes // scale.step_minutes + 2  # promtool would store what nobody asks for as well
    return {
        "name": name,
        "interval": f"{scale.step_minutes}m",
        "input_series": [
            {"series": each, "values": _values(signal(scale, interruption)[:shown_count], scale, interruption)}
            for each, signal in series.items()
        ],
        "promql_expr_test": [
            {"expr": expr, "eval_time": f"{minutes}m", "exp_samples": samples} for expr, samples in expected.items()
        ],
    }


def _values(samples: Samples, scale: Scale, interruption: Interruption) -> str:
    """In promtool's notation; what a scrape no longer shows is marked stale, what no scrape looked for is not."""
    unscraped = range(scale.at, scale.back(interruption)) if interruption is Interruption.GAP else range(0)
    words = []
    for n, sample in enumerate(samples):
        vanished = sample is None and n > 0 and samples[n - 1] is not None and n not in unscraped
        words.append(f"{sample:.10g}" if sample is not None else "stale" if vanished else "_")
    return " ".join(words)
