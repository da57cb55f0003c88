"""The alerts on boards: slowed, failing, or configured to be slower than their model."""

from dashboards.alert_files import GPU_NAMED, Alert
from dashboards.queries import increase

# Xids by the needed reaction.  A kernel's exception, address fault or end does not concern the board.  After an Xid that pages,
# the GPU does no work, or wrong work, until its reset.  All others, also unknown Xids, are tickets: 63 is a remapped row.
_OF_APPLICATIONS = "13|31|43|45|68|109"
_FOR_PAGES = "46|48|61|62|74|79|95|119|120|140"
_OF_HEAT, _OF_BRAKE = "sw_thermal_slowdown|hw_thermal_slowdown", "hw_power_brake_slowdown"


def _held_back(reasons: str) -> str:
    """Build the time under these reasons in ten minutes; a GPU slowed from its first scrape on shows at the second scrape."""
    seconds = f'gpuwatch_gpu_clock_event_seconds_total{{reason=~"{reasons}"}}'
    return f"max by (job, instance, uuid, gpu) ({increase(seconds, '10m')})"


def _reported(xids: str) -> str:
    """Build the age of Xids up to an hour, by the host's clock if exported, also after the daemon's end."""
    last = f"last_over_time(gpuwatch_gpu_xid_last_timestamp_seconds{{{xids}}}[1h])"
    return (
        "(\n  last_over_time(gpuwatch_wall_timestamp_seconds[1h]) - on (job, instance) group_right ()\n"
        f"  {last}\n  or time() - {last}\n) < 3600"
    )


HARDWARE = (
    Alert(name="GpuwatchHardwareSlowdown", severity="critical", hold="1m",
          # The driver also gives this reason with a power brake or heat, which have separate alerts.
          expr=f"{_held_back('hw_slowdown')} > 6\nunless (\n{_held_back(f'hw_thermal_slowdown|{_OF_BRAKE}')} > 6\n"
          f"and {_held_back(f'hw_thermal_slowdown|{_OF_BRAKE}')} > 0.5 * {_held_back('hw_slowdown')}\n)",
          says=f"hardware slows {GPU_NAMED} down",
          why="To protect itself, the board at least halved the clock for more than 6 s of the last ten minutes. The driver reports neither "
          "heat nor the power brake for most of that time.",
          do="Drain the GPU. Check cables, power supply and cooling; if the slowdown persists, have the board replaced.", rule="throttle-hw-slowdown"),
    Alert(name="GpuwatchPowerBrake", expr=f"{_held_back(_OF_BRAKE)} > 6", severity="critical",
          says=f"the power brake is active on {GPU_NAMED}",
          why="The host's power supply requested the slowdown, because it lacks power for the boards.",
          do="Check the power supplies and their feeds, and the rack's power budget. Check whether all GPUs of the host raise the alert.",
          rule="throttle-power-brake"),
    Alert(name="GpuwatchThermal", expr=f"{_held_back(_OF_HEAT)} > 6",
          says=f"heat slows {GPU_NAMED} down",
          why="Heat reduced the clock for more than 6 s of the last ten minutes; work measured in that time was too slow.",
          do="Check fans, filters, inlet air and the neighbours in the rack; compare gpuwatch_gpu_temperature_margin_celsius.",
          rule="throttle-thermal"),
    Alert(name="GpuwatchXid", severity="critical", expr=_reported(f'xid=~"{_FOR_PAGES}"'),
          says=f"Xid {{{{ $labels.xid }}}} on {GPU_NAMED}: reset needed",
          why="The driver reported an error after which the GPU does no more work, or wrong work, until its reset. The alert uses "
          "the Xid's time instead of a counter, so it includes Xids before the first scrape and before the daemon's restart. "
          "The alert ends an hour after the Xid.",
          do="Look the number up in NVIDIA's Xid catalogue, keep nvidia-bug-report, drain the host and reset the GPU.",
          rule="hardware-error"),
    Alert(name="GpuwatchXidForTicket",
          expr=_reported(f'xid!~"{_FOR_PAGES}|{_OF_APPLICATIONS}"'),
          says=f"Xid {{{{ $labels.xid }}}} on {GPU_NAMED}",
          why="The driver reported an error that it contained or repaired (63: a row remapped; 92: many corrected errors; 94: one "
          "application ended), or an unknown number. The GPU usually continues to work.",
          do="Look the number up in NVIDIA's Xid catalogue and note it in the board's record; after 63, 64 and 94 reset the GPU "
          "when it is idle.",
          rule="hardware-error"),
    Alert(name="GpuwatchXidOfApplication", severity="info", expr=_reported(f'xid=~"{_OF_APPLICATIONS}"'),
          says=f"a program failed on {GPU_NAMED} with Xid {{{{ $labels.xid }}}}",
          why="A kernel raised an exception, used a wrong address or was ended. The program is almost always at fault.",
          do="Find the program by dmesg's PID. If several programs fail on this GPU alone, proceed as for GpuwatchXid.",
          rule="hardware-error"),
    Alert(name="GpuwatchEccUncorrected", expr='gpuwatch_gpu_ecc_errors_total{kind="uncorrected"} > 0', severity="critical",
          says=f"{GPU_NAMED} has uncorrectable memory errors",
          why="Results since the driver was loaded may be wrong. The count is volatile: the alert lasts until the driver is reloaded or the GPU is reset.",
          do="Drain and reset the GPU so that the row is remapped; if errors recur, run dcgmi diag -r 3 and have the board replaced.",
          rule="hardware-error"),
    Alert(name="GpuwatchEccCorrected", expr=f"""{increase('gpuwatch_gpu_ecc_errors_total{kind="corrected"}', '1h')} > 100""",
          says=f"{GPU_NAMED} corrected {{{{ $value | humanize }}}} memory errors in an hour",
          why="Corrected errors change no result. A hundred in an hour can precede uncorrectable errors.",
          do="Drain the GPU in a maintenance window and run dcgmi diag -r 3; have the board replaced if the rate stays.",
          rule="hardware-error"),
    Alert(name="GpuwatchRowRemapPending", expr="gpuwatch_gpu_row_remap_pending == 1", hold="5m",
          says=f"{GPU_NAMED} waits for a reset to remap memory", why="A bad row stays in use until the reset.",
          do="Drain and reset the GPU (nvidia-smi -r), or reboot.", rule="hardware-error"),
    Alert(name="GpuwatchRowRemapFailed", expr="gpuwatch_gpu_row_remap_failed == 1",
          says=f"{GPU_NAMED} can remap no more memory", why="Spare rows are used up: the next failing row stays in use.",
          do="Drain the GPU and have the board replaced.",
          rule="hardware-error"),
    Alert(name="GpuwatchPcieLinkDegraded", hold="15m",
          expr='gpuwatch_gpu_pcie_link_width{kind="current"}\n< on (job, instance, uuid, gpu)\n'
          'gpuwatch_gpu_pcie_link_width{kind="max"}',
          says=f"{GPU_NAMED} has lost PCIe lanes", why="Copies to and from the host are slower than the slot allows.",
          do="Reseat the board or riser; check lspci -vv (LnkSta) and gpuwatch_gpu_pcie_replays_total."),
    Alert(name="GpuwatchPcieReplays", expr=f"{increase('gpuwatch_gpu_pcie_replays_total', '15m')} > 120",
          says=f"the PCIe link of {GPU_NAMED} repeats packets",
          why="The link repeated more than 120 packets within 15 minutes, and copies wait for each repetition.",
          do="Reseat the board or riser, check lspci -vv (LnkSta, AER) and the slot's retimers; swap the slot."),
    Alert(name="GpuwatchPowerLimitLowered", hold="15m",
          expr='gpuwatch_gpu_power_limit_watts{kind="enforced"}\n< on (job, instance, uuid, gpu)\n'
          '0.95 * gpuwatch_gpu_power_limit_watts{kind="default"}',
          says=f"the power limit of {GPU_NAMED} is lowered", why="The limit is more than 5 % below the board's default: the board can be slower than others of its model.",
          do="If this is not intended, run nvidia-smi -pl with the default, and find the program that sets the limit at boot.", rule="power-limited"),
    Alert(name="GpuwatchPersistenceOff", expr="gpuwatch_gpu_persistence_mode == 0", hold="1h", severity="info",
          says=f"persistence mode is off on {GPU_NAMED}", why="The first process after a pause waits for the driver to load.",
          do="systemctl enable --now nvidia-persistenced.", rule="persistence-off"),
)  # fmt: skip
