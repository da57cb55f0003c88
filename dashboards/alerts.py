"""The alerts: what is wrong, and what whoever is called does about it; as a rule file for Prometheus, and as their page.

Three mistakes are common, and each alert has tests against them.  ``increase()`` takes the first value it sees for old, so
the exporter shows counters from zero, and states are asked of gauges.  A series that never came looks like health: what never
succeeded is asked for by what did.  A scrape gap, a restart of the daemon and a reload of the driver must be no news.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from dashboards.queries import increase

_GPU = "GPU {{ $labels.gpu }} of {{ $labels.instance }}"
_HOST = "{{ $labels.instance }}"
# What an Xid of an application says nothing of the board for: an exception in a kernel, a fault of its addresses, its end.
_OF_APPLICATIONS = "13|31|43|45|68|109"
_HEAD = """\
# Alerts on gpuwatch's metrics. Written by python -m dashboards.build from dashboards/alerts.py; docs/ALERTS.md is their page.
# Scrape jobs are expected to be named gpuwatch, or to begin with it.
groups:
"""
_PAGE = """\
# Alerts

What each alert of `dashboards/alerts.yml` means and what to do. Written by `python -m dashboards.build`; tested with
`promtool test rules`, each alert through scrape gaps, restarts and driver reloads, and on targets that never answered.
Scrape jobs are expected to be named `gpuwatch`, or to begin with it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert; ``why`` is what it means, ``do`` what to do.  ``rule`` is the rule of the judge that says the same of a window."""

    name: str
    expr: str
    hold: str = "0m"
    severity: str = "warning"
    says: str
    why: str
    do: str
    rule: str | None = None


def _held_back(*reasons: str, above_s: float) -> str:
    """Build the time under these reasons in ten minutes; a GPU held back from its first scrape on is seen at the second."""
    seconds = f'gpuwatch_gpu_clock_event_seconds_total{{reason=~"{"|".join(reasons)}"}}'
    return f"max by (job, instance, uuid, gpu) ({increase(seconds, '10m')}) > {above_s:g}"


def _reported(xids: str) -> str:
    """Build how long ago Xids came, for ten minutes; the daemon may have forgotten them meanwhile, as it ended."""
    return f"time() - last_over_time(gpuwatch_gpu_xid_last_timestamp_seconds{{{xids}}}[10m]) < 600"


_WATCHED = (
    Alert(name="GpuwatchAbsent", expr='absent(up{job=~"gpuwatch.*"})', hold="10m", severity="critical",
          says="Prometheus scrapes no gpuwatch at all",
          why="No target of a job named gpuwatch… exists, so none of the other alerts can ever fire.",
          do="Look at Prometheus' service discovery; name the scrape job gpuwatch, or change this rule."),
    Alert(name="GpuwatchDown", expr='up{job=~"gpuwatch.*"} == 0', hold="5m", severity="critical",
          says=f"the page of {_HOST} cannot be scraped",
          why="The daemon is not running, does not listen, or the network or its certificate stands between. It also fires for a "
          "target that never answered.",
          do="On the host: gpuwatch doctor, systemctl status gpuwatch; then look at Prometheus' page of targets for the error."),
    Alert(name="GpuwatchNoDriver", expr="gpuwatch_up == 0", hold="5m", severity="critical",
          says=f"the daemon on {_HOST} finds no GPU driver",
          why="The page is served and no GPU answers: no driver, a driver that does not match its library, or all GPUs lost.",
          do="Run nvidia-smi and gpuwatch doctor there; load the driver or reboot. The daemon looks again every ten seconds."),
    Alert(name="GpuwatchSimulated", expr="gpuwatch_simulated == 1", hold="15m",
          says=f"{_HOST} serves simulated or replayed readings",
          why="Its numbers are nobody's GPU, and look like one's.",
          do="Start its daemon without --source and GPUWATCH_SOURCE, or take it out of this Prometheus."),
    Alert(name="GpuwatchGpuLost", expr="gpuwatch_gpu_up == 0", hold="1m", severity="critical",
          says=f"{_GPU} does not answer",
          why="The driver says it is lost, or a call has hung. Windows on it end unproven.",
          do="Look for an Xid in dmesg (79: fell off the bus); drain the host, reset the GPU or reboot, check seating and power.",
          rule="stale-daemon"),
    Alert(name="GpuwatchGpuMissing", hold="10m", severity="critical",
          expr="sum by (job, instance) (gpuwatch_gpus) < max_over_time(sum by (job, instance) (gpuwatch_gpus)[1d:5m])",
          says=f"{_HOST} has fewer GPUs than a day ago",
          why="The driver names fewer GPUs than it did: one was lost before the daemon or the host started again.",
          do="Compare nvidia-smi -L and lspci with the host's inventory; reboot, reseat or replace. After a planned removal it ends "
          "by itself within a day."),
    Alert(name="GpuwatchFewerGpusThanSiblings", hold="30m", severity="info",
          expr="sum by (job, instance) (gpuwatch_gpus)\n< on (job) group_left ()\n"
          "quantile by (job) (0.5, sum by (job, instance) (gpuwatch_gpus))",
          says=f"{_HOST} has fewer GPUs than most hosts of its job",
          why="A GPU that was missing from the first day on is not missed by comparison with yesterday.",
          do="If hosts of different sizes are meant, give each size a scrape job of its own; else look as for GpuwatchGpuMissing."),
    Alert(name="GpuwatchStale", expr='gpuwatch_reading_age_seconds{lane="fast"} > 10 and on (instance, uuid) gpuwatch_gpu_up == 1',
          hold="1m", says=f"readings of {_GPU} are old",
          why="The GPU counts as answering, and no reading of its fast lane has come for ten seconds.",
          do="gpuwatch doctor shows the lanes; a call that hangs in the driver shows in dmesg. Restart the daemon if nothing does.",
          rule="dark-time"),
    Alert(name="GpuwatchNeverRead", expr='gpuwatch_gpu_up == 1 unless on (instance, uuid) gpuwatch_reading_age_seconds{lane="fast"}',
          hold="5m", says=f"{_GPU} was never read",
          why="It is named by the driver and not one reading of it succeeded since the daemon started.",
          do="gpuwatch doctor says which calls fail; in a container or MIG guest, which devices it was given."),
    Alert(name="GpuwatchSamplesMissed", hold="15m",
          expr='sum by (instance, uuid, gpu) (rate(gpuwatch_samples_missed_total{lane=~"fast|pulse"}[10m]))\n> 0.1 *\n'
          'sum by (instance, uuid, gpu) (rate(gpuwatch_samples_total{lane=~"fast|pulse"}[10m]))',
          says=f"one in ten readings of {_GPU} is missed",
          why="The daemon does not come to run in time, or the driver's calls have become slow. Verdicts have holes.",
          do="Give the daemon a processor nobody else is pinned to; look for a second poller of the same GPU.", rule="dark-time"),
    Alert(name="GpuwatchProcessListIncomplete", expr="gpuwatch_gpu_processes_complete == 0", hold="1h", severity="info",
          says=f"processes on {_GPU} are hidden from the daemon",
          why="It runs in a namespace of its own, so a neighbour in another container cannot be named.",
          do="Run the daemon on the host, or its pod with hostPID: true.", rule="contention-residual"),
)  # fmt: skip

_HARDWARE = (
    Alert(name="GpuwatchHardwareSlowdown", expr=_held_back("hw_slowdown", above_s=6), severity="critical",
          says=f"hardware slows {_GPU} down",
          why="The board halved its clock or worse to protect itself, for more than 6 s of the last ten minutes.",
          do="Drain it. Check cables, power supply and cooling; if it stays, have the board replaced.", rule="throttle-hw-slowdown"),
    Alert(name="GpuwatchPowerBrake", expr=_held_back("hw_power_brake_slowdown", above_s=6), severity="critical",
          says=f"the power brake is pulled on {_GPU}",
          why="The host's power supply told the board to slow down: too little power for what is built in.",
          do="Check the power supplies and their feeds, and the rack's power budget; all GPUs of the host tell more than one.",
          rule="throttle-power-brake"),
    Alert(name="GpuwatchThermal", expr=_held_back("sw_thermal_slowdown", "hw_thermal_slowdown", above_s=6),
          says=f"{_GPU} is slowed down for heat",
          why="More than 6 s of the last ten minutes were run at a clock cut for heat; every number of that time is too low.",
          do="Check fans, filters, inlet air and the neighbours in the rack; compare gpuwatch_gpu_temperature_margin_celsius.",
          rule="throttle-thermal"),
    Alert(name="GpuwatchXid", severity="critical",
          expr=_reported(f'xid!~"{_OF_APPLICATIONS}"'),
          says=f"Xid {{{{ $labels.xid }}}} on {_GPU}",
          why="The driver reported an error of the board or itself. Asked of its time, not of a counter: one that came before the "
          "first scrape counts too, and so does one of a daemon that was restarted since.",
          do="Look the number up in NVIDIA's Xid catalogue; 48, 79, 94, 95, 119 and 120 mean: drain and reset. Keep nvidia-bug-report.",
          rule="hardware-error"),
    Alert(name="GpuwatchXidOfApplication", severity="info",
          expr=_reported(f'xid=~"{_OF_APPLICATIONS}"'),
          says=f"a program failed on {_GPU} with Xid {{{{ $labels.xid }}}}",
          why="A kernel raised an exception or used a wrong address; almost always the program's own fault.",
          do="Find the program by dmesg's PID. If several programs fail on this GPU alone, treat it as GpuwatchXid.",
          rule="hardware-error"),
    Alert(name="GpuwatchEccUncorrected", expr='gpuwatch_gpu_ecc_errors_total{kind="uncorrected"} > 0', severity="critical",
          says=f"{_GPU} has uncorrectable memory errors",
          why="Results since the driver was loaded may be wrong. The count is volatile: it says so until driver or GPU is reset.",
          do="Drain and reset it so that the row is remapped; if errors come back, run dcgmi diag -r 3 and have it replaced.",
          rule="hardware-error"),
    Alert(name="GpuwatchRowRemapPending", expr="gpuwatch_gpu_row_remap_pending == 1", hold="5m",
          says=f"{_GPU} waits for a reset to remap memory", why="A bad row stays in use until then.",
          do="Drain and reset the GPU (nvidia-smi -r), or reboot.", rule="hardware-error"),
    Alert(name="GpuwatchRowRemapFailed", expr="gpuwatch_gpu_row_remap_failed == 1", severity="critical",
          says=f"{_GPU} can remap no more memory", why="Spare rows are used up.", do="Drain it and have the board replaced.",
          rule="hardware-error"),
    Alert(name="GpuwatchPcieLinkDegraded", hold="15m",
          expr='gpuwatch_gpu_pcie_link_width{kind="current"}\n< on (instance, uuid, gpu)\ngpuwatch_gpu_pcie_link_width{kind="max"}',
          says=f"{_GPU} has lost PCIe lanes", why="Copies to and from the host are slower than the slot allows.",
          do="Reseat the board or riser; look at lspci -vv (LnkSta) and at gpuwatch_gpu_pcie_replays_total."),
    Alert(name="GpuwatchPowerLimitLowered", hold="15m",
          expr='gpuwatch_gpu_power_limit_watts{kind="enforced"}\n< on (instance, uuid, gpu)\n'
          '0.95 * gpuwatch_gpu_power_limit_watts{kind="default"}',
          says=f"the power limit of {_GPU} is lowered", why="More than 5 % below the board's default: it is slower than its kind.",
          do="If nobody meant it, nvidia-smi -pl with the default; look for what sets it at boot.", rule="power-limited"),
    Alert(name="GpuwatchSlowTwin", hold="30m", severity="info",
          expr='sum by (job, instance, uuid, gpu) (rate(gpuwatch_gpu_clock_ratio_sum{domain="sm",load="busy"}[15m]))\n'
          '/ (sum by (job, instance, uuid, gpu) (rate(gpuwatch_gpu_clock_ratio_count{domain="sm",load="busy"}[15m])) > 0)\n'
          '< on (job, instance) group_left ()\n0.9 * quantile by (job, instance) (0.5,\n'
          '  sum by (job, instance, uuid, gpu) (rate(gpuwatch_gpu_clock_ratio_sum{domain="sm",load="busy"}[15m]))\n'
          '  / (sum by (job, instance, uuid, gpu) (rate(gpuwatch_gpu_clock_ratio_count{domain="sm",load="busy"}[15m])) > 0))',
          says=f"{_GPU} clocks 10 % below its siblings under load",
          why="With the same work on all of them, one is held back: heat, power or a tired board.",
          do="Compare the reasons on its dashboard; swap the work between two GPUs to see whether slowness follows the board."),
    Alert(name="GpuwatchPersistenceOff", expr="gpuwatch_gpu_persistence_mode == 0", hold="1h", severity="info",
          says=f"persistence mode is off on {_GPU}", why="The first process after a pause pays for waking the driver.",
          do="systemctl enable --now nvidia-persistenced.", rule="persistence-off"),
)  # fmt: skip

_SPOILT, _UNPROVEN = 'gpuwatch_windows_total{status=~"flagged|rejected"}', 'gpuwatch_windows_total{status="unproven"}'
_ENOUGH = f"0.5 * (sum by (job, instance) ({increase('gpuwatch_windows_total', '1d')}) >= 10)"

_JUDGED = (
    Alert(name="GpuwatchWindowsSpoilt", severity="info",
          expr=f"sum by (job, instance) ({increase(_SPOILT, '1d')})\n> {_ENOUGH}",
          says=f"most numbers measured on {_HOST} are not fit for use",
          why="More than half of a day's windows, and at least ten, were flagged or rejected.",
          do="The dashboard of windows names the rules; gpuwatch audit --since 24h the windows; gpuwatch explain RULE the remedy."),
    Alert(name="GpuwatchWindowsUnproven", severity="info",
          expr=f"sum by (job, instance) ({increase(_UNPROVEN, '1d')})\n> {_ENOUGH}",
          says=f"most windows on {_HOST} cannot be judged",
          why="The evidence their claim requires is not there: no driver, a lost GPU, signals this board does not have.",
          do="gpuwatch doctor says what this machine can prove, and what stands in the way."),
    Alert(name="GpuwatchJudgeStuck", hold="10m",
          expr="min by (job, instance) (min_over_time(gpuwatch_windows_in_hand[2h]) and gpuwatch_windows_in_hand offset 2h) > 0\nunless\n"
          f"sum by (job, instance) ({increase('gpuwatch_windows_total', '2h')}) > 0\n"
          # An earlier daemon's windows ended with it; what judged none since has not had two hours yet.
          "unless on (job, instance)\ntime() - gpuwatch_daemon_start_timestamp_seconds < 7200",
          says=f"windows on {_HOST} are open and none has been judged for two hours",
          why="The judge's worker hangs or never came up; or a program keeps one window open for hours, which is its right.",
          do="gpuwatch top --once lists the windows that are open; the daemon's log says why its worker ended."),
    Alert(name="GpuwatchDaemonCostly", hold="30m",
          expr="sum by (job, instance) (rate(gpuwatch_daemon_cpu_seconds_total[10m]))\n> 0.05 *\n"
          "clamp_min(sum by (job, instance) (gpuwatch_gpus), 1)",
          says=f"the daemon on {_HOST} takes more than 5 % of a core a GPU",
          why="It may disturb what it watches.", do="Lower its rate or budget (gpuwatch config show); see who keeps windows open.",
          rule="sampler-perturbs"),
    Alert(name="GpuwatchStoreDiskFull", expr="gpuwatch_store_disk_full == 1", severity="critical",
          says=f"the store on {_HOST} cannot write: the disk is full", why="Windows end unproven: what is read of them is not kept.",
          do="Free space, or lower the store's budget; it recovers by itself."),
    Alert(name="GpuwatchStoreRowsDropped", expr=f"{increase('gpuwatch_store_rows_dropped_total', '15m')} > 0",
          says=f"the store on {_HOST} drops readings", why="Rows could not be written; windows of that time have less evidence.",
          do="Look at the daemon's log, the disk's latency and free space."),
)  # fmt: skip

GROUPS = {"gpuwatch-watched": _WATCHED, "gpuwatch-hardware": _HARDWARE, "gpuwatch-judged": _JUDGED}
ALERTS = tuple(alert for group in GROUPS.values() for alert in group)


def rules() -> str:
    """The rule file's text."""
    return _HEAD + "".join(_group(name, group) for name, group in GROUPS.items())


def page() -> str:
    """The page that alerts link to."""
    parts = [_PAGE]
    for alert in ALERTS:
        same = f"\n\nOf a window, the same is said by [{alert.rule}](../annotate/RULES.md#{alert.rule})." if alert.rule else ""
        held = "at once" if alert.hold == "0m" else f"after {alert.hold}"
        parts.append(
            f"## {alert.name}\n\n{alert.severity}, {held}. {alert.why}\n\n**Do:** {alert.do}{same}\n\n```promql\n{alert.expr}\n```\n"
        )
    return "\n".join(parts)


def _group(name: str, alerts: Iterable[Alert]) -> str:
    return f"  - name: {name}\n    rules:\n" + "".join(_rule(alert) for alert in alerts)


def _rule(alert: Alert) -> str:
    expr = "\n".join(f"          {line}" for line in alert.expr.splitlines())
    return (
        f"      - alert: {alert.name}\n        expr: |-\n{expr}\n        for: {alert.hold}\n"
        f"        labels:\n          severity: {alert.severity}\n        annotations:\n"
        f"          summary: {_quoted(alert.says)}\n          description: {_quoted(f'{alert.why} {alert.do}')}\n"
        f"          runbook_url: {_quoted(f'docs/ALERTS.md#{alert.name.lower()}')}\n"
    )


def _quoted(text: str) -> str:
    """A string as YAML reads it: JSON's form is one of YAML's."""
    return json.dumps(text, ensure_ascii=False)
