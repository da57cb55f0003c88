"""The closed table of metrics: the page shows only these names, and a name never changes its meaning.  Read this first.

Values are in base units (hertz, watts, joules, celsius, bytes, seconds, ratios from 0 to 1).  Of the labels of a GPU's
series only ``uuid`` and ``gpu`` identify it; the others are joined from ``gpuwatch_device_info``.  An unobserved
value has no series: absent beats wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class MetricKind(StrEnum):
    """The types of the exposition format in use."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"


GPU = ("uuid", "gpu")
MIG = (*GPU, "mig")  # a MIG instance by its UUID, on its board
RATIO_BUCKETS = (0.1, 0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99, 1.0)
POWER_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0, 1.05, 1.1)
LATENESS_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
LENGTH_BUCKETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3600.0)
JUDGING_BUCKETS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
OFF_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3)  # includes the default tolerance, 1 %
SCRAPE_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)

# The meaning of each clock event reason for a benchmark.  Benign reasons are requested or idle, limiting ones are the board at
# its own limits, and hardware ones are a board that protects itself.
REASON_CLASSES: Mapping[str, str] = {
    "gpu_idle": "benign",
    "applications_clocks_setting": "benign",
    "sw_power_cap": "limiting",
    "hw_slowdown": "hardware",
    "sync_boost": "limiting",
    "sw_thermal_slowdown": "limiting",
    "hw_thermal_slowdown": "hardware",
    "hw_power_brake_slowdown": "hardware",
    "display_clock_setting": "benign",
}
LANES = ("fast", "slow", "processes", "power")
ASKED = (
    "fast",
    "pulse",
    *LANES[1:],
)  # the pulse exists only with windows, so it has no age; its losses count for the fast lane


RARE = "read every ten seconds at most"  # the origin of values that no lane reads
MOCKED = "Seen on the mock driver only."


@dataclass(frozen=True, slots=True)
class Metric:
    """One family: its name as queries write it, and the source of its values."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    of: str = ""  # the reading it comes from
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of labels with a closed set of values
    buckets: tuple[float, ...] = ()


_DOMAINS = {"domain": ("sm", "memory")}
_NOW_MAX = {"kind": ("current", "max")}


def _gauge(name: str, text: str, labels: tuple[str, ...] = (), of: str = "", **values: tuple[str, ...]) -> Metric:
    return Metric(f"gpuwatch_{name}", MetricKind.GAUGE, text, labels, of, values)


def _counter(name: str, text: str, labels: tuple[str, ...] = (), of: str = "", **values: tuple[str, ...]) -> Metric:
    return Metric(f"gpuwatch_{name}", MetricKind.COUNTER, text, labels, of, values)


def _histogram(
    name: str, text: str, buckets: tuple[float, ...], labels: tuple[str, ...] = (), of: str = "", **values: tuple[str, ...]
) -> Metric:
    return Metric(f"gpuwatch_{name}", MetricKind.HISTOGRAM, text, labels, of, values, buckets)


_TABLE = (
    # The page and its source
    _gauge("up", "1 while the source answers for at least one GPU; 0 without a driver. The page is served either way.",
           of="the witness"),
    _gauge("simulated", "1 if the readings are a simulation's or a recording's, not a real GPU's.", of="the source"),
    Metric("gpuwatch_source_info", MetricKind.INFO, "Kind of the watched source.", ("source",), "the source",
           {"source": ("nvml", "simulated", "replay")}),
    Metric("gpuwatch_build_info", MetricKind.INFO, "Version of the daemon that serves this page, and of its Python.", ("version", "python"), "the package"),
    _gauge("gpus", "GPUs the source named when it was opened, by their state now.", ("state",), "the witness",
           state=("answering", "lost")),
    # Identity of a GPU
    Metric("gpuwatch_device_info", MetricKind.INFO,
           "Identity of a GPU; join on uuid. Stays while the GPU is lost. gpu is its position in the driver's order.",
           (*GPU, "name", "pci_bus_id", "driver_version", "vbios_version", "architecture", "compute_capability",
            "virtualization"), "Device"),
    _gauge("gpu_up", "1 while the GPU answers. At 0 its readings have no series; the daemon's own counts stay.", GPU,
           "the sampler"),
    _gauge("gpu_field_supported", "1 if GPU and driver support this field; explains an absent series.",
           (*GPU, "field"), "the lane plan measured at start"),
    # Clocks
    _gauge("gpu_clock_hertz", "Clock the driver programmed. Under a power cap the true SM clock is 8-12 % lower.",
           (*GPU, "domain"), "sm_clock_mhz, mem_clock_mhz", **_DOMAINS),
    _gauge("gpu_clock_limit_hertz", "The highest clock of the board, and the one a lock or application clock asks for.",
           (*GPU, "domain", "kind"), "Device.sm_clock_max_mhz, Device.mem_clock_max_mhz, sm_clock_lock_mhz",
           domain=("sm", "memory"), kind=("max", "locked")),
    _histogram("gpu_clock_ratio", "Clock over the board's highest in every sample that has it (the SM clock's: each pulse too), "
               "so that dips between scrapes survive. load is idle if the driver named idleness as the clock's reason.", RATIO_BUCKETS,
               (*GPU, "domain", "load"), "sm_clock_mhz, mem_clock_mhz, event_reasons_mask",
               domain=("sm", "memory"), load=("busy", "idle", "unknown")),
    _gauge("gpu_clock_event_active", "1 while the driver gives this reason for the clock; reasons the GPU does not support "
           "have no series.", (*GPU, "reason"), "event_reasons_mask", reason=(*REASON_CLASSES, "unknown_bit_N")),
    _counter("gpu_clock_event_seconds_total", "Time under this reason: by the driver's own counter where there is one, else "
             "summed over samples. Reasons overlap: never sum them.", (*GPU, "reason", "source"),
             "power_cap_ns, sync_boost_ns, sw_thermal_ns, hw_thermal_ns, power_brake_ns; else event_reasons_mask",
             reason=(*REASON_CLASSES, "unknown_bit_N"), source=("driver", "sampled")),
    Metric("gpuwatch_clock_event_reason_info", MetricKind.INFO, "Class of a reason: benign (idle, or requested), limiting (the "
           "board at its limits) or hardware (the board protects itself).", ("reason", "class"), "a fixed table",
           {"reason": tuple(REASON_CLASSES), "class": ("benign", "limiting", "hardware")}),
    # Power, energy, heat
    _gauge("gpu_power_watts", "Board power: instant is a mean of about 25 ms, average of the trailing second.",
           (*GPU, "kind"), "power_w, power_average_w", kind=("instant", "average")),
    _gauge("gpu_power_peak_watts", "Highest sample of the driver's dense power record (20 ms apart) over the last minute; "
           "over a minute and not since the last scrape, so that two scrapers see the same.", GPU, "PowerRecord"),
    _gauge("gpu_power_limit_watts", "Power limits: enforced is the one in force.", (*GPU, "kind"),
           "power_limit_w, Device.power_limit_*", kind=("enforced", "default", "min", "max")),
    _histogram("gpu_power_limit_ratio", "Board power over the enforced limit in every sample of the fast lane.", POWER_BUCKETS,
               GPU, "power_w, power_limit_w"),
    _counter("gpu_energy_joules_total", "Energy since the driver was loaded; restarts at zero when it is loaded again.", GPU,
             "energy_j"),
    _gauge("gpu_temperature_celsius", "Temperature of the GPU and of its memory.", (*GPU, "sensor"),
           "temperature_c, memory_temperature_c", sensor=("core", "memory")),
    _gauge("gpu_temperature_limit_celsius", "Temperature at which the board slows down, and shuts down.", (*GPU, "kind"),
           "Device.temperature_slowdown_c, Device.temperature_shutdown_c", kind=("slowdown", "shutdown")),
    _gauge("gpu_temperature_margin_celsius", "Degrees left before slow-down, as the driver reports them.", GPU, "temperature_margin_c"),
    # Use
    _gauge("gpu_utilization_ratio", "Share of the driver's last 200 ms in which a kernel was resident, or memory was accessed; "
           "says nothing about how full the GPU was.", (*GPU, "unit"), "utilization_ratio, mem_utilization_ratio",
           unit=("gpu", "memory")),
    _gauge("gpu_activity_ratio", "Hardware counters (GPM): share of SMs with a warp, of warps resident, of time the tensor "
           "pipe was busy, of memory bandwidth.", (*GPU, "unit"),
           "sm_activity_ratio, sm_occupancy_ratio, tensor_activity_ratio, dram_activity_ratio",
           unit=("sm", "occupancy", "tensor", "dram")),
    _gauge("gpu_memory_used_bytes", "Device memory in use, the driver's reserve included.", GPU, "memory_used_bytes"),
    _gauge("gpu_memory_reserved_bytes", "Device memory that driver and firmware use without any process on the GPU.", GPU,
           "Device.memory_reserved_bytes"),
    _gauge("gpu_memory_size_bytes", "Total device memory.", GPU, "Device.memory_total_bytes"),
    _gauge("gpu_processes", "Processes on the GPU; 0 is a list that was read and empty.", (*GPU, "kind"), "ProcessList",
           kind=("compute", "graphics")),
    _gauge("gpu_processes_complete", "1 if the process list is the whole machine's; 0 if processes of other containers are "
           "hidden from the daemon. Absent if unknown.", GPU, "ProcessList.visibility"),
    _gauge("process_gpu_memory_bytes", "Device memory of a process. Off unless exporter.processes = N, then only the N "
           "largest a GPU.", (*GPU, "pid", "process"), "ProcessList"),
    # Faults and modes
    _counter("gpu_ecc_errors_total", "Memory errors, volatile counts of the driver.", (*GPU, "kind"),
             "ecc_corrected_count, ecc_uncorrected_count", kind=("corrected", "uncorrected")),
    _counter("gpu_remapped_rows_total", "Memory rows remapped after errors, over the board's life.", GPU,
             "remapped_rows_count"),
    _gauge("gpu_row_remap_pending", "1 while a row remap waits for a reset of the GPU.", GPU, "remap_pending_count"),
    _gauge("gpu_row_remap_failed", "1 after a row remap failed.", GPU, "remap_failed_count"),
    _counter("gpu_xid_errors_total", "Xids the driver reported since the daemon started, by number. The known "
             "numbers have a series from the start on, others from their first report on.", (*GPU, "xid"), "Event"),
    _gauge("gpu_xid_last_timestamp_seconds", "Wall time of the last Xid of this number.", (*GPU, "xid"), "Event"),
    _gauge("gpu_pcie_link_generation", "Current PCIe generation of the link, and the highest of the board in its slot.",
           (*GPU, "kind"), "pcie_generation_count, Device.pcie_generation_max_count", **_NOW_MAX),
    _gauge("gpu_pcie_link_width", "Current PCIe lanes of the link, and the most of the board in its slot.", (*GPU, "kind"),
           "pcie_width_count, Device.pcie_width_max_count", **_NOW_MAX),
    _counter("gpu_row_remaps_total", "Memory rows remapped after errors, over the board's life, by cause; "
             "together gpuwatch_gpu_remapped_rows_total.", (*GPU, "kind"), RARE, kind=("correctable", "uncorrectable")),
    _gauge("gpu_performance_state", "P-state: 0 is P0, the fastest. An H200 is always in P0.", GPU, RARE),
    _counter("gpu_pcie_bytes_total", "Bytes the GPU sent and received over PCIe since the daemon opened it, protocol included (7 % "
             "more than the data copied to an H200), added up from the hardware monitor's means (Hopper and later).", (*GPU, "direction"), RARE, direction=("sent", "received")),
    _counter("gpu_nvlink_bytes_total", f"Data the GPU sent and received over all its NVLinks, by the driver's counters. {MOCKED}",
             (*GPU, "direction"), RARE, direction=("sent", "received")),
    _counter("gpu_nvlink_errors_total", f"Errors on all NVLinks, by the driver's counters. {MOCKED}", (*GPU, "kind"), RARE,
             kind=("crc_flit", "crc_data", "replay", "recovery")),
    _gauge("gpu_nvlink_links", f"NVLinks of the GPU, by whether they are up. {MOCKED}", (*GPU, "state"), RARE,
           state=("active", "inactive")),
    _counter("gpu_pcie_replays_total", "PCIe packets that had to be sent again.", GPU, "pcie_replay_count"),
    _gauge("gpu_persistence_mode", "1 if persistence mode is on.", GPU, "persistence_mode"),
    _gauge("gpu_ecc_mode", "1 if ECC is on.", GPU, "ecc_mode"),
    _gauge("gpu_mig_mode", "1 if the board is split into MIG instances.", GPU, "mig_mode"),
    _gauge("gpu_compute_mode", "1 for the current compute mode, 0 for the others.", (*GPU, "mode"), "compute_mode",
           mode=("default", "exclusive_thread", "prohibited", "exclusive_process")),
    # MIG instances
    Metric("gpuwatch_mig_info", MetricKind.INFO, f"A MIG instance (mig is its UUID) on its board, and its profile. {MOCKED}",
           (*MIG, "profile", "gpu_instance", "compute_instance"), RARE),
    _gauge("mig_memory_used_bytes", f"Memory in use on a MIG instance. {MOCKED}", MIG, RARE),
    _gauge("mig_memory_size_bytes", f"Total memory of a MIG instance. {MOCKED}", MIG, RARE),
    _gauge("mig_processes", f"Compute processes on a MIG instance. {MOCKED}", MIG, RARE),
    _gauge("mig_activity_ratio", "Hardware counters (GPM) of the GPU instance, which its compute instances share: share of its SMs "
           f"with a warp, of warps resident, of time the tensor pipe was busy, of memory bandwidth. {MOCKED}", (*MIG, "unit"), RARE,
           unit=("sm", "occupancy", "tensor", "dram")),
    # Cost and quality of watching
    _gauge("reading_age_seconds", "Age of the last answer at the time of the scrape. Grows while a GPU or lane is lost.",
           (*GPU, "lane"), "the last sweep", lane=LANES),
    _gauge("sampling_period_seconds", "How often the lane is asked now: quicker while a window is open, slower while the GPU is "
           "idle, and only then is there a pulse, the clock and its reasons between two rows of the fast lane.", (*GPU, "lane"),
           "the lane plan", lane=("fast", "pulse", "slow")),
    _counter("samples_total", "Answers of this lane; the edge lane is read at the begin and end of windows.", (*GPU, "lane"), "sweeps",
             lane=(*ASKED, "edge")),
    _counter("samples_missed_total", "Deadlines that passed without a reading.", (*GPU, "lane"), "Sweep.missed_count",
             lane=ASKED),
    _counter("losses_total", "Times the GPU or its driver stopped answering in this lane.", (*GPU, "lane"), "Lost", lane=LANES),
    _counter("sampling_call_seconds_total", "Time spent inside the driver's calls: the observer's effect, by rate().",
             (*GPU, "lane"), "took_ns", lane=(*ASKED, "edge")),
    _histogram("sample_lateness_seconds", "How late samples of the fast lane and its pulse began.", LATENESS_BUCKETS, GPU, "Sweep.late_ns"),
    _counter("daemon_cpu_seconds_total", "CPU time of the daemon's threads, without the judge's worker.",
             of="the operating system"),
    _gauge("daemon_resident_memory_bytes", "Memory of the daemon, without the judge's worker.", of="the operating system"),
    _gauge("daemon_start_timestamp_seconds", "Wall time at which the daemon started.", of="the daemon"),
    _gauge("wall_timestamp_seconds", "Wall time of the host when it made this page; beside the scraper's clock it shows how far "
           "the host's clock is off.", of="the operating system"),
    _gauge("clients", "Connections to the daemon's socket.", of="the socket"),
    # Windows and verdicts
    _gauge("windows_in_hand", "Windows open, closing or being judged now.", of="the windows"),
    _counter("windows_total", "Windows judged since the daemon started, by the status of the worst verdict.", ("status",),
             "the windows", status=("valid", "unproven", "flagged", "rejected")),
    _counter("findings_total", "Hazards found in judged windows, by rule and severity, accepted ones included; once per window "
             "and GPU. Every rule and severity has a series from the daemon's start on.", ("rule", "severity"), "the verdicts",
             severity=("note", "flag", "reject")),
    _counter("rule_failures_total", "Rules that failed on a window's evidence or limits, once per window and GPU; the daemon's log "
             "names the error. Every rule has a series from the daemon's start on.", ("rule",), "the verdicts"),
    _histogram("window_duration_seconds", "Lengths of judged windows.", LENGTH_BUCKETS, ("status",), "the windows",
               status=("valid", "unproven", "flagged", "rejected")),
    _histogram("judging_seconds", "Time to judge a window, including the wait for the worker.", JUDGING_BUCKETS,
               of="the windows"),
    _counter("proofs_total", "Proofs of judged windows, by proof and state; once per window and GPU.", ("proof", "state"),
             "the verdicts", proof=("work-seen", "books", "conditions", "nobody-else", "steady-times"),
             state=("shown", "broken", "unproven", "not-asked")),
    _histogram("window_deviation_bound_ratio", "How far the numbers that a window's claim names can be off at most for what happened "
               "in it, the farthest of them; once per window and GPU, left out after an event without a bound.", OFF_BUCKETS,
               of="the verdicts"),
    _histogram("window_repeatability_ratio", "How well the number that leads a verdict repeats; once per window and GPU, left out where "
               "it is not known.", OFF_BUCKETS, of="the verdicts"),
    _gauge("gpu_canary_clock_hertz", "True SM clock of the last canary that bench() ran on this GPU since the daemon started; the "
           "measured process declares it.", GPU, "declared.canary_clock_mhz"),
    _gauge("gpu_canary_copy_bytes_per_second", "Rate of that canary's copy; absent if it made none.", GPU,
           "declared.canary_copy_bytes_count"),
    _gauge("gpu_canary_timestamp_seconds", "Wall time at which that canary's window was judged.", GPU, "the windows"),
    # The store
    _gauge("store_bytes", "Size of the store: raw readings, and the ledger of windows and verdicts.", ("part",), "the store",
           part=("readings", "ledger")),
    _gauge("store_budget_bytes", "Size at which the oldest readings are dropped.", of="the store"),
    _counter("store_rows_total", "Rows written since the daemon started.", of="the store"),
    _counter("store_rows_dropped_total", "Rows that could not be written.", of="the store"),
    _counter("store_segments_dropped_total", "Segments of old readings dropped for the budget or their age.",
             of="the store"),
    _counter("store_segments_set_aside_total", "Damaged files that were set aside.", of="the store"),
    _gauge("store_queued_rows", "Rows waiting to be written.", of="the store"),
    _gauge("export_last_success_time_seconds", "When `gpuwatch export --parquet` last succeeded; absent: never.",
           of="the store"),
    _gauge("store_disk_full", "1 while nothing can be written because the disk is full.", of="the store"),
    # The page itself
    _gauge("certificate_expiry_timestamp_seconds", "Wall time at which the page's TLS certificate, or one of its chain, ends; "
           "absent without TLS.", of="the exporter"),
    _histogram("scrape_seconds", "Time to make this page, up to the previous scrape.", SCRAPE_BUCKETS,
               of="the exporter"),
    _counter("scrapes_refused_total", "Requests answered with an error, by its reason.", ("reason",), "the exporter",
             reason=("busy", "unauthorized", "not_found", "method", "host")),
)  # fmt: skip

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _TABLE}
