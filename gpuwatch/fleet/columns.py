"""The columns of exported windows: a frozen contract, one row per window and GPU.

Columns may be added under the same schema number, and readers find them by name.  Renaming, retyping or removing a
column needs a new number.  The unit of an amount is the last word of its column's name.  NULL means "not observed",
never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SCHEMA = 1


class ColumnKind(StrEnum):
    """The kind of a column's values, as named on the contract's page."""

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
class ExportColumn:
    """One column; ``inner`` holds the fields of its records.  ``always``: never NULL."""

    name: str
    kind: ColumnKind
    meaning: str
    always: bool = False
    inner: tuple[ExportColumn, ...] = ()

    @property
    def unit(self) -> str | None:
        return _UNITS.get(self.name.rpartition("_")[2]) if self.kind in (ColumnKind.WHOLE, ColumnKind.NUMBER) else None


_UNITS = {
    "s": "seconds", "ns": "nanoseconds", "mhz": "megahertz", "w": "watts", "j": "joules", "c": "degrees Celsius", "bytes": "bytes",
    "ratio": "ratio, 0 to 1", "count": "count", "mask": "bits",
}  # fmt: skip

_HAZARD = (
    ExportColumn("rule", ColumnKind.TEXT, "the rule that found it", always=True),
    ExportColumn("severity", ColumnKind.TEXT, "reject, flag or note", always=True),
    ExportColumn("says", ColumnKind.TEXT, "the sentence"),
    ExportColumn("remedy", ColumnKind.TEXT, "what to do"),
    ExportColumn("basis", ColumnKind.TEXT, "origin of the evidence: telemetry, host, told, timings, baseline"),
    ExportColumn("accepted", ColumnKind.FLAG, "whether the window's policy accepts it", always=True),
    ExportColumn("effect_ratio", ColumnKind.NUMBER, "the share of the window, or of its time, that it concerns"),
    ExportColumn("begin_ns", ColumnKind.WHOLE, "its begin on the monotonic clock of the boot"),
    ExportColumn("end_ns", ColumnKind.WHOLE, "its end on the same clock"),
    ExportColumn("numbers", ColumnKind.NUMBERS, "its facts that are numbers, by names that end in their unit", always=True),
    ExportColumn("words", ColumnKind.WORDS, "its other facts", always=True),
)

_NUMBER = (
    ExportColumn("number", ColumnKind.TEXT, "throughput, mean, median, median_at_clock or ratio", always=True),
    ExportColumn("value", ColumnKind.NUMBER, "the number; NULL where no times were given"),
    ExportColumn("unit", ColumnKind.TEXT, "its unit"),
    ExportColumn("clock_mhz", ColumnKind.NUMBER, "the clock, of the median at one clock"),
    ExportColumn("bound_ratio", ColumnKind.NUMBER, "bound on its shift by disturbances; NULL: unknown"),
    ExportColumn("repeatability_ratio", ColumnKind.NUMBER, "difference between two undisturbed windows; NULL: unknown"),
    ExportColumn("other_cards_ratio", ColumnKind.NUMBER, "the same on another card, at one clock; NULL: none on record"),
    ExportColumn("claimed", ColumnKind.FLAG, "whether it decided the status", always=True),
    ExportColumn("leading", ColumnKind.FLAG, "whether it leads the first line", always=True),
)

_WINDOW = (
    ExportColumn("boot_id", ColumnKind.TEXT, "the boot of the machine; with run and gpu_uuid the key of a row", always=True),
    ExportColumn("run", ColumnKind.TEXT, "the window's id, as `gpuwatch show` takes it", always=True),
    ExportColumn("gpu_uuid", ColumnKind.TEXT, "the GPU; NULL where the window covered none"),
    ExportColumn("hostname", ColumnKind.TEXT, "the machine, as --host or the window said; also the partition", always=True),
    ExportColumn("begun_utc", ColumnKind.MOMENT, "the wall time of the window's begin", always=True),
    ExportColumn("begin_ns", ColumnKind.WHOLE, "its beginning on the monotonic clock of the boot", always=True),
    ExportColumn("end_ns", ColumnKind.WHOLE, "its end on the same clock"),
    ExportColumn("length_s", ColumnKind.NUMBER, "its length"),
    ExportColumn("label", ColumnKind.TEXT, "its author's name for it"),
    ExportColumn("claim", ColumnKind.TEXT, "its claim: sustained, burst, fixed-clock", always=True),
    ExportColumn("status", ColumnKind.TEXT, "the verdict on this GPU: valid, unproven, flagged, rejected", always=True),
    ExportColumn("window_status", ColumnKind.TEXT, "the worst verdict over its GPUs", always=True),
    ExportColumn("why", ColumnKind.TEXT, "of an unproven verdict: the missing evidence"),
    ExportColumn("gpus_count", ColumnKind.WHOLE, "the number of GPUs it covered", always=True),
    ExportColumn(
        "simulated", ColumnKind.FLAG, "whether its GPU is simulated: leave such rows out of every statistic", always=True
    ),
    ExportColumn("source", ColumnKind.TEXT, "the source of its readings", always=True),
    ExportColumn("pid", ColumnKind.WHOLE, "the process that opened it", always=True),
    ExportColumn("uid", ColumnKind.WHOLE, "the user it ran as", always=True),
    ExportColumn("user", ColumnKind.TEXT, "that user's name"),
    ExportColumn("process", ColumnKind.TEXT, "that process's name; never its command line, which may hold secrets"),
    ExportColumn("parent", ColumnKind.TEXT, "the window it lies in"),
    ExportColumn("judge_version", ColumnKind.TEXT, "the version that judged"),
)

_VERDICT = (
    ExportColumn("found", ColumnKind.TEXTS, "rules that found more than a note, without accepted ones, worst first; NULL: not judged"),
    ExportColumn("clear", ColumnKind.TEXTS, "rules that found nothing; NULL: not judged"),
    ExportColumn("hazards", ColumnKind.RECORDS, "all findings, notes too; NULL: not judged", inner=_HAZARD),
    ExportColumn("unobserved", ColumnKind.RECORDS, "rules without enough evidence; NULL: not judged", inner=(
        ExportColumn("rule", ColumnKind.TEXT, "the rule", always=True),
        ExportColumn("why", ColumnKind.TEXT, "the missing evidence"),
        ExportColumn("required", ColumnKind.FLAG, "whether the claim requires it", always=True),
    )),
    ExportColumn("labels", ColumnKind.TEXTS, "labels to quote beside the number; NULL of verdicts before budgets"),
    ExportColumn("tolerance_ratio", ColumnKind.NUMBER, "the bound above which it flags; NULL of verdicts before budgets"),
    ExportColumn("precision_ratio", ColumnKind.NUMBER, "the repeatability that was asked for; NULL: none"),
    ExportColumn("numbers", ColumnKind.RECORDS, "its numbers; NULL of verdicts before budgets", inner=_NUMBER),
    ExportColumn("proofs", ColumnKind.RECORDS, "the proofs of a valid window; NULL of verdicts before budgets", inner=(
        ExportColumn("proof", ColumnKind.TEXT, "one of the five proofs", always=True),
        ExportColumn("state", ColumnKind.TEXT, "shown, broken, unproven, not-asked", always=True),
        ExportColumn("says", ColumnKind.TEXT, "in words"),
        ExportColumn("missing", ColumnKind.TEXTS, "the evidence that an unproven one needs"),
    )),
    ExportColumn("accepted", ColumnKind.TEXTS, "the rules the window's policy accepts", always=True),
    ExportColumn("limits", ColumnKind.RECORDS, "the limits its policy overrides", always=True, inner=(
        ExportColumn("rule", ColumnKind.TEXT, "the rule", always=True),
        ExportColumn("limit", ColumnKind.TEXT, "the name of the limit", always=True),
        ExportColumn("value", ColumnKind.NUMBER, "the value in force", always=True),
    )),
    ExportColumn("told_numbers", ColumnKind.NUMBERS, "facts declared by the measured process: numbers, by names that end in their unit", always=True),
    ExportColumn("told_words", ColumnKind.WORDS, "its other declared facts, such as torch_version", always=True),
)  # fmt: skip

# From annotate.evidence.Device, for the GPU at the window's begin.
_GPU = (
    ExportColumn("gpu_name", ColumnKind.TEXT, "its model"),
    ExportColumn("gpu_pci_bus_id", ColumnKind.TEXT, "its PCI address"),
    ExportColumn("gpu_driver_version", ColumnKind.TEXT, "the driver"),
    ExportColumn("gpu_nvml_version", ColumnKind.TEXT, "the driver's library"),
    ExportColumn("gpu_vbios_version", ColumnKind.TEXT, "its firmware"),
    ExportColumn("gpu_architecture", ColumnKind.TEXT, "its architecture"),
    ExportColumn("gpu_compute_capability", ColumnKind.TEXT, "its compute capability"),
    ExportColumn("gpu_parent_uuid", ColumnKind.TEXT, "of a MIG instance: its board"),
    ExportColumn("gpu_sm_clock_max_mhz", ColumnKind.WHOLE, "the highest SM clock"),
    ExportColumn("gpu_mem_clock_max_mhz", ColumnKind.WHOLE, "the highest memory clock"),
    ExportColumn("gpu_power_limit_w", ColumnKind.NUMBER, "the power limit in force"),
    ExportColumn("gpu_power_limit_default_w", ColumnKind.NUMBER, "the power limit it came with"),
    ExportColumn("gpu_power_limit_min_w", ColumnKind.NUMBER, "the lowest that may be set"),
    ExportColumn("gpu_power_limit_max_w", ColumnKind.NUMBER, "the highest that may be set"),
    ExportColumn("gpu_temperature_slowdown_c", ColumnKind.WHOLE, "the temperature at which it slows down"),
    ExportColumn("gpu_temperature_shutdown_c", ColumnKind.WHOLE, "the temperature at which it shuts down"),
    ExportColumn("gpu_memory_total_bytes", ColumnKind.WHOLE, "its memory"),
    ExportColumn("gpu_memory_reserved_bytes", ColumnKind.WHOLE, "its memory used by driver and firmware"),
    ExportColumn("gpu_pcie_generation_max_count", ColumnKind.WHOLE, "the highest PCIe generation"),
    ExportColumn("gpu_pcie_width_max_count", ColumnKind.WHOLE, "the most PCIe lanes"),
    ExportColumn("gpu_numa_node_count", ColumnKind.WHOLE, "its NUMA node"),
    ExportColumn("gpu_cuda_cores_count", ColumnKind.WHOLE, "its cores"),
    ExportColumn("gpu_memory_bus_bits_count", ColumnKind.WHOLE, "the width of its memory bus"),
    ExportColumn("gpu_persistence_mode", ColumnKind.FLAG, "whether the driver stays loaded"),
    ExportColumn("gpu_ecc_mode", ColumnKind.FLAG, "whether memory errors are corrected"),
    ExportColumn("gpu_mig_mode", ColumnKind.FLAG, "whether it is in MIG mode"),
    ExportColumn("gpu_compute_mode", ColumnKind.TEXT, "its compute mode"),
    ExportColumn("gpu_virtualization", ColumnKind.TEXT, "its virtualization mode"),
    ExportColumn("gpu_supported_reasons_mask", ColumnKind.WHOLE, "the clock event reasons it can report"),
    ExportColumn("gpu_idle_power_w", ColumnKind.NUMBER, "the lowest power seen with a context and no work"),
)

# Over the window, from its evidence; NULL without stored evidence.  The median and its interval are the verdict's.
PHYSICS = (
    ExportColumn("tags", ColumnKind.WORDS, "its tags: its user's and those of its job, pod or CI run"),
    ExportColumn("sm_clock_mean_mhz", ColumnKind.NUMBER, "the SM clock reported by the driver while the GPU worked"),
    ExportColumn("sm_clock_min_mhz", ColumnKind.NUMBER, "its least"),
    ExportColumn("sm_clock_max_mhz", ColumnKind.NUMBER, "its most"),
    ExportColumn("true_clock_mhz", ColumnKind.NUMBER, "the mean SM clock as stamped on the GPU; NULL: nothing was stamped"),
    ExportColumn("mem_clock_mean_mhz", ColumnKind.NUMBER, "the memory clock"),
    ExportColumn("mem_clock_min_mhz", ColumnKind.NUMBER, "its least"),
    ExportColumn("mem_clock_max_mhz", ColumnKind.NUMBER, "its most"),
    ExportColumn("power_mean_w", ColumnKind.NUMBER, "the board's power"),
    ExportColumn("power_min_w", ColumnKind.NUMBER, "its least"),
    ExportColumn("power_max_w", ColumnKind.NUMBER, "its most"),
    ExportColumn("temperature_mean_c", ColumnKind.NUMBER, "the GPU's temperature"),
    ExportColumn("temperature_min_c", ColumnKind.NUMBER, "its least"),
    ExportColumn("temperature_max_c", ColumnKind.NUMBER, "its most"),
    ExportColumn("mem_temperature_max_c", ColumnKind.NUMBER, "the highest temperature of the memory"),
    ExportColumn("energy_j", ColumnKind.NUMBER, "the board's energy over the window, by the driver's counter"),
    ExportColumn(
        "busy_ratio", ColumnKind.NUMBER, "the share of the window in which the GPU worked, by its most trusted witness"
    ),
    ExportColumn("canary_clock_mhz", ColumnKind.NUMBER, "the true clock of the fixed work that bench() runs first"),
    ExportColumn("canary_copy_bytes_count", ColumnKind.NUMBER, "the bytes a second of its copy"),
    ExportColumn("times_count", ColumnKind.WHOLE, "the iterations that were timed; NULL: no times were given"),
    ExportColumn("time_median_s", ColumnKind.NUMBER, "the median of their times"),
    ExportColumn("time_low_s", ColumnKind.NUMBER, "the lower end of its 95 % interval within this window"),
    ExportColumn("time_high_s", ColumnKind.NUMBER, "the upper end"),
    ExportColumn("time_at_clock_s", ColumnKind.NUMBER, "the median at one clock"),
    ExportColumn("time_clock_mhz", ColumnKind.NUMBER, "that clock: the model's reference clock where the times reach it"),
)

# From annotate.evidence.Host, between the window's edges.
_HOST = (
    ExportColumn("host_kernel", ColumnKind.TEXT, "the kernel"),
    ExportColumn("host_container", ColumnKind.TEXT, "the kind of container the daemon ran in"),
    ExportColumn("host_cpu_allowed_count", ColumnKind.WHOLE, "processors the measured process may use"),
    ExportColumn(
        "host_span_s", ColumnKind.NUMBER, "the time between two readings; the amounts below are differences between them"
    ),
    ExportColumn("host_cpu_s", ColumnKind.NUMBER, "CPU time of the measured processes"),
    ExportColumn("host_run_wait_s", ColumnKind.NUMBER, "time they waited for a processor"),
    ExportColumn("host_threads_count", ColumnKind.WHOLE, "their threads"),
    ExportColumn("host_cgroup_throttled_s", ColumnKind.NUMBER, "time for which their group was throttled"),
    ExportColumn("host_steal_ratio", ColumnKind.NUMBER, "the share of processor time other machines took"),
    ExportColumn("host_cpu_busy_ratio", ColumnKind.NUMBER, "the whole machine's CPU utilisation"),
    ExportColumn(
        "host_cpu_pressure_ratio", ColumnKind.NUMBER, "the share of the span in which something waited for a processor"
    ),
    ExportColumn("host_numa_nodes", ColumnKind.TEXT, "NUMA nodes of the processors it may use, comma-separated"),
    ExportColumn("host_profilers", ColumnKind.TEXT, "profilers of its calls, comma-separated; empty: none found"),
    ExportColumn("host_sharing", ColumnKind.TEXT, "mechanisms that share its GPUs by design, comma-separated; empty: none"),
    ExportColumn("host_threads_born_count", ColumnKind.WHOLE, "threads started during the window"),
    ExportColumn("host_processes_born_count", ColumnKind.WHOLE, "processes started during the window"),
    ExportColumn("host_born_cpu_s", ColumnKind.NUMBER, "CPU time of these threads and processes"),
    ExportColumn("host_wall_step_s", ColumnKind.NUMBER, "the amount by which the wall clock was set meanwhile"),
    ExportColumn("host_watcher_cpu_s", ColumnKind.NUMBER, "CPU time of the daemon itself"),
)

COLUMNS: tuple[ExportColumn, ...] = (*_WINDOW, *_VERDICT, *_GPU, *_HOST, *PHYSICS)
