"""Cases for promtool: a host that is well and a host in each alert's trouble, through gaps, restarts and reloads.

A series belongs to somebody: a state, the driver's counter, or the daemon's.  From that follows what each interruption does
to it, so that every alert meets every interruption, with its trouble and without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
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

    @property
    def evaluation_minutes(self) -> int:
        """At every third sample, among them the one that is interrupted."""
        return 3 * self.step_minutes

    def back(self, interruption: Interruption) -> int:
        """The first sample after the interruption."""
        return self.at + {Interruption.NONE: 0, Interruption.GAP: self.gap}.get(interruption, 1)


HOURS = Scale(1, 21, 195)
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
    """The wall time of an Xid shortly before the interruption, or in the gap; a daemon without its store forgets it when it ends."""
    came = scale.at + 8 if interruption is Interruption.GAP else scale.at - 3
    forgets = interruption is Interruption.RESTART
    return _shown(
        scale, interruption, lambda n: None if n < came or (forgets and n >= scale.at) else came * scale.step_minutes * 60.0,
        of_gpu=False,
    )  # fmt: skip


def wall(behind_s: float = 0.0) -> Signal:
    """The host's wall time on its page."""
    return lambda scale, interruption: _shown(
        scale, interruption, lambda n: n * scale.step_minutes * 60.0 - behind_s, of_gpu=False
    )


def exported(scale: Scale, interruption: Interruption) -> Samples:
    """The time of the last export, which comes each midnight."""
    return _shown(scale, interruption, lambda n: n * scale.step_minutes // 1440 * 86_400.0, of_gpu=False)


def canary(value: float) -> Signal:
    """A figure of the last canary, which the daemon forgets when it ends."""

    def made(scale: Scale, interruption: Interruption) -> Samples:
        forgets = interruption is Interruption.RESTART
        return _shown(scale, interruption, lambda n: None if forgets and n >= scale.at else value, of_gpu=False)

    return made


def leaving(signal: Signal) -> Signal:
    """A series whose target leaves service discovery ten samples before the interruption."""
    return lambda scale, interruption: [
        sample if n < scale.at - 10 else None for n, sample in enumerate(signal(scale, interruption))
    ]


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


def gpu(metric: str, uuid: str = "U", name: str = "a", **labels: str) -> str:
    """A series of one of a host's GPUs."""
    return host(f"gpuwatch_{metric}", name, uuid=uuid, gpu=str("UVW".index(uuid)), **labels)


def board(uuid: str = "U", name: str = "a") -> str:
    """The identity of a GPU, with its model."""
    return gpu("device_info", uuid, name).replace("}", ',name="H"}')


def held(reason: str, source: str = "driver") -> str:
    return gpu("gpu_clock_event_seconds_total", reason=reason, source=source)


def judged(status: str) -> str:
    return host("gpuwatch_windows_total", status=status)


PLACES = tuple((uuid, name) for name in "ab" for uuid in "UVW")

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
    # One GPU is at its limit, and so at a lower clock: it is healthy.
    **{
        gpu("gpu_clock_event_seconds_total", *at, reason="sw_power_cap", source="driver"): driver(
            900, 58 if at == ("U", "a") else 0
        )
        for at in PLACES
    },
    gpu("gpu_xid_errors_total", xid="79"): daemon(2),
    gpu("gpu_xid_last_timestamp_seconds", xid="79"): state(-7200, -7200),
    gpu("gpu_xid_last_timestamp_seconds", xid="31"): state(-7200, -7200),
    gpu("gpu_xid_last_timestamp_seconds", xid="63"): state(-7200, -7200),
    gpu("gpu_remapped_rows_total"): state(2),
    gpu("gpu_pcie_replays_total"): driver(500, 1),
    gpu("gpu_ecc_errors_total", kind="corrected"): driver(3, 1),
    gpu("gpu_ecc_errors_total", kind="uncorrected"): driver(0),
    gpu("gpu_row_remap_pending"): state(0),
    gpu("gpu_row_remap_failed"): state(0),
    gpu("gpu_pcie_link_width", kind="current"): state(16),
    gpu("gpu_pcie_link_width", kind="max"): state(16),
    gpu("gpu_power_limit_watts", kind="enforced"): state(700),
    gpu("gpu_power_limit_watts", kind="default"): state(700),
    **{
        gpu("gpu_clock_ratio_sum", *at, domain="sm", load="busy"): daemon(70_000, 700 if at == ("U", "a") else 1180)
        for at in PLACES
    },
    **{gpu("gpu_clock_ratio_count", *at, domain="sm", load="busy"): daemon(100_000, 1200) for at in PLACES},
    **{gpu("gpu_utilization_ratio", *at, unit="gpu"): state(0.98) for at in PLACES},
    **{board(*at): state(1, 1) for at in PLACES},
    **{gpu("gpu_canary_clock_hertz", *at): canary(1.97e9) for at in PLACES[:5]},
    **{gpu("gpu_canary_timestamp_seconds", *at): canary(-3600.0) for at in PLACES[:5]},
    **{host("gpuwatch_wall_timestamp_seconds", name): wall() for name in "ab"},
    host("gpuwatch_certificate_expiry_timestamp_seconds"): state(1e10, 1e10),
    host("gpuwatch_export_last_success_time_seconds"): exported,
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
    "GpuwatchNodeGone": Trouble(
        {
            series: leaving(HEALTHY[series])
            for series in (
                host("up", "c"),
                host("gpuwatch_gpus", "c", state="answering"),
            )
        }
    ),
    "GpuwatchDown": Trouble({host("up"): state(0, 0)}),
    # A driver that is away takes all GPUs along: one alert, not one for each of them.
    "GpuwatchNoDriver": Trouble(
        {
            host("gpuwatch_up"): state(0, 0),
            **{gpu("gpu_up", uuid): state(0, 0) for uuid in "UVW"},
            **{gpu("reading_age_seconds", uuid, lane="fast"): state(600, 600) for uuid in "UVW"},
            **{gpu("gpu_utilization_ratio", uuid, unit="gpu"): None for uuid in "UVW"},
        }
    ),
    "GpuwatchSimulated": Trouble({host("gpuwatch_simulated"): state(1, 1)}),
    "GpuwatchGpuLost": Trouble({gpu("gpu_up"): state(0, 0)}),
    "GpuwatchGpuMissing": Trouble({host("gpuwatch_gpus", state="answering"): falling(3, 2)}),
    "GpuwatchFewerGpusThanSiblings": Trouble({board("W"): None}),
    "GpuwatchStale": Trouble({gpu("reading_age_seconds", lane="fast"): state(60, 60)}),
    "GpuwatchNeverRead": Trouble({gpu("reading_age_seconds", lane="fast"): None}),
    "GpuwatchSamplesMissed": Trouble({gpu("samples_missed_total", lane="fast"): daemon(40_000, 200)}),
    "GpuwatchProcessListIncomplete": Trouble({gpu("gpu_processes_complete"): state(0)}),
    "GpuwatchHardwareSlowdown": Trouble({held("hw_slowdown", "sampled"): daemon(300, 30)}),
    # The driver gives both reasons for a brake.
    "GpuwatchPowerBrake": Trouble(
        {held("hw_power_brake_slowdown"): driver(70, 30), held("hw_slowdown", "sampled"): daemon(300, 31)}
    ),
    "GpuwatchThermal": Trouble({held("hw_thermal_slowdown"): driver(900, 30)}),
    "GpuwatchClockSkew": Trouble({host("gpuwatch_wall_timestamp_seconds"): wall(900)}),
    "GpuwatchCertificateExpires": Trouble({host("gpuwatch_certificate_expiry_timestamp_seconds"): state(86_400, 86_400)}),
    "GpuwatchExportOld": Trouble({host("gpuwatch_export_last_success_time_seconds"): state(-200_000, -200_000)}),
    "GpuwatchXid": Trouble({gpu("gpu_xid_last_timestamp_seconds", xid="79"): xid}, needs=3),
    "GpuwatchXidForTicket": Trouble({gpu("gpu_xid_last_timestamp_seconds", xid="63"): xid}, needs=3),
    "GpuwatchXidOfApplication": Trouble({gpu("gpu_xid_last_timestamp_seconds", xid="31"): xid}, needs=3),
    "GpuwatchEccUncorrected": Trouble(
        {gpu("gpu_ecc_errors_total", kind="uncorrected"): driver(2)}, ended_by=frozenset({Interruption.RELOAD})
    ),
    "GpuwatchEccCorrected": Trouble({gpu("gpu_ecc_errors_total", kind="corrected"): driver(3, 5)}, needs=29),
    "GpuwatchRemappedRows": Trouble({gpu("gpu_remapped_rows_total"): falling(2, 3)}),
    "GpuwatchPcieReplays": Trouble({gpu("gpu_pcie_replays_total"): driver(500, 12)}, needs=20),
    "GpuwatchRowRemapPending": Trouble({gpu("gpu_row_remap_pending"): state(1)}),
    "GpuwatchRowRemapFailed": Trouble({gpu("gpu_row_remap_failed"): state(1)}),
    "GpuwatchPcieLinkDegraded": Trouble({gpu("gpu_pcie_link_width", kind="current"): state(8)}),
    "GpuwatchPowerLimitLowered": Trouble({gpu("gpu_power_limit_watts", kind="enforced"): state(500)}),
    "GpuwatchSlowTwin": Trouble({gpu("gpu_clock_ratio_sum", "V", domain="sm", load="busy"): daemon(70_000, 1000)}),
    "GpuwatchSlowCanary": Trouble({gpu("gpu_canary_clock_hertz"): canary(1.8e9)}, ended_by=frozenset({Interruption.RESTART})),
    "GpuwatchPersistenceOff": Trouble({gpu("gpu_persistence_mode"): state(0)}),
    "GpuwatchWindowsSpoilt": Trouble({judged("rejected"): daemon(9000, 5)}, scale=DAYS, needs=10),
    "GpuwatchWindowsUnproven": Trouble({judged("unproven"): daemon(200, 5)}, scale=DAYS, needs=10),
    "GpuwatchJudgeStuck": Trouble(_STILL, needs=150),
    "GpuwatchDaemonCostly": Trouble({host("gpuwatch_daemon_cpu_seconds_total"): daemon(8000, 30)}),
    "GpuwatchStoreDiskFull": Trouble({host("gpuwatch_store_disk_full"): state(1, 1)}),
    "GpuwatchStoreRowsDropped": Trouble({host("gpuwatch_store_rows_dropped_total"): daemon(40, 5)}),
}
# Prometheus evaluates nothing while it is down; promtool does, and misses every target.
_NOT_IN_A_GAP = "GpuwatchAbsent|GpuwatchNodeGone"
_WELL = "gpuwatch-well"
_SHARED_MINUTES = (0, 30, 100, 1000)


def everything(scale: Scale, interruption: Interruption) -> list[dict[str, Any]]:
    """Cases as promtool reads them (JSON, hence Any): each trouble of this scale has a job, and one job is well throughout.

    Jobs that need a similar time share a case, as a case takes the longest of its jobs for all of them.
    """
    minutes = scale.end * scale.step_minutes
    ever = f'count_over_time(ALERTS{{alertstate="firing",job="{_WELL}"}}[{minutes}m])'
    if scale is DAYS:
        ever = ever.replace("}[", f',alertname!~"{_NOT_IN_A_GAP}"}}[')
    names = [
        name for name, trouble in TROUBLES.items() if trouble.scale is scale and name != "GpuwatchAbsent"
    ]  # where none is well
    shared = [[name for name in names if begin <= _needs_minutes(name) < end] for begin, end in pairwise(_SHARED_MINUTES)]
    cases = [_shared(scale, interruption, jobs) for jobs in shared if jobs]
    longest = cases[-1]
    longest["promql_expr_test"].append(_expects(f"count by (alertname) ({ever})", minutes, []))
    longest["input_series"] += _input(_in_job(_WELL, HEALTHY), scale, interruption, minutes)
    return cases


def _shared(scale: Scale, interruption: Interruption, names: Sequence[str]) -> dict[str, Any]:
    fleet: dict[str, Signal] = {}
    expected: list[dict[str, Any]] = []
    for name in names:
        fleet |= _in_job(f"gpuwatch-{name}", _troubled(name))
        expected += _firing(name, interruption, f'job="gpuwatch-{name}"')
    return _case(f"{', '.join(names)} through {interruption}", scale, interruption, fleet, expected)


def alone(name: str, interruption: Interruption) -> dict[str, Any]:
    """A case of one alert's trouble only."""
    return _case(
        f"{name} through {interruption}", TROUBLES[name].scale, interruption, _troubled(name), _firing(name, interruption)
    )


def quiet(scale: Scale, interruption: Interruption) -> dict[str, Any]:
    """A case of a healthy host only."""
    minutes = scale.end * scale.step_minutes
    ever = f'count_over_time(ALERTS{{alertstate="firing"}}[{minutes}m])'
    return _case("well", scale, interruption, HEALTHY, [_expects(f"count by (alertname) ({ever})", minutes, [])])


def _troubled(name: str) -> dict[str, Signal]:
    return {series: signal for series, signal in {**HEALTHY, **TROUBLES[name].series}.items() if signal is not None}


def _in_job(job: str, fleet: Mapping[str, Signal]) -> dict[str, Signal]:
    return {series.replace('job="gpuwatch"', f'job="{job}"'): signal for series, signal in fleet.items()}


def _firing(name: str, interruption: Interruption, *among: str) -> list[dict[str, Any]]:
    """An alert fires again soon after an interruption, or has ended with it, and others keep silent."""
    trouble = TROUBLES[name]
    scale = trouble.scale
    needed_minutes = scale.back(interruption) * scale.step_minutes + _needs_minutes(name)
    minutes = -(-needed_minutes // scale.evaluation_minutes) * scale.evaluation_minutes
    others = "|".join((name, *trouble.also, *((_NOT_IN_A_GAP,) if trouble.scale is DAYS else ())))
    fires, keeps_silent = (
        ",".join((f"alertname{which}", 'alertstate="firing"', *among)) for which in (f'="{name}"', f'!~"{others}"')
    )
    ended = interruption in trouble.ended_by
    return [
        _expects(f"count(ALERTS{{{fires}}}) > 0", minutes, [] if ended else [{"labels": "{}", "value": 1}]),
        _expects(f"ALERTS{{{keeps_silent}}}", minutes, []),
    ]


def _expects(expr: str, minutes: int, samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {"expr": expr, "eval_time": f"{minutes}m", "exp_samples": samples}


def _needs_minutes(name: str) -> int:
    """From the end of an interruption until an alert fires."""
    (hold,) = (alert.hold for alert in ALERTS if alert.name == name)
    return TROUBLES[name].needs or int(hold[:-1]) * {"m": 1, "h": 60}[hold[-1]] + 6


def _case(
    name: str, scale: Scale, interruption: Interruption, series: Mapping[str, Signal], expected: list[dict[str, Any]]
) -> dict[str, Any]:
    minutes = max(int(each["eval_time"][:-1]) for each in expected)
    return {
        "name": name,
        "interval": f"{scale.step_minutes}m",
        "input_series": _input(series, scale, interruption, minutes),
        "promql_expr_test": expected,
    }


def _input(series: Mapping[str, Signal], scale: Scale, interruption: Interruption, minutes: int) -> list[dict[str, str]]:
    shown_count = minutes // scale.step_minutes + 2  # promtool would store what nobody asks for as well
    return [
        {"series": each, "values": _values(signal(scale, interruption)[:shown_count], scale, interruption)}
        for each, signal in series.items()
    ]


def _values(samples: Samples, scale: Scale, interruption: Interruption) -> str:
    """In promtool's notation; what a scrape no longer shows is marked stale, what no scrape looked for is not."""
    unscraped = range(scale.at, scale.back(interruption)) if interruption is Interruption.GAP else range(0)
    words = []
    for n, sample in enumerate(samples):
        vanished = sample is None and n > 0 and samples[n - 1] is not None and n not in unscraped
        words.append(f"{sample:.10g}" if sample is not None else "stale" if vanished else "_")
    return " ".join(words)
