"""Healthy hosts, and the trouble of each alert: the series that differ while the alert must fire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.dashboards.interruptions import (
    DAYS,
    HOURS,
    Interruption,
    Scale,
    Signal,
    canary,
    daemon,
    driver,
    exported,
    falling,
    leaving,
    started,
    state,
    up,
    wall,
    xid,
)  # fmt: skip


def host(metric: str, name: str = "a", **labels: str) -> str:
    said = {"job": "gpuwatch", "instance": name, **labels}
    inside = ",".join(f'{label}="{value}"' for label, value in said.items())
    return f"{metric}{{{inside}}}"


def gpu(metric: str, uuid: str = "U", name: str = "a", **labels: str) -> str:
    return host(f"gpuwatch_{metric}", name, uuid=uuid, gpu=str("UVW".index(uuid)), **labels)


def board(uuid: str = "U", name: str = "a") -> str:
    """Return the identity of a GPU, with its model."""
    return gpu("device_info", uuid, name).replace("}", ',name="H"}')


def held(reason: str, source: str = "driver") -> str:
    return gpu("gpu_clock_event_seconds_total", reason=reason, source=source)


def judged(status: str) -> str:
    return host("gpuwatch_windows_total", status=status)


PLACES = tuple((uuid, name) for name in "ab" for uuid in "UVW")

# Healthy hosts with a history: an alert must not count the past of a counter as new.
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
    # One GPU is healthy but at its power limit, and therefore at a lower clock.
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
    """Changed series of HEALTHY while an alert must fire: another signal, or None for an absent series."""

    series: Mapping[str, Signal | None]
    scale: Scale = HOURS
    needs: int | None = None  # minutes from the end of an interruption until the alert; None: the hold and 6
    also: tuple[str, ...] = ()  # other alerts that the same trouble may raise
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
    # A missing driver takes all GPUs away: one alert, not one for each GPU.
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
    # The driver reports both reasons for a power brake.
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
