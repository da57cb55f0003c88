"""The closed table of metrics: the page shows only these names, and a name never changes its meaning.

Values are in base units (hertz, watts, joules, celsius, bytes, seconds, ratios).  In the labels of a series,
only ``uuid`` and ``gpu`` identify the GPU; queries join the rest from ``gpuwatch_device_info``.  An unobserved value has
no series.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class MetricKind(StrEnum):
    """The types of the exposition format that the page uses."""

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

# The class of each clock event reason.  benign: idle, or requested by a user.  limiting: the board is at a limit.
# hardware: the board protects itself.
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
)  # the pulse runs only in windows and at rest, so it has no age; its losses count for the fast lane


RARE = "read at most once in ten seconds"  # the source of values that no lane reads
MOCKED = "Seen on the mock driver only."


@dataclass(frozen=True, slots=True)
class Metric:
    """One family: its name in queries, and the source of its values."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    of: str = ""  # the source of the values
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by label: its values, if they are a closed set
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
    _gauge("simulated", "1 if the readings come from a simulation or a recording, 0 for real GPUs.", of="the source"),
    Metric("gpuwatch_source_info", MetricKind.INFO, "Kind of the watched source.", ("source",), "the source",
           {"source": ("nvml", "simulated", "replay")}),
    Metric("gpuwatch_build_info", MetricKind.INFO, "Versions of the daemon that serves this page and of Python.", ("version", "python"), "the package"),
    _gauge("gpus", "GPUs that the source has listed, by current state.", ("state",), "the witness",
           state=("answering", "lost")),
    # Identity of a GPU
    Metric("gpuwatch_device_info", MetricKind.INFO,
           "Identity of a GPU; join on uuid. Stays while the GPU is lost. The label gpu is the position in the driver's order.",
           (*GPU, "name", "pci_bus_id", "driver_version", "vbios_version", "architecture", "compute_capability",
            "virtualization"), "Device"),
    _gauge("gpu_up", "1 while the GPU answers. At 0 the GPU's readings have no series; the daemon's own counts stay.", GPU,
           "the sampler"),
    _gauge("gpu_field_supported", "1 if GPU and driver support this field, 0 if its series is absent for that reason.",
           (*GPU, "field"), "the lane plan measured at start"),
    # Clocks
    _gauge("gpu_clock_hertz", "Clock that the driver reports. Under a power cap the SM clock reads 8-12 % above the true mean.",
           (*GPU, "domain"), "sm_clock_mhz, mem_clock_mhz", **_DOMAINS),
    _gauge("gpu_clock_limit_hertz", "Highest clock of the board (max), and the application clock if it is not the default (locked).",
           (*GPU, "domain", "kind"), "Device.sm_clock_max_mhz, Device.mem_clock_max_mhz, sm_clock_lock_mhz",
           domain=("sm", "memory"), kind=("max", "locked")),
    _histogram("gpu_clock_ratio", "Clock over the board's highest clock in every sample, for the SM clock also in every pulse; includes "
               "dips between scrapes. The label load is idle if the driver reports idleness as the clock's reason.", RATIO_BUCKETS,
               (*GPU, "domain", "load"), "sm_clock_mhz, mem_clock_mhz, event_reasons_mask",
               domain=("sm", "memory"), load=("busy", "idle", "unknown")),
    _gauge("gpu_clock_event_active", "1 while the driver reports this reason for the clock; reasons that the GPU does not support "
           "have no series.", (*GPU, "reason"), "event_reasons_mask", reason=(*REASON_CLASSES, "unknown_bit_N")),
    _counter("gpu_clock_event_seconds_total", "Time under this reason, from the driver's counter if it has one, otherwise "
             "summed over samples. Reasons overlap: never sum over reasons.", (*GPU, "reason", "source"),
             "power_cap_ns, sync_boost_ns, sw_thermal_ns, hw_thermal_ns, power_brake_ns; else event_reasons_mask",
             reason=(*REASON_CLASSES, "unknown_bit_N"), source=("driver", "sampled")),
    Metric("gpuwatch_clock_event_reason_info", MetricKind.INFO, "Class of a reason: benign (idle, or requested), limiting (the "
           "board is at a limit) or hardware (the board protects itself).", ("reason", "class"), "a fixed table",
           {"reason": tuple(REASON_CLASSES), "class": ("benign", "limiting", "hardware")}),
    # Power, energy, heat
    _gauge("gpu_power_watts", "Board power: instant is a mean over about 25 ms, average a mean over the last second.",
           (*GPU, "kind"), "power_w, power_average_w", kind=("instant", "average")),
    _gauge("gpu_power_peak_watts", "Highest sample of the driver's dense power record (20 ms apart) in the last minute; "
           "the fixed interval gives all scrapers the same value.", GPU, "PowerRecord"),
    _gauge("gpu_power_limit_watts", "Power limits; enforced is the current limit.", (*GPU, "kind"),
           "power_limit_w, Device.power_limit_*", kind=("enforced", "default", "min", "max")),
    _histogram("gpu_power_limit_ratio", "Board power over the enforced limit in every sample of the fast lane.", POWER_BUCKETS,
               GPU, "power_w, power_limit_w"),
    _counter("gpu_energy_joules_total", "Energy since the driver was loaded; a reload of the driver restarts the counter at zero.", GPU,
             "energy_j"),
    _gauge("gpu_temperature_celsius", "Temperature of the GPU and of its memory.", (*GPU, "sensor"),
           "temperature_c, memory_temperature_c", sensor=("core", "memory")),
    _gauge("gpu_temperature_limit_celsius", "Temperatures at which the board slows down and shuts down.", (*GPU, "kind"),
           "Device.temperature_slowdown_c, Device.temperature_shutdown_c", kind=("slowdown", "shutdown")),
    _gauge("gpu_temperature_margin_celsius", "Degrees left before slow-down, as the driver reports them.", GPU, "temperature_margin_c"),
    # Use
    _gauge("gpu_utilization_ratio", "Share of the driver's last 200 ms in which a kernel was resident or memory was accessed; "
           "not the share of the GPU's capacity in use.", (*GPU, "unit"), "utilization_ratio, mem_utilization_ratio",
           unit=("gpu", "memory")),
    _gauge("gpu_activity_ratio", "Hardware counters (GPM): share of SMs with a warp, of resident warps, of time with a busy tensor "
           "pipe, and of memory bandwidth.", (*GPU, "unit"),
           "sm_activity_ratio, sm_occupancy_ratio, tensor_activity_ratio, dram_activity_ratio",
           unit=("sm", "occupancy", "tensor", "dram")),
    _gauge("gpu_memory_used_bytes", "Device memory in use, including the driver's reserve.", GPU, "memory_used_bytes"),
    _gauge("gpu_memory_reserved_bytes", "Device memory reserved by driver and firmware, in use even without a process.", GPU,
           "Device.memory_reserved_bytes"),
    _gauge("gpu_memory_size_bytes", "Total device memory.", GPU, "Device.memory_total_bytes"),
    _gauge("gpu_processes", "Processes on the GPU; 0 means that the list was read and was empty.", (*GPU, "kind"), "ProcessList",
           kind=("compute", "graphics")),
    _gauge("gpu_processes_complete", "1 if the process list covers the whole machine, 0 if it can omit processes of other "
           "containers; absent if unknown.", GPU, "ProcessList.visibility"),
    _gauge("process_gpu_memory_bytes", "Device memory of a process. Absent unless exporter.processes = N, and then for the N "
           "largest processes per GPU.", (*GPU, "pid", "process"), "ProcessList"),
    # Faults and modes
    _counter("gpu_ecc_errors_total", "Memory errors: the driver's volatile counts.", (*GPU, "kind"),
             "ecc_corrected_count, ecc_uncorrected_count", kind=("corrected", "uncorrected")),
    _counter("gpu_remapped_rows_total", "Memory rows remapped after errors, over the board's life.", GPU,
             "remapped_rows_count"),
    _gauge("gpu_row_remap_pending", "1 while a row remap is pending until the GPU is reset.", GPU, "remap_pending_count"),
    _gauge("gpu_row_remap_failed", "1 after a row remap failed.", GPU, "remap_failed_count"),
    _counter("gpu_xid_errors_total", "Xids that the driver reported since the daemon started, by number. Known "
             "numbers have a series from the start, others from the first report on.", (*GPU, "xid"), "Event"),
    _gauge("gpu_xid_last_timestamp_seconds", "Wall time of the last Xid of this number.", (*GPU, "xid"), "Event"),
    _gauge("gpu_pcie_link_generation", "PCIe generation of the link: current, and the maximum of the board in this slot.",
           (*GPU, "kind"), "pcie_generation_count, Device.pcie_generation_max_count", **_NOW_MAX),
    _gauge("gpu_pcie_link_width", "PCIe lanes of the link: current, and the maximum of the board in this slot.", (*GPU, "kind"),
           "pcie_width_count, Device.pcie_width_max_count", **_NOW_MAX),
    _counter("gpu_row_remaps_total", "Memory rows remapped after errors, over the board's life, by cause; "
             "the sum is gpuwatch_gpu_remapped_rows_total.", (*GPU, "kind"), RARE, kind=("correctable", "uncorrectable")),
    _gauge("gpu_performance_state", "P-state: 0 is P0, the fastest. An H200 is always in P0.", GPU, RARE),
    _counter("gpu_pcie_bytes_total", "Bytes that the GPU sent and received over PCIe since the daemon's first scrape, including protocol (7 % "
             "more than the data copied to an H200); integrated from the means of GPM (Hopper and later).", (*GPU, "direction"), RARE, direction=("sent", "received")),
    _counter("gpu_nvlink_bytes_total", f"Data that the GPU sent and received over all NVLinks, from the driver's counters. {MOCKED}",
             (*GPU, "direction"), RARE, direction=("sent", "received")),
    _counter("gpu_nvlink_errors_total", f"Errors on all NVLinks, from the driver's counters. {MOCKED}", (*GPU, "kind"), RARE,
             kind=("crc_flit", "crc_data", "replay", "recovery")),
    _gauge("gpu_nvlink_links", f"NVLinks of the GPU, by state. {MOCKED}", (*GPU, "state"), RARE,
           state=("active", "inactive")),
    _counter("gpu_pcie_replays_total", "PCIe packets that were sent again after an error.", GPU, "pcie_replay_count"),
    _gauge("gpu_persistence_mode", "1 if persistence mode is on.", GPU, "persistence_mode"),
    _gauge("gpu_ecc_mode", "1 if ECC is on.", GPU, "ecc_mode"),
    _gauge("gpu_mig_mode", "1 if MIG mode is on.", GPU, "mig_mode"),
    _gauge("gpu_compute_mode", "1 for the current compute mode, 0 for the others.", (*GPU, "mode"), "compute_mode",
           mode=("default", "exclusive_thread", "prohibited", "exclusive_process")),
    # MIG instances
    Metric("gpuwatch_mig_info", MetricKind.INFO, f"Identity of a MIG instance; the label mig is its UUID, the labels uuid and gpu are its board's. {MOCKED}",
           (*MIG, "profile", "gpu_instance", "compute_instance"), RARE),
    _gauge("mig_memory_used_bytes", f"Memory in use on a MIG instance. {MOCKED}", MIG, RARE),
    _gauge("mig_memory_size_bytes", f"Total memory of a MIG instance. {MOCKED}", MIG, RARE),
    _gauge("mig_processes", f"Compute processes on a MIG instance. {MOCKED}", MIG, RARE),
    _gauge("mig_activity_ratio", "Hardware counters (GPM) of the GPU instance, which its compute instances share: share of SMs "
           f"with a warp, of resident warps, of time with a busy tensor pipe, and of memory bandwidth. {MOCKED}", (*MIG, "unit"), RARE,
           unit=("sm", "occupancy", "tensor", "dram")),
    # Cost and quality of watching
    _gauge("reading_age_seconds", "Age of the lane's last answer at the time of the scrape; grows while the GPU or the lane does not answer.",
           (*GPU, "lane"), "the last sweep", lane=LANES),
    _gauge("sampling_period_seconds", "Current period of the lane: shorter while a window is open, longer while the GPU is idle. The "
           "pulse reads the clock and its reasons between two rows of the fast lane.", (*GPU, "lane"),
           "the lane plan", lane=("fast", "pulse", "slow")),
    _counter("samples_total", "Answers of this lane; the edge lane is read at the start and end of windows.", (*GPU, "lane"), "sweeps",
             lane=(*ASKED, "edge")),
    _counter("samples_missed_total", "Missed deadlines of this lane.", (*GPU, "lane"), "Sweep.missed_count",
             lane=ASKED),
    _counter("losses_total", "Times the GPU or its driver stopped answering in this lane.", (*GPU, "lane"), "Lost", lane=LANES),
    _counter("sampling_call_seconds_total", "Time inside the driver's calls.",
             (*GPU, "lane"), "took_ns", lane=(*ASKED, "edge")),
    _histogram("sample_lateness_seconds", "Delay of samples of the fast lane and the pulse after their deadlines.", LATENESS_BUCKETS, GPU, "Sweep.late_ns"),
    _counter("daemon_cpu_seconds_total", "CPU time of the daemon, without the judge's worker process.",
             of="the operating system"),
    _gauge("daemon_resident_memory_bytes", "Resident memory of the daemon, without the judge's worker process.", of="the operating system"),
    _gauge("daemon_start_timestamp_seconds", "Wall time at which the daemon started.", of="the daemon"),
    _gauge("wall_timestamp_seconds", "Wall time of the host when this page was made; the difference from the scraper's clock is the error "
           "of the host's clock.", of="the operating system"),
    _gauge("clients", "Connections to the daemon's socket.", of="the socket"),
    # Windows and verdicts
    _gauge("windows_in_hand", "Windows that are open, closing or being judged.", of="the windows"),
    _counter("windows_total", "Finished windows since the daemon started, by the status of the worst verdict.", ("status",),
             "the windows", status=("valid", "unproven", "flagged", "rejected")),
    _counter("findings_total", "Hazards found in judged windows, including accepted ones, by rule and severity; once per window "
             "and GPU. Every rule and severity has a series from the daemon's start on.", ("rule", "severity"), "the verdicts",
             severity=("note", "flag", "reject")),
    _counter("rule_failures_total", "Rules that failed with an error, once per window and GPU; the daemon's log has "
             "the error. Every rule has a series from the daemon's start on.", ("rule",), "the verdicts"),
    _histogram("window_duration_seconds", "Lengths of finished windows.", LENGTH_BUCKETS, ("status",), "the windows",
               status=("valid", "unproven", "flagged", "rejected")),
    _histogram("judging_seconds", "Time to judge a window, including the wait for the worker.", JUDGING_BUCKETS,
               of="the windows"),
    _counter("proofs_total", "Proofs of judged windows, by proof and state; once per window and GPU.", ("proof", "state"),
             "the verdicts", proof=("work-seen", "books", "conditions", "nobody-else", "steady-times"),
             state=("shown", "broken", "unproven", "not-asked")),
    _histogram("window_deviation_bound_ratio", "Largest bound on the deviation of a window's claimed numbers; once per window and GPU, without windows "
               "in which a claimed number has no bound.", OFF_BUCKETS,
               of="the verdicts"),
    _histogram("window_repeatability_ratio", "Repeatability of the leading number of a verdict; once per window and GPU, without verdicts "
               "with an unknown repeatability.", OFF_BUCKETS, of="the verdicts"),
    _gauge("gpu_canary_clock_hertz", "True SM clock of the last canary that bench() ran on this GPU since the daemon started; the "
           "measured process declares this clock.", GPU, "declared.canary_clock_mhz"),
    _gauge("gpu_canary_copy_bytes_per_second", "Copy bandwidth of the last canary; absent if the canary made no copy.", GPU,
           "declared.canary_copy_bytes_count"),
    _gauge("gpu_canary_timestamp_seconds", "Wall time at which the last canary's window was judged.", GPU, "the windows"),
    # The store
    _gauge("store_bytes", "Size of the store's parts: raw readings, and the ledger of windows and verdicts.", ("part",), "the store",
           part=("readings", "ledger")),
    _gauge("store_budget_bytes", "Size above which the store drops the oldest readings.", of="the store"),
    _counter("store_rows_total", "Rows written since the daemon started.", of="the store"),
    _counter("store_rows_dropped_total", "Rows and other entries that could not be written.", of="the store"),
    _counter("store_segments_dropped_total", "Segments of readings dropped for their age or to keep the budget.",
             of="the store"),
    _counter("store_segments_set_aside_total", "Damaged files that were set aside.", of="the store"),
    _gauge("store_queued_rows", "Rows waiting to be written.", of="the store"),
    _gauge("export_last_success_time_seconds", "Wall time of the last successful `gpuwatch export --parquet`; absent before the first.",
           of="the store"),
    _gauge("store_disk_full", "1 while the store cannot write because the disk is full.", of="the store"),
    # The page itself
    _gauge("certificate_expiry_timestamp_seconds", "Wall time of the earliest expiry in the page's TLS chain; "
           "absent without TLS.", of="the exporter"),
    _histogram("scrape_seconds", "Time to make a page; includes all pages before this one.", SCRAPE_BUCKETS,
               of="the exporter"),
    _counter("scrapes_refused_total", "Refused requests, by reason. The reason busy includes connections that a newer one replaced; "
             "method includes malformed and too large requests.", ("reason",), "the exporter",
             reason=("busy", "unauthorized", "not_found", "method", "host")),
)  # fmt: skip

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _TABLE}
