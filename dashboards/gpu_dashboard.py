"""The dashboard of one GPU: each signal against its limit, and the reasons for the clock, on one axis of time."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import AnnotationQuery

from dashboards.gpu_links import links
from dashboards.panels import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    YELLOW,
    Cell,
    LineStyle,
    Part,
    Query,
    ValueStyle,
    annotation,
    board,
    fill,
    grid,
    lines,
    number,
    row,
    timeline,
    variable,
)
from dashboards.queries import (
    CLASSES,
    HOSTS,
    KIND_OF_SOURCE,
    ONE_GPU,
    OPEN_WINDOWS,
    RATE,
    STATES,
    limited_ratio,
    mean_ratio,
    of,
    quantile,
    state,
)

UID = "gpuwatch-gpu"

# The colour of a reason is its class: a row shows at a glance an idle board, a limit, or a hardware problem.
_REASONS = {
    0: ValueStyle("not given", "transparent"),
    1: ValueStyle("benign", BLUE),
    2: ValueStyle("limiting", ORANGE),
    3: ValueStyle("hardware", RED),
    4: ValueStyle("unknown to gpuwatch", PURPLE),
}
_LIMITED = LineStyle(has_limits=True)
_RATIO = LineStyle(most=1)
_CHOICE = f"query_result(label_join({of('gpuwatch_device_info', among=HOSTS)}, 'choice', ' ', 'gpu', 'name', 'instance'))"
_CHOICE_REGEX = '/choice="(?<text>[^"]+)".*uuid="(?<value>[^"]+)"/'


def gpu() -> dashboard.Dashboard:
    made = board(UID, "gpuwatch / GPU", "One GPU: clock, power, heat and the reasons for the clock on one axis of time.")
    made = made.with_variable(variable("uuid", "GPU", _CHOICE, many=False).regex(_CHOICE_REGEX))
    return fill(made, _annotations(), _now(), _clock(), _held_back(), _power(), _use(), _faults(), links(its), _watching())


def its(metric: str, *matchers: str, **labels: str) -> str:
    return of(metric, *matchers, among=ONE_GPU, **labels)


def _annotations() -> tuple[Builder[AnnotationQuery], ...]:
    return (
        annotation(*OPEN_WINDOWS),
        annotation("Xid", f"time() - {its('gpuwatch_gpu_xid_last_timestamp_seconds')} < 30", RED, "Xid {{xid}}"),
        annotation("Lost", f"{its('gpuwatch_gpu_up')} == 0", PURPLE, "the GPU does not answer"),
    )


def _now() -> tuple[Part, ...]:
    who = {
        "instance": "Host",
        "gpu": "GPU",
        "name": "Model",
        "pci_bus_id": "PCI bus",
        "driver_version": "Driver",
        "vbios_version": "VBIOS",
        "compute_capability": "Capability",
        "virtualization": "Virtualisation",
    }
    identity = Cell(Query(f"max by ({', '.join(who)}) ({its('gpuwatch_device_info')})"))
    age = its("gpuwatch_reading_age_seconds", lane="fast")
    source = f"max({of('gpuwatch_simulated')} and on (job, instance) {its('gpuwatch_gpu_up')})"
    return (
        row("Now"),
        number(Cell(Query(state(ONE_GPU)), "State", looks=STATES), "State of the GPU, or the reason why it is unknown."),
        number(Cell(Query(source), "Source", looks=KIND_OF_SOURCE), "Simulated readings belong to no real GPU."),
        number(
            Cell(Query(age), "Last answer", "s", decimals=1, steps=((None, GREEN), (2.0, YELLOW), (5.0, RED))),
            "Age of the last reading.",
            width=3,
        ),
        grid("Identity", "Identity at the last opening of the driver.", (identity,), labels=who, size=(13, 4)),
    )


def _clock() -> tuple[Part, ...]:
    weights = " or ".join(
        f'{weight} * {CLASSES}{{class="{name}"}}' for weight, name in ((1, "benign"), (2, "limiting"), (3, "hardware"))
    )
    active = its("gpuwatch_gpu_clock_event_active")
    reasons = f"max by (reason) ({active} * on (job, instance, reason) group_left () ({weights}) or 4 * {active})"
    return (
        row("Clock, power and heat against their limits"),
        lines(
            "SM clock against its limit",
            "The clock that the driver reports; under a power cap it is 8–12 % above the true clock (docs/HARDWARE.md).",
            "hertz",
            Query(its("gpuwatch_gpu_clock_hertz", domain="sm"), "SM clock"),
            Query(its("gpuwatch_gpu_clock_limit_hertz", domain="sm", kind="max"), "limit: highest"),
            Query(its("gpuwatch_gpu_clock_limit_hertz", domain="sm", kind="locked"), "limit: locked"),
            style=_LIMITED,
        ),
        timeline(
            "Reasons for the clock",
            "The driver's clock event reasons, coloured by their effect on a benchmark. "
            "A missing row is a reason that this GPU does not support; a gap is time without readings.",
            _REASONS,
            Query(reasons, "{{reason}}"),
            height=7,
        ),
    )


def _held_back() -> tuple[Part, ...]:
    ratio = "gpuwatch_gpu_clock_ratio"
    dips = its(f"{ratio}_bucket", domain="sm", load="busy")
    return (
        lines(
            "Clock in every sample, under load",
            "Mean and 5th percentile of all samples since the last point, relative to the highest clock. "
            "Both include dips between scrapes.",
            "percentunit",
            Query(mean_ratio(ratio, among=ONE_GPU, domain="sm", load="busy"), "mean"),
            Query(quantile(0.05, f"rate({dips}[{RATE}])"), "lowest 5 %"),
            size=(12, 8),
            style=LineStyle(least=None, most=1),
        ),
        lines(
            "Time held back, by reason",
            "Share of time by the driver's counters, if available. Reasons overlap, so the shares do not add up.",
            "percentunit",
            Query(f"max by (reason) ({limited_ratio(ONE_GPU)})", "{{reason}}"),
            size=(12, 8),
            style=_RATIO,
        ),
        lines(
            "Memory clock",
            "The memory clock, against the board's highest memory clock.",
            "hertz",
            Query(its("gpuwatch_gpu_clock_hertz", domain="memory"), "memory clock"),
            Query(its("gpuwatch_gpu_clock_limit_hertz", domain="memory", kind="max"), "limit: highest"),
            size=(24, 5),
            style=_LIMITED,
        ),
    )


def _power() -> tuple[Part, ...]:
    watts, limit = "gpuwatch_gpu_power_watts", "gpuwatch_gpu_power_limit_watts"
    celsius, heat = "gpuwatch_gpu_temperature_celsius", "gpuwatch_gpu_temperature_limit_celsius"
    return (
        lines(
            "Power against its limit",
            "Instant is a mean of 25 ms; peak is the highest 20 ms sample of the last minute.",
            "watt",
            Query(its(watts, kind="instant"), "instant"),
            Query(its(watts, kind="average"), "average of 1 s"),
            Query(its("gpuwatch_gpu_power_peak_watts"), "peak"),
            Query(its(limit, kind="enforced"), "limit: enforced"),
            Query(its(limit, kind="default"), "limit: default"),
            style=_LIMITED,
        ),
        lines(
            "Temperature against slow-down",
            "At the slow-down temperature the board reduces the clock.",
            "celsius",
            Query(its(celsius, sensor="core"), "core"),
            Query(its(celsius, sensor="memory"), "memory"),
            Query(its(heat, kind="slowdown"), "limit: slow-down"),
            Query(its(heat, kind="shutdown"), "limit: shut-down"),
            Query(its("gpuwatch_gpu_temperature_margin_celsius"), "degrees left"),
            style=LineStyle(has_limits=True, colors={"degrees left": BLUE}),
        ),
    )


def _use() -> tuple[Part, ...]:
    use = "gpuwatch_gpu_utilization_ratio"
    return (
        row("Use and processes"),
        lines(
            "Use",
            "Utilisation is time with a resident kernel, not the load of the GPU; the hardware counts activity, if supported.",
            "percentunit",
            Query(its(use, unit="gpu"), "a kernel was resident"),
            Query(its(use, unit="memory"), "memory was accessed"),
            Query(its("gpuwatch_gpu_activity_ratio"), "activity: {{unit}}"),
            size=(12, 8),
            style=_RATIO,
        ),
        lines(
            "Memory",
            "Device memory in use, against its total.",
            "bytes",
            Query(its("gpuwatch_gpu_memory_used_bytes"), "used"),
            Query(its("gpuwatch_gpu_memory_reserved_bytes"), "reserved by the driver"),
            Query(its("gpuwatch_gpu_memory_size_bytes"), "limit: size"),
            size=(12, 8),
            style=_LIMITED,
        ),
        lines(
            "Processes",
            "Processes on the GPU: zero is an empty list, and a gap is an unread list. Processes besides the benchmark are contention.",
            "none",
            Query(its("gpuwatch_gpu_processes"), "{{kind}}"),
            size=(12, 8),
        ),
        grid(
            "Largest processes",
            "Empty unless exporter.processes is N; then the N processes with the most memory.",
            (Cell(Query(f"sort_desc(max by (pid, process) ({its('gpuwatch_process_gpu_memory_bytes')}))"), "Memory", "bytes"),),
            labels={"process": "Process", "pid": "PID"},
            size=(12, 8),
        ),
    )


def _faults() -> tuple[Part, ...]:
    return (
        row("Faults"),
        lines(
            "Memory errors",
            "ECC errors since the driver was loaded (uncorrectable ones corrupt results), and rows remapped over the board's life.",
            "none",
            Query(its("gpuwatch_gpu_ecc_errors_total"), "{{kind}}"),
            Query(its("gpuwatch_gpu_row_remaps_total"), "rows remapped: {{kind}}"),
            size=(8, 8),
        ),
        lines(
            "PCIe link",
            "Present lanes, against the maximum of board and slot; the generation decreases when idle.",
            "none",
            Query(its("gpuwatch_gpu_pcie_link_width", kind="current"), "lanes"),
            Query(its("gpuwatch_gpu_pcie_link_width", kind="max"), "limit: lanes"),
            Query(its("gpuwatch_gpu_pcie_link_generation", kind="current"), "generation"),
            size=(8, 8),
            style=_LIMITED,
        ),
        grid(
            "Xids since the daemon started",
            "Empty if the driver reported no Xid.",
            (Cell(Query(f"{its('gpuwatch_gpu_xid_errors_total')} > 0"), "Count"),),
            labels={"xid": "Xid"},
            size=(8, 8),
        ),
    )


def _watching() -> tuple[Part, ...]:
    return (
        row("Quality of the sampling"),
        lines(
            "Age of the last answer",
            "Age by lane; a growing age means a lost lane.",
            "s",
            Query(its("gpuwatch_reading_age_seconds"), "{{lane}}"),
            size=(8, 8),
        ),
        lines(
            "Answers per second",
            "Rate by lane, higher while a window is open.",
            "ops",
            Query(f"rate({its('gpuwatch_samples_total')}[{RATE}])", "{{lane}}"),
            Query(f"rate({its('gpuwatch_samples_missed_total')}[{RATE}])", "missed: {{lane}}"),
            size=(8, 8),
        ),
        lines(
            "Time inside the driver's calls",
            "Cost of sampling, as a share of time.",
            "percentunit",
            Query(f"rate({its('gpuwatch_sampling_call_seconds_total')}[{RATE}])", "{{lane}}"),
            size=(8, 8),
        ),
    )
