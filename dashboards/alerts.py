"""The alerts: their conditions, and the actions for the person on call.

Each alert has tests against three common mistakes.  ``increase()`` does not count a counter's first value, so the exporter
shows counters from zero, and states are queried as gauges.  A missing series looks like health, so an alert about failures
compares failures with successes.  A scrape gap, a daemon restart and a driver reload must not raise an alert.
"""

from dashboards.alert_files import (
    GPU_NAMED,
    HOST_NAMED,
    SEVERITIES,
    Alert,
    Recording,
    RuleGroup,
    recordings,
    rule_file,
    runbook,
)
from dashboards.hardware_alerts import HARDWARE
from dashboards.queries import increase
from dashboards.slow_twin import SLOW_TWINS

_PAGE = """\
# Alerts

This page gives the meaning of each alert of `dashboards/alerts.yml`, and the action. `python -m dashboards.build` writes the page.
`promtool test rules` tests each alert through scrape gaps, restarts and driver reloads, and on targets that never answered.
The names of scrape jobs must begin with `gpuwatch`.

| Severity | Reaction |
|---|---|
{severities}

[FLEET.md](FLEET.md#alerts-in-a-run-of-30-minutes) has a run of half an hour in which real daemons raised all but a few alerts.
`dashboards/alertmanager.yml` routes by severity, groups, and inhibits an alert whose cause another alert names. The links of the rule
file are relative to the repository; the first lines of the file show how to prepend the address of your copy.
"""
# Hosts by model, with their number of GPUs.
_SIZES = 'count by (job, instance, name) (group by (job, instance, uuid, name) (gpuwatch_device_info{uuid!~"MIG.*"}))'
_LARGEST = f"max by (job, name) ({_SIZES})"
_REMAPPED = "gpuwatch_gpu_remapped_rows_total"
_MISSED = 'sum by (job, instance, uuid, gpu) (rate(gpuwatch_samples_missed_total{lane=~"fast|pulse"}[10m]))'
_SPOILT, _UNPROVEN = 'gpuwatch_windows_total{status=~"flagged|rejected"}', 'gpuwatch_windows_total{status="unproven"}'
_ENOUGH = f"0.5 * (sum by (job, instance) ({increase('gpuwatch_windows_total', '1d')}) >= 10)"

_WATCHED = (
    Alert(name="GpuwatchAbsent", expr='absent(up{job=~"gpuwatch.*"} == 1)', hold="10m", severity="critical",
          says="Prometheus scrapes no gpuwatch at all",
          why="No target of a job named gpuwatch… answers, so Prometheus has no readings from gpuwatch.",
          do="Check Prometheus' targets and service discovery; name the scrape job gpuwatch, or change this rule."),
    Alert(name="GpuwatchNodeGone", hold="10m",
          expr='group by (job, instance) (max_over_time(up{job=~"gpuwatch.*"}[1d:5m]))\n'
          'unless on (job, instance) up{job=~"gpuwatch.*"}',
          says=f"{HOST_NAMED} is no longer a target of Prometheus",
          why="The host was a target within the last day. Its series vanished with the target, so no other alert names the host.",
          do="If the host was removed on purpose, silence the alert, which ends after a day. Otherwise check the host and "
          "service discovery. Relabel instance to the host's name if addresses change."),
    Alert(name="GpuwatchDown", expr='up{job=~"gpuwatch.*"} == 0', hold="5m",
          says=f"the page of {HOST_NAMED} cannot be scraped",
          why="The daemon is not running or does not listen, or the network or the certificate prevents the scrape. The alert also fires "
          "for a target that never answered. The state of the host's GPUs is unknown.",
          do="On the host: gpuwatch doctor, systemctl status gpuwatch; then read the error on Prometheus' page of targets."),
    Alert(name="GpuwatchNoDriver", expr="gpuwatch_up == 0", hold="5m", severity="critical",
          says=f"the daemon on {HOST_NAMED} finds no GPU driver",
          why="The page is served and no GPU answers: no driver, a driver that does not match its library, or all GPUs lost. The alert covers "
          "all GPUs of the host.",
          do="Run nvidia-smi and gpuwatch doctor there; load the driver or reboot. The daemon retries every ten seconds."),
    Alert(name="GpuwatchSimulated", expr="gpuwatch_simulated == 1", hold="15m",
          says=f"{HOST_NAMED} serves simulated or replayed readings",
          why="The readings look real, but belong to no real GPU.",
          do="Start the host's daemon without --source and GPUWATCH_SOURCE, or remove the host from this Prometheus."),
    Alert(name="GpuwatchGpuLost", hold="1m", severity="critical",
          # A missing driver is one alert, not one for each GPU.
          expr="gpuwatch_gpu_up == 0 unless on (job, instance) gpuwatch_up == 0",
          says=f"{GPU_NAMED} does not answer",
          why="The driver reports the GPU as lost, or a call hangs, while other GPUs of the host answer. Windows on this GPU end unproven.",
          do="Look for an Xid in dmesg (79: fell off the bus); drain the host, reset the GPU or reboot, check seating and power.",
          rule="stale-daemon"),
    Alert(name="GpuwatchGpuMissing", hold="10m",
          expr="sum by (job, instance) (gpuwatch_gpus) < max_over_time(sum by (job, instance) (gpuwatch_gpus)[1d:5m])\n"
          "unless on (job, instance) gpuwatch_up == 0",
          says=f"{HOST_NAMED} has fewer GPUs than a day ago",
          why="The driver lists fewer GPUs than before: one was lost before the daemon or the host restarted.",
          do="Compare nvidia-smi -L and lspci with the host's inventory; reboot, reseat or replace. After a planned removal the alert ends "
          "within a day."),
    Alert(name="GpuwatchFewerGpusThanSiblings", hold="30m", severity="info",
          expr=f"{_SIZES}\n< on (job, name) group_left ()\n{_LARGEST}\n"
          f"and on (job, instance, name)\n{_LARGEST}\n% on (job, name) group_right ()\n{_SIZES} > 0",
          says=f"{HOST_NAMED} has fewer GPUs than other hosts",
          why="The host has fewer GPUs than the largest hosts of this job and model, and their number is not a multiple of the host's: "
          "7 of 8, but not 4. A comparison with yesterday does not find a GPU that was missing from the first day on.",
          do="If such hosts are intended, give them a separate scrape job; otherwise proceed as for GpuwatchGpuMissing."),
    Alert(name="GpuwatchStale",
          expr='gpuwatch_reading_age_seconds{lane="fast"} > 10 and on (job, instance, uuid) gpuwatch_gpu_up == 1',
          hold="1m", says=f"readings of {GPU_NAMED} are old",
          why="The GPU counts as answering, but its fast lane has had no reading for ten seconds.",
          do="gpuwatch doctor shows the lanes, and dmesg a hung driver call. If both are clean, restart the daemon.",
          rule="dark-time"),
    Alert(name="GpuwatchNeverRead",
          expr='gpuwatch_gpu_up == 1 unless on (job, instance, uuid) gpuwatch_reading_age_seconds{lane="fast"}',
          hold="5m", says=f"{GPU_NAMED} was never read",
          why="The driver lists the GPU, but no reading has succeeded since the daemon started.",
          do="gpuwatch doctor names the failing calls. In a container or MIG guest, check the devices passed to the guest."),
    Alert(name="GpuwatchSamplesMissed", hold="15m",
          expr=f"{_MISSED}\n> 0.1 * (\n{_MISSED}\n+\n{_MISSED.replace('samples_missed_total', 'samples_total')}\n)",
          says=f"one in ten readings of {GPU_NAMED} is missed",
          why="The daemon gets too little CPU time, or the driver's calls have become slow. Verdicts have gaps.",
          do="Give the daemon a CPU to which no other process is pinned. Find any second poller of the same GPU.", rule="dark-time"),
    Alert(name="GpuwatchClockSkew", hold="10m",
          expr="abs(timestamp(gpuwatch_wall_timestamp_seconds) - gpuwatch_wall_timestamp_seconds) > 30",
          says=f"the clock of {HOST_NAMED} is {{{{ $value | humanizeDuration }}}} off",
          why="The host's clock and that of Prometheus differ. Times of windows, Xids and exports of this host are wrong by this difference, and a "
          "certificate may seem expired.",
          do="On the host: timedatectl, chronyc tracking. If all hosts raise the alert, the clock of Prometheus is wrong."),
    Alert(name="GpuwatchCertificateExpires", hold="1h",
          expr="gpuwatch_certificate_expiry_timestamp_seconds - time() < 14 * 86400",
          says=f"the certificate of {HOST_NAMED} expires in less than 14 days",
          why="After the expiry Prometheus refuses the page, and GpuwatchDown fires. The alert concerns the certificate in use, not the file.",
          do="Renew exporter.certificate and exporter.key, then reload the daemon: systemctl reload gpuwatch, or SIGHUP. With the drop-in "
          "metrics-remote, restart the service instead."),
    Alert(name="GpuwatchExportOld", hold="1h",
          expr="time() - gpuwatch_export_last_success_time_seconds > 129600",
          says=f"windows of {HOST_NAMED} were last exported {{{{ $value | humanizeDuration }}}} ago",
          why="Exports should run daily, and none has succeeded for a day and a half. Nothing is lost while the store keeps the windows. "
          "A host that never exported has no such series, and raises no alert.",
          do="Run gpuwatch export there by hand and read its error; check the timer or cron job, and the folder's free space."),
    Alert(name="GpuwatchProcessListIncomplete", expr="gpuwatch_gpu_processes_complete == 0", hold="1h", severity="info",
          says=f"processes on {GPU_NAMED} are hidden from the daemon",
          why="The daemon runs in a separate PID namespace, so it cannot name a neighbour in another container.",
          do="Run the daemon on the host, or its pod with hostPID: true.", rule="contention-residual"),
)  # fmt: skip

_JUDGED = (
    Alert(name="GpuwatchJudgeStuck", hold="10m",
          expr="min by (job, instance) (min_over_time(gpuwatch_windows_in_hand[2h]) and gpuwatch_windows_in_hand offset 2h) > 0\nunless\n"
          f"sum by (job, instance) ({increase('gpuwatch_windows_total', '2h')}) > 0\n"
          # Windows end with their daemon, so a daemon younger than two hours may not have judged any window.
          "unless on (job, instance)\ntime() - gpuwatch_daemon_start_timestamp_seconds < 7200",
          says=f"windows on {HOST_NAMED} are open and none has been judged for two hours",
          why="The judge's worker hangs or never started. A program may also keep one window open for hours, which is allowed.",
          do="gpuwatch top --once lists the open windows; the daemon's log gives the reason for its worker's end."),
    Alert(name="GpuwatchDaemonCostly", hold="30m",
          expr="sum by (job, instance) (rate(gpuwatch_daemon_cpu_seconds_total[10m]))\n> 0.05 *\n"
          "clamp_min(sum by (job, instance) (gpuwatch_gpus), 1)",
          says=f"the daemon on {HOST_NAMED} uses more than 5 % of a core per GPU",
          why="The daemon may disturb the watched work.", do="Lower the daemon's rate or budget (gpuwatch config show); find the programs that keep windows open.",
          rule="sampler-perturbs"),
    Alert(name="GpuwatchStoreDiskFull", expr="gpuwatch_store_disk_full == 1",
          says=f"the store on {HOST_NAMED} cannot write: the disk is full", why="Windows end unproven, because the daemon cannot keep their readings.",
          do="Free space, or lower the store's budget; no restart of the daemon is needed."),
    Alert(name="GpuwatchStoreRowsDropped",
          expr=f"{increase('gpuwatch_store_rows_dropped_total', '15m')} > 0\n"
          "unless on (job, instance) max_over_time(gpuwatch_store_disk_full[15m]) == 1",
          says=f"the store on {HOST_NAMED} drops readings", why="Rows could not be written, and the disk was not full; windows of that time have less evidence.",
          do="Check the daemon's log, the disk's latency and free space."),
)  # fmt: skip

_OF_DAYS = (
    Alert(name="GpuwatchRemappedRows", expr=f"{_REMAPPED} > min_over_time({_REMAPPED}[1d:15m])\n"
          # The subquery's steps over a day miss a GPU that was absent at the step before its row was remapped.
          f"or {_REMAPPED} > min_over_time({_REMAPPED}[20m])",
          says=f"rows of the memory of {GPU_NAMED} were remapped within a day",
          why="A spare row replaced a failed one within the last day. The board counts remapped rows over its life.",
          do="Note the count in the board's record. If the count keeps growing, run dcgmi diag -r 3 in a maintenance window and have the board "
          "replaced before its spare rows are used up.", rule="hardware-error"),
    Alert(name="GpuwatchWindowsSpoilt", severity="info",
          expr=f"sum by (job, instance) ({increase(_SPOILT, '1d')})\n> {_ENOUGH}",
          says=f"most numbers measured on {HOST_NAMED} are not fit for use",
          why="More than half of a day's windows, of at least ten, were flagged or rejected.",
          do="Find the rules on the dashboard of windows, the windows with gpuwatch audit --since 24h, and remedies with gpuwatch explain RULE."),
    Alert(name="GpuwatchWindowsUnproven", severity="info",
          expr=f"sum by (job, instance) ({increase(_UNPROVEN, '1d')})\n> {_ENOUGH}",
          says=f"most windows on {HOST_NAMED} cannot be judged",
          why="More than half of a day's windows, of at least ten, lack evidence that the claim requires. Usual causes: no driver, a lost GPU, or missing signals.",
          do="gpuwatch doctor lists what this machine can prove, and the obstacles."),
)  # fmt: skip

GROUPS = (
    RuleGroup(name="gpuwatch-watched", rules=_WATCHED),
    RuleGroup(name="gpuwatch-hardware", rules=HARDWARE),
    SLOW_TWINS,
    RuleGroup(name="gpuwatch-judged", rules=_JUDGED),
    # A rule over a day reads millions of samples of a large fleet.
    RuleGroup(name="gpuwatch-days", every="5m", rules=_OF_DAYS),
)
ALERTS = tuple(alert for group in GROUPS for alert in group.alerts)


def rules() -> str:
    """Return the rule file's text."""
    return rule_file(GROUPS)


def page() -> str:
    """Return the page that alerts link to."""
    severities = "\n".join(f"| {name} | {who} |" for name, who in SEVERITIES.items())
    recorded = (rule for group in GROUPS for rule in group.rules if isinstance(rule, Recording))
    return "\n".join((_PAGE.format(severities=severities), *map(runbook, ALERTS), recordings(recorded)))
