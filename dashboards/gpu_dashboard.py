"""One GPU: each signal against its limit, and why the clock is what it is, on one axis of time."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from dashboards.panels import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    YELLOW,
    Cell,
    Query,
    ValueStyle,
    annotation,
    board,
    grid,
    lines,
    number,
    row,
    timeline,
    variable,
)  # fmt: skip
from dashboards.queries import (
    CLASSES,
    HOSTS,
    KIND_OF_SOURCE,
    ONE_GPU,
    RATE,
    STATES,
    limited_ratio,
    mean_ratio,
    of,
    quantile,
    state,
)  # fmt: skip

UID = "gpuwatch-gpu"

# A reason that is given is drawn by its class: a row says at a glance whether the board was asked, at its limits, or in trouble.
_REASONS = {
    0: ValueStyle("not given", "transparent"),
    1: ValueStyle("benign", BLUE),
    2: ValueStyle("limiting", ORANGE),
    3: ValueStyle("hardware", RED),
    4: ValueStyle("unknown to gpuwatch", PURPLE),
}
_CHOICE = f"query_result(label_join({of('gpuwatch_device_info', among=HOSTS)}, 'choice', ' ', 'gpu', 'name', 'instance'))"
_CHOICE_REGEX = '/choice="(?<text>[^"]+)".*uuid="(?<value>[^"]+)"/'


def gpu() -> dashboard.Dashboard:
    made = board(UID, "gpuwatch / GPU", "One GPU: clock, power, heat and the reasons for the clock on one axis of time.")
    made = made.with_variable(variable("uuid", "GPU", _CHOICE, many=False).regex(_CHOICE_REGEX))
    for part in (_annotations, _now, _clock, _power, _use, _faults, _watching):
        made = part(made)
    return made


def its(metric: str, *matchers: str, **labels: str) -> str:
    return of(metric, *matchers, among=ONE_GPU, **labels)


def _annotations(made: dashboard.Dashboard) -> dashboard.Dashboard:
    return (
        made.annotation(annotation("Windows in hand", f"{of('gpuwatch_windows_in_hand')} > 0", BLUE,
                                   "a window is open or being judged on {{instance}}"))
        .annotation(annotation("Xid", f"time() - {its('gpuwatch_gpu_xid_last_timestamp_seconds')} < 30", RED, "Xid {{xid}}"))
        .annotation(annotation("Lost", f"{its('gpuwatch_gpu_up')} == 0", PURPLE, "the GPU does not answer"))
    )  # fmt: skip


def _now(made: dashboard.Dashboard) -> dashboard.Dashboard:
    who = {
        "instance": "Host", "gpu": "GPU", "name": "Model", "pci_bus_id": "PCI bus", "driver_version": "Driver",
        "vbios_version": "VBIOS", "compute_capability": "Compute capability", "virtualization": "Virtualisation",
    }  # fmt: skip
    identity = Cell(Query(f"max by ({', '.join(who)}) ({its('gpuwatch_device_info')})"))
    age = its("gpuwatch_reading_age_seconds", lane="fast")
    source = f"max({of('gpuwatch_simulated')} and on (job, instance) {its('gpuwatch_gpu_up')})"
    return (
        made.with_row(row("Now"))
        .with_panel(number("State", "What the GPU is doing, or why nobody knows.", "none", Query(state(ONE_GPU)), looks=STATES))
        .with_panel(number("Source", "Simulated readings are nobody's GPU.", "none", Query(source), looks=KIND_OF_SOURCE))
        .with_panel(number("Last answer", "Age of the last reading.", "s", Query(age), width=3, decimals=1,
                           steps=((None, GREEN), (2.0, YELLOW), (5.0, RED))))
        .with_panel(grid("Who it is", "Identity, as when the driver was last opened.", (identity,), labels=who, width=13, height=4))
    )  # fmt: skip


def _clock(made: dashboard.Dashboard) -> dashboard.Dashboard:
    weights = " or ".join(
        f'{weight} * {CLASSES}{{class="{name}"}}' for weight, name in ((1, "benign"), (2, "limiting"), (3, "hardware"))
    )
    active = its("gpuwatch_gpu_clock_event_active")
    reasons = f"max by (reason) ({active} * on (job, instance, reason) group_left () ({weights}) or 4 * {active})"
    ratio = "gpuwatch_gpu_clock_ratio"
    dips = its(f"{ratio}_bucket", domain="sm", load="busy")
    return (
        made.with_row(row("Clock, power and heat against their limits"))
        .with_panel(lines("SM clock against its limit", "The clock the driver programmed; under a power cap the true one is 8–12 % "
                          "lower.", "hertz",
                          Query(its("gpuwatch_gpu_clock_hertz", domain="sm"), "SM clock"),
                          Query(its("gpuwatch_gpu_clock_limit_hertz", domain="sm", kind="max"), "limit: highest", ref="B"),
                          Query(its("gpuwatch_gpu_clock_limit_hertz", domain="sm", kind="locked"), "limit: locked", ref="C"),
                          dashed="limit.*"))
        .with_panel(timeline("Why the clock is what it is", "Clock event reasons as the driver gives them, coloured by what they "
                             "mean for a benchmark. A row that is not there is a reason this GPU does not support; a hole is time "
                             "without readings.", _REASONS, Query(reasons, "{{reason}}"), height=7))
        .with_panel(lines("Clock in every sample, under load", "Mean and lowest twentieth of all samples since the last point, over "
                          "the highest clock: dips between scrapes survive here.", "percentunit",
                          Query(mean_ratio(ratio, among=ONE_GPU, domain="sm", load="busy"), "mean"),
                          Query(quantile(0.05, f"rate({dips}[{RATE}])"), "lowest 5 %", ref="B"),
                          width=12, most=1, least=None))
        .with_panel(lines("Time held back, by reason", "By the driver's own counters where it has them. Reasons overlap: they do not "
                          "add up.", "percentunit", Query(f"max by (reason) ({limited_ratio(ONE_GPU)})", "{{reason}}"),
                          width=12, most=1))
        .with_panel(lines("Memory clock", "It holds unless somebody lowered it.", "hertz",
                          Query(its("gpuwatch_gpu_clock_hertz", domain="memory"), "memory clock"),
                          Query(its("gpuwatch_gpu_clock_limit_hertz", domain="memory", kind="max"), "limit: highest", ref="B"),
                          dashed="limit.*", height=5))
    )  # fmt: skip


def _power(made: dashboard.Dashboard) -> dashboard.Dashboard:
    watts, limit = "gpuwatch_gpu_power_watts", "gpuwatch_gpu_power_limit_watts"
    celsius, heat = "gpuwatch_gpu_temperature_celsius", "gpuwatch_gpu_temperature_limit_celsius"
    return (
        made.with_panel(lines("Power against its limit", "Instant is a mean of 25 ms, peak the highest 20 ms of the last minute.",
                              "watt",
                              Query(its(watts, kind="instant"), "instant"),
                              Query(its(watts, kind="average"), "average of 1 s", ref="B"),
                              Query(its("gpuwatch_gpu_power_peak_watts"), "peak", ref="C"),
                              Query(its(limit, kind="enforced"), "limit: enforced", ref="D"),
                              Query(its(limit, kind="default"), "limit: default", ref="E"), dashed="limit.*"))
        .with_panel(lines("Temperature against slow-down", "At slow-down the board cuts its clock by itself.", "celsius",
                          Query(its(celsius, sensor="core"), "core"),
                          Query(its(celsius, sensor="memory"), "memory", ref="B"),
                          Query(its(heat, kind="slowdown"), "limit: slow-down", ref="C"),
                          Query(its(heat, kind="shutdown"), "limit: shut-down", ref="D"),
                          Query(its("gpuwatch_gpu_temperature_margin_celsius"), "degrees left", ref="E"), dashed="limit.*"))
    )  # fmt: skip


def _use(made: dashboard.Dashboard) -> dashboard.Dashboard:
    use = "gpuwatch_gpu_utilization_ratio"
    return (
        made.with_row(row("Use, and who is there"))
        .with_panel(lines("Use", "Utilisation is time with a kernel resident, not how full the GPU was; activity is counted by the "
                          "hardware, where it can.", "percentunit",
                          Query(its(use, unit="gpu"), "a kernel was resident"),
                          Query(its(use, unit="memory"), "memory was accessed", ref="B"),
                          Query(its("gpuwatch_gpu_activity_ratio"), "activity: {{unit}}", ref="C"), width=12, most=1))
        .with_panel(lines("Memory", "Device memory in use, against all there is.", "bytes",
                          Query(its("gpuwatch_gpu_memory_used_bytes"), "used"),
                          Query(its("gpuwatch_gpu_memory_reserved_bytes"), "reserved by the driver", ref="B"),
                          Query(its("gpuwatch_gpu_memory_size_bytes"), "limit: size", ref="C"), dashed="limit.*", width=12))
        .with_panel(lines("Processes", "Processes on the GPU: zero is a list that was read and is empty, a hole one that was not "
                          "read. More than the benchmark is contention.", "none",
                          Query(its("gpuwatch_gpu_processes"), "{{kind}}"), width=12))
        .with_panel(grid("Largest processes", "Off unless exporter.processes = N; then the N largest.",
                         (Cell(Query(f"sort_desc(max by (pid, process) ({its('gpuwatch_process_gpu_memory_bytes')}))"), "Memory",
                               "bytes"),), labels={"process": "Process", "pid": "PID"}, width=12, height=8))
    )  # fmt: skip


def _faults(made: dashboard.Dashboard) -> dashboard.Dashboard:
    return (
        made.with_row(row("Faults"))
        .with_panel(lines("Memory errors", "Volatile counts of the driver: uncorrectable ones cost results.", "none",
                          Query(its("gpuwatch_gpu_ecc_errors_total"), "{{kind}}"),
                          Query(its("gpuwatch_gpu_remapped_rows_total"), "rows remapped", ref="B"), width=8))
        .with_panel(lines("PCIe link", "Lanes now, against the most of board and slot; the generation falls by itself when idle.",
                          "none", Query(its("gpuwatch_gpu_pcie_link_width", kind="current"), "lanes"),
                          Query(its("gpuwatch_gpu_pcie_link_width", kind="max"), "limit: lanes", ref="B"),
                          Query(its("gpuwatch_gpu_pcie_link_generation", kind="current"), "generation", ref="C"),
                          dashed="limit.*", width=8))
        .with_panel(grid("Xids since the daemon started", "Empty: the driver reported none.",
                         (Cell(Query(f"{its('gpuwatch_gpu_xid_errors_total')} > 0"), "Count"),), labels={"xid": "Xid"}, width=8, height=8))
    )  # fmt: skip


def _watching(made: dashboard.Dashboard) -> dashboard.Dashboard:
    return (
        made.with_row(row("How well it is watched"))
        .with_panel(lines("Age of the last answer", "By lane; a lane that climbs is lost.", "s",
                          Query(its("gpuwatch_reading_age_seconds"), "{{lane}}"), width=8))
        .with_panel(lines("Answers a second", "By lane: quicker while a window is open.", "ops",
                          Query(f"rate({its('gpuwatch_samples_total')}[{RATE}])", "{{lane}}"),
                          Query(f"rate({its('gpuwatch_samples_missed_total')}[{RATE}])", "missed: {{lane}}", ref="B"), width=8))
        .with_panel(lines("Time inside the driver's calls", "The observer's effect, as a share of time.", "percentunit",
                          Query(f"rate({its('gpuwatch_sampling_call_seconds_total')}[{RATE}])", "{{lane}}"), width=8))
    )  # fmt: skip
