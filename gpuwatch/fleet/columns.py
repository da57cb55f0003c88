"""The columns of exported windows: a frozen contract, one row a window and GPU.

Columns may be added under the same schema number, and readers take them by name; none is renamed, retyped or removed
without a new number.  The unit of an amount is the last word of its column's name.  NULL means "not observed", never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SCHEMA = 1


class Kind(StrEnum):
    """What a column holds, as the page of the contract calls it."""

    TEXT = "text"
    WHOLE = "whole number"  # 64 bits, signed
    NUMBER = "number"  # a double
    FLAG = "true or false"
    MOMENT = "UTC time"  # microseconds since 1970
    TEXTS = "list of texts"
    NUMBERS = "map of text to number"
    WORDS = "map of text to text"
    RECORDS = "list of records"


@dataclass(frozen=True, slots=True)
class Column:
    """One column; ``inner`` are the fields of its records.  ``always``: never NULL."""

    name: str
    kind: Kind
    meaning: str
    always: bool = False
    inner: tuple[Column, ...] = ()

    @property
    def unit(self) -> str | None:
        return _UNITS.get(self.name.rpartition("_")[2]) if self.kind in (Kind.WHOLE, Kind.NUMBER) else None


_UNITS = {
    "s": "seconds", "ns": "nanoseconds", "mhz": "megahertz", "w": "watts", "c": "degrees Celsius", "bytes": "bytes",
    "ratio": "ratio, 0 to 1", "count": "count", "mask": "bits",
}  # fmt: skip

_HAZARD = (
    Column("rule", Kind.TEXT, "the rule that found it", always=True),
    Column("severity", Kind.TEXT, "reject, flag or note", always=True),
    Column("says", Kind.TEXT, "the sentence"),
    Column("remedy", Kind.TEXT, "what to do"),
    Column("basis", Kind.TEXT, "from where the evidence came: telemetry, host, told, timings, baseline"),
    Column("accepted", Kind.FLAG, "whether the window's policy accepts it", always=True),
    Column("effect_ratio", Kind.NUMBER, "the share of the window, or of its time, that it concerns"),
    Column("begin_ns", Kind.WHOLE, "where it begins, on the monotonic clock of the boot"),
    Column("end_ns", Kind.WHOLE, "where it ends"),
    Column("numbers", Kind.NUMBERS, "its facts that are numbers, by names that end in their unit", always=True),
    Column("words", Kind.WORDS, "its other facts", always=True),
)

_WINDOW = (
    Column("boot_id", Kind.TEXT, "the boot of the machine; with run and gpu_uuid the key of a row", always=True),
    Column("run", Kind.TEXT, "the window's id, as `gpuwatch show` takes it", always=True),
    Column("gpu_uuid", Kind.TEXT, "the GPU; NULL where the window covered none"),
    Column("hostname", Kind.TEXT, "the machine, as --host or the window said; also the partition", always=True),
    Column("begun_utc", Kind.MOMENT, "when the window began", always=True),
    Column("begin_ns", Kind.WHOLE, "its beginning on the monotonic clock of the boot", always=True),
    Column("end_ns", Kind.WHOLE, "its end on the same clock"),
    Column("length_s", Kind.NUMBER, "how long it was"),
    Column("label", Kind.TEXT, "what its author calls it"),
    Column("claim", Kind.TEXT, "what it claims to measure: sustained, burst, fixed-clock", always=True),
    Column("status", Kind.TEXT, "the verdict on this GPU: valid, unproven, flagged, rejected", always=True),
    Column("window_status", Kind.TEXT, "the worst verdict over its GPUs", always=True),
    Column("why", Kind.TEXT, "of an unproven verdict: the missing evidence"),
    Column("gpus_count", Kind.WHOLE, "how many GPUs it covered", always=True),
    Column("simulated", Kind.FLAG, "whether its GPU is an invention: leave such rows out of every statistic", always=True),
    Column("source", Kind.TEXT, "where readings came from", always=True),
    Column("pid", Kind.WHOLE, "the process that opened it", always=True),
    Column("uid", Kind.WHOLE, "the user it ran as", always=True),
    Column("user", Kind.TEXT, "that user's name"),
    Column("process", Kind.TEXT, "that process's name; never its command line, which may hold secrets"),
    Column("parent", Kind.TEXT, "the window it lies in"),
    Column("judge_version", Kind.TEXT, "the version that judged"),
)

_VERDICT = (
    Column("found", Kind.TEXTS, "rules that found what is worse than a note and not accepted, worst first; NULL: not judged"),
    Column("clear", Kind.TEXTS, "rules that looked and found nothing; NULL: not judged"),
    Column("hazards", Kind.RECORDS, "all that was found, notes too; NULL: not judged", inner=_HAZARD),
    Column("unobserved", Kind.RECORDS, "rules that could not tell; NULL: not judged", inner=(
        Column("rule", Kind.TEXT, "the rule", always=True),
        Column("why", Kind.TEXT, "what was missing"),
        Column("required", Kind.FLAG, "whether the claim requires it", always=True),
    )),
    Column("accepted", Kind.TEXTS, "the rules the window's policy accepts", always=True),
    Column("limits", Kind.RECORDS, "the limits its policy overrides", always=True, inner=(
        Column("rule", Kind.TEXT, "the rule", always=True),
        Column("limit", Kind.TEXT, "which of its limits", always=True),
        Column("value", Kind.NUMBER, "the value in force", always=True),
    )),
    Column("told_numbers", Kind.NUMBERS, "what the measured process told: numbers, by names that end in their unit", always=True),
    Column("told_words", Kind.WORDS, "the rest of what it told, such as torch_version", always=True),
)  # fmt: skip

# Of annotate.evidence.Device, as the GPU was when the window began.
_GPU = (
    Column("gpu_name", Kind.TEXT, "its model"),
    Column("gpu_pci_bus_id", Kind.TEXT, "where it sits"),
    Column("gpu_driver_version", Kind.TEXT, "the driver"),
    Column("gpu_nvml_version", Kind.TEXT, "the driver's library"),
    Column("gpu_vbios_version", Kind.TEXT, "its firmware"),
    Column("gpu_architecture", Kind.TEXT, "its architecture"),
    Column("gpu_compute_capability", Kind.TEXT, "its compute capability"),
    Column("gpu_parent_uuid", Kind.TEXT, "of a MIG instance: the board it lives on"),
    Column("gpu_sm_clock_max_mhz", Kind.WHOLE, "the highest SM clock"),
    Column("gpu_mem_clock_max_mhz", Kind.WHOLE, "the highest memory clock"),
    Column("gpu_power_limit_w", Kind.NUMBER, "the power limit in force"),
    Column("gpu_power_limit_default_w", Kind.NUMBER, "the power limit it came with"),
    Column("gpu_power_limit_min_w", Kind.NUMBER, "the lowest that may be set"),
    Column("gpu_power_limit_max_w", Kind.NUMBER, "the highest that may be set"),
    Column("gpu_temperature_slowdown_c", Kind.WHOLE, "where it slows down"),
    Column("gpu_temperature_shutdown_c", Kind.WHOLE, "where it shuts down"),
    Column("gpu_memory_total_bytes", Kind.WHOLE, "its memory"),
    Column("gpu_memory_reserved_bytes", Kind.WHOLE, "what driver and firmware hold of it"),
    Column("gpu_pcie_generation_max_count", Kind.WHOLE, "the highest PCIe generation"),
    Column("gpu_pcie_width_max_count", Kind.WHOLE, "the most PCIe lanes"),
    Column("gpu_numa_node_count", Kind.WHOLE, "the NUMA node it hangs on"),
    Column("gpu_cuda_cores_count", Kind.WHOLE, "its cores"),
    Column("gpu_memory_bus_bits_count", Kind.WHOLE, "the width of its memory bus"),
    Column("gpu_persistence_mode", Kind.FLAG, "whether the driver stays loaded"),
    Column("gpu_ecc_mode", Kind.FLAG, "whether memory errors are corrected"),
    Column("gpu_mig_mode", Kind.FLAG, "whether it may be divided"),
    Column("gpu_compute_mode", Kind.TEXT, "who may use it"),
    Column("gpu_virtualization", Kind.TEXT, "how it reaches this machine"),
    Column("gpu_supported_reasons_mask", Kind.WHOLE, "the clock event reasons it can report"),
)

# Of annotate.evidence.Host, between the window's edges.
_HOST = (
    Column("host_kernel", Kind.TEXT, "the kernel"),
    Column("host_container", Kind.TEXT, "the kind of container the daemon ran in"),
    Column("host_cpu_allowed_count", Kind.WHOLE, "processors the measured process may use"),
    Column("host_span_s", Kind.NUMBER, "the time between the two readings the amounts below are differences of"),
    Column("host_cpu_s", Kind.NUMBER, "processor time of the measured processes"),
    Column("host_run_wait_s", Kind.NUMBER, "time they waited for a processor"),
    Column("host_threads_count", Kind.WHOLE, "their threads"),
    Column("host_cgroup_throttled_s", Kind.NUMBER, "time their group was held back"),
    Column("host_steal_ratio", Kind.NUMBER, "the share of processor time other machines took"),
    Column("host_cpu_busy_ratio", Kind.NUMBER, "how busy the whole machine was"),
    Column("host_cpu_pressure_ratio", Kind.NUMBER, "the share of the span in which something waited for a processor"),
    Column("host_numa_nodes", Kind.TEXT, "NUMA nodes of the processors it may use, comma-separated"),
    Column("host_profilers", Kind.TEXT, "what profiles its calls, comma-separated; empty: looked for, none there"),
    Column("host_sharing", Kind.TEXT, "what shares its GPUs by design, comma-separated; empty: nothing"),
    Column("host_threads_born_count", Kind.WHOLE, "threads that were not there when the window began"),
    Column("host_processes_born_count", Kind.WHOLE, "processes that were not there when the window began"),
    Column("host_born_cpu_s", Kind.NUMBER, "processor time of all of these"),
    Column("host_wall_step_s", Kind.NUMBER, "by how much the wall clock was set meanwhile"),
    Column("host_watcher_cpu_s", Kind.NUMBER, "processor time of the watching daemon itself"),
)

COLUMNS: tuple[Column, ...] = (*_WINDOW, *_VERDICT, *_GPU, *_HOST)
