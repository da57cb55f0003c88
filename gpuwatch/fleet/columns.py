"""The columns of exported windows: a frozen contract, one row per window and GPU.

A release may add columns under the same schema number, because readers find columns by name.  Renaming, retyping or
removing a column needs a new number.  The last word of a quantity's name is the unit.  NULL means "not observed", never
zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SCHEMA = 1


class ColumnKind(StrEnum):
    """The kind of a column's values, with the name shown in docs/FLEET.md."""

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
    """One column.  ``always``: the column is never NULL.  ``inner``: the fields of a column of records."""

    name: str
    kind: ColumnKind
    meaning: str
    always: bool = False
    inner: tuple[ExportColumn, ...] = ()

    @property
    def unit(self) -> str | None:
        units = (unit for end, unit in _UNITS.items() if self.name.endswith(f"_{end}"))
        return next(units, None) if self.kind in (ColumnKind.WHOLE, ColumnKind.NUMBER) else None


_UNITS = {
    "copy_bytes_count": "bytes per second",  # the declared fact's name
    "s": "seconds", "ns": "nanoseconds", "mhz": "megahertz", "w": "watts", "j": "joules", "c": "degrees Celsius", "bytes": "bytes",
    "ratio": "ratio, 1 is 100 %", "count": "count", "mask": "bits",
}  # fmt: skip

_HAZARD = (
    ExportColumn("rule", ColumnKind.TEXT, "the rule that reported the finding", always=True),
    ExportColumn("severity", ColumnKind.TEXT, "reject, flag or note", always=True),
    ExportColumn("says", ColumnKind.TEXT, "the finding's text"),
    ExportColumn("remedy", ColumnKind.TEXT, "the remedy's text"),
    ExportColumn("basis", ColumnKind.TEXT, "origin of the evidence: telemetry, host, told, timings, baseline"),
    ExportColumn("accepted", ColumnKind.FLAG, "true if the window's policy accepts the finding", always=True),
    ExportColumn("effect_ratio", ColumnKind.NUMBER, "the change of the measured time, as a ratio; NULL: unknown"),
    ExportColumn("begin_ns", ColumnKind.WHOLE, "start of the finding on the monotonic clock of the boot"),
    ExportColumn("end_ns", ColumnKind.WHOLE, "end of the finding on the same clock"),
    ExportColumn("numbers", ColumnKind.NUMBERS, "the finding's numeric facts, by names that end in the unit", always=True),
    ExportColumn("words", ColumnKind.WORDS, "the finding's other facts", always=True),
)

_NUMBER = (
    ExportColumn("number", ColumnKind.TEXT, "throughput, mean, median, median_at_clock or ratio", always=True),
    ExportColumn("value", ColumnKind.NUMBER, "the number's value; NULL: no times were given"),
    ExportColumn("unit", ColumnKind.TEXT, "the value's unit"),
    ExportColumn("clock_mhz", ColumnKind.NUMBER, "the clock of median_at_clock; NULL for other numbers"),
    ExportColumn("bound_ratio", ColumnKind.NUMBER, "bound on the number's shift by disturbances; NULL: unknown"),
    ExportColumn("repeatability_ratio", ColumnKind.NUMBER, "difference between two undisturbed windows; NULL: unknown"),
    ExportColumn("other_cards_ratio", ColumnKind.NUMBER, "difference to another card at one clock; NULL: unknown"),
    ExportColumn("claimed", ColumnKind.FLAG, "true if the number decided the status", always=True),
    ExportColumn("leading", ColumnKind.FLAG, "true if the number is the first in the verdict's first line", always=True),
)

_WINDOW = (
    ExportColumn("boot_id", ColumnKind.TEXT, "the boot of the machine; with run and gpu_uuid the key of a row", always=True),
    ExportColumn("run", ColumnKind.TEXT, "the window's id, for `gpuwatch show`", always=True),
    ExportColumn("gpu_uuid", ColumnKind.TEXT, "the GPU; NULL: the window covered no GPU"),
    ExportColumn("hostname", ColumnKind.TEXT, "the machine: --host, else the window's host name, else its boot", always=True),
    ExportColumn("begun_utc", ColumnKind.MOMENT, "start of the window as wall time", always=True),
    ExportColumn("begin_ns", ColumnKind.WHOLE, "start of the window on the monotonic clock of the boot", always=True),
    ExportColumn("end_ns", ColumnKind.WHOLE, "end of the window on the same clock"),
    ExportColumn("length_s", ColumnKind.NUMBER, "length of the window"),
    ExportColumn("label", ColumnKind.TEXT, "the window's label, chosen by its author"),
    ExportColumn("claim", ColumnKind.TEXT, "the window's claim: sustained, burst, fixed-clock", always=True),
    ExportColumn("status", ColumnKind.TEXT, "the verdict on this GPU: valid, unproven, flagged, rejected", always=True),
    ExportColumn("window_status", ColumnKind.TEXT, "the worst verdict on the window's GPUs", always=True),
    ExportColumn("why", ColumnKind.TEXT, "missing evidence or proofs, also with a flagged or rejected verdict; NULL if none"),
    ExportColumn("gpus_count", ColumnKind.WHOLE, "the number of GPUs in the window", always=True),
    ExportColumn(
        "simulated", ColumnKind.FLAG, "true if the GPU is simulated: leave such rows out of every statistic", always=True
    ),
    ExportColumn("source", ColumnKind.TEXT, "the source of the readings", always=True),
    ExportColumn("pid", ColumnKind.WHOLE, "the process that opened the window", always=True),
    ExportColumn("uid", ColumnKind.WHOLE, "the user id of this process", always=True),
    ExportColumn("user", ColumnKind.TEXT, "the user's name"),
    ExportColumn("process", ColumnKind.TEXT, "the process's name; never the command line, which may contain secrets"),
    ExportColumn("parent", ColumnKind.TEXT, "the id of the enclosing window"),
    ExportColumn("judge_version", ColumnKind.TEXT, "the version of the judge"),
)

_VERDICT = (
    ExportColumn("found", ColumnKind.TEXTS, "rules that reported more than a note, without accepted findings, worst first; NULL: not judged"),
    ExportColumn("clear", ColumnKind.TEXTS, "rules that found nothing; NULL: not judged"),
    ExportColumn("hazards", ColumnKind.RECORDS, "all findings, including notes; NULL: not judged", inner=_HAZARD),
    ExportColumn("unobserved", ColumnKind.RECORDS, "rules without enough evidence; NULL: not judged", inner=(
        ExportColumn("rule", ColumnKind.TEXT, "the rule", always=True),
        ExportColumn("why", ColumnKind.TEXT, "the missing evidence"),
        ExportColumn("required", ColumnKind.FLAG, "true if the claim requires the rule", always=True),
    )),
    ExportColumn("labels", ColumnKind.TEXTS, "labels to quote with the number; NULL for verdicts without a budget"),
    ExportColumn("tolerance_ratio", ColumnKind.NUMBER, "the bound above which the judge flags; NULL for verdicts without a budget"),
    ExportColumn("precision_ratio", ColumnKind.NUMBER, "the requested repeatability; NULL: none"),
    ExportColumn("numbers", ColumnKind.RECORDS, "the verdict's numbers; NULL for verdicts without a budget", inner=_NUMBER),
    ExportColumn("proofs", ColumnKind.RECORDS, "the proofs that a valid window needs; NULL for verdicts without a budget", inner=(
        ExportColumn("proof", ColumnKind.TEXT, "one of the five proofs", always=True),
        ExportColumn("state", ColumnKind.TEXT, "shown, broken, unproven, not-asked", always=True),
        ExportColumn("says", ColumnKind.TEXT, "the proof's text"),
        ExportColumn("missing", ColumnKind.TEXTS, "the missing evidence of an unproven proof"),
    )),
    ExportColumn("accepted", ColumnKind.TEXTS, "the rules that the window's policy accepts", always=True),
    ExportColumn("limits", ColumnKind.RECORDS, "the limits that the window's policy overrides", always=True, inner=(
        ExportColumn("rule", ColumnKind.TEXT, "the rule", always=True),
        ExportColumn("limit", ColumnKind.TEXT, "the name of the limit", always=True),
        ExportColumn("value", ColumnKind.NUMBER, "the policy's value", always=True),
    )),
    ExportColumn("told_numbers", ColumnKind.NUMBERS, "numeric facts declared by the measured process, by names that end in the unit", always=True),
    ExportColumn("told_words", ColumnKind.WORDS, "other facts declared by the measured process, such as torch_version", always=True),
)  # fmt: skip

# From annotate.evidence.Device, for the GPU at the start of the window.
_GPU = (
    ExportColumn("gpu_name", ColumnKind.TEXT, "the GPU's model"),
    ExportColumn("gpu_pci_bus_id", ColumnKind.TEXT, "the PCI address"),
    ExportColumn("gpu_driver_version", ColumnKind.TEXT, "the driver's version"),
    ExportColumn("gpu_nvml_version", ColumnKind.TEXT, "the version of the driver's library"),
    ExportColumn("gpu_vbios_version", ColumnKind.TEXT, "the firmware's version"),
    ExportColumn("gpu_architecture", ColumnKind.TEXT, "the architecture"),
    ExportColumn("gpu_compute_capability", ColumnKind.TEXT, "the compute capability"),
    ExportColumn("gpu_parent_uuid", ColumnKind.TEXT, "the board of a MIG instance; NULL for other GPUs"),
    ExportColumn("gpu_sm_clock_max_mhz", ColumnKind.WHOLE, "the highest SM clock"),
    ExportColumn("gpu_mem_clock_max_mhz", ColumnKind.WHOLE, "the highest memory clock"),
    ExportColumn("gpu_power_limit_w", ColumnKind.NUMBER, "the current power limit"),
    ExportColumn("gpu_power_limit_default_w", ColumnKind.NUMBER, "the default power limit"),
    ExportColumn("gpu_power_limit_min_w", ColumnKind.NUMBER, "the lowest permitted power limit"),
    ExportColumn("gpu_power_limit_max_w", ColumnKind.NUMBER, "the highest permitted power limit"),
    ExportColumn("gpu_temperature_slowdown_c", ColumnKind.WHOLE, "the temperature at which the GPU slows down"),
    ExportColumn("gpu_temperature_shutdown_c", ColumnKind.WHOLE, "the temperature at which the GPU shuts down"),
    ExportColumn("gpu_memory_total_bytes", ColumnKind.WHOLE, "the total memory"),
    ExportColumn("gpu_memory_reserved_bytes", ColumnKind.WHOLE, "the memory reserved by driver and firmware"),
    ExportColumn("gpu_pcie_generation_max_count", ColumnKind.WHOLE, "the highest PCIe generation"),
    ExportColumn("gpu_pcie_width_max_count", ColumnKind.WHOLE, "the most PCIe lanes"),
    ExportColumn("gpu_numa_node_count", ColumnKind.WHOLE, "the NUMA node"),
    ExportColumn("gpu_cuda_cores_count", ColumnKind.WHOLE, "the number of CUDA cores"),
    ExportColumn("gpu_memory_bus_bits_count", ColumnKind.WHOLE, "the width of the memory bus"),
    ExportColumn("gpu_persistence_mode", ColumnKind.FLAG, "true if the driver stays loaded"),
    ExportColumn("gpu_ecc_mode", ColumnKind.FLAG, "true if ECC is on"),
    ExportColumn("gpu_mig_mode", ColumnKind.FLAG, "true if MIG mode is on"),
    ExportColumn("gpu_compute_mode", ColumnKind.TEXT, "the compute mode"),
    ExportColumn("gpu_virtualization", ColumnKind.TEXT, "the virtualization mode"),
    ExportColumn("gpu_supported_reasons_mask", ColumnKind.WHOLE, "the clock event reasons that the GPU can report"),
    ExportColumn("gpu_idle_power_w", ColumnKind.NUMBER, "the lowest power observed with a context and no work"),
)

# Over the window, from the stored evidence (NULL without it); the tags are the run's, the median times are the verdict's.
PHYSICS = (
    ExportColumn("tags", ColumnKind.WORDS, "the window's tags: from the user, and from the job, pod or CI run"),
    ExportColumn("sm_clock_mean_mhz", ColumnKind.NUMBER, "the mean SM clock that the driver reported while the GPU worked"),
    ExportColumn("sm_clock_min_mhz", ColumnKind.NUMBER, "the lowest such SM clock"),
    ExportColumn("sm_clock_max_mhz", ColumnKind.NUMBER, "the highest such SM clock"),
    ExportColumn("true_clock_mhz", ColumnKind.NUMBER, "the mean SM clock from stamps on the GPU; NULL: no stamps"),
    ExportColumn("mem_clock_mean_mhz", ColumnKind.NUMBER, "the mean memory clock"),
    ExportColumn("mem_clock_min_mhz", ColumnKind.NUMBER, "the lowest memory clock"),
    ExportColumn("mem_clock_max_mhz", ColumnKind.NUMBER, "the highest memory clock"),
    ExportColumn("power_mean_w", ColumnKind.NUMBER, "the mean power of the board"),
    ExportColumn("power_min_w", ColumnKind.NUMBER, "the lowest power of the board"),
    ExportColumn("power_max_w", ColumnKind.NUMBER, "the highest power of the board"),
    ExportColumn("temperature_mean_c", ColumnKind.NUMBER, "the mean temperature of the GPU"),
    ExportColumn("temperature_min_c", ColumnKind.NUMBER, "the lowest temperature of the GPU"),
    ExportColumn("temperature_max_c", ColumnKind.NUMBER, "the highest temperature of the GPU"),
    ExportColumn("mem_temperature_max_c", ColumnKind.NUMBER, "the highest temperature of the memory"),
    ExportColumn("energy_j", ColumnKind.NUMBER, "the board's energy over the window, from the driver's counter"),
    ExportColumn(
        "busy_ratio", ColumnKind.NUMBER, "the share of the window in which the GPU worked, from the most trusted witness"
    ),
    ExportColumn("canary_clock_mhz", ColumnKind.NUMBER, "the true clock of the canary, the fixed work that bench() runs first"),
    ExportColumn("canary_copy_bytes_count", ColumnKind.NUMBER, "the canary's copy bandwidth in bytes per second"),
    ExportColumn("times_count", ColumnKind.WHOLE, "the number of timed iterations; NULL: no times were given"),
    ExportColumn("time_median_s", ColumnKind.NUMBER, "the median time of an iteration"),
    ExportColumn("time_low_s", ColumnKind.NUMBER, "the lower end of the median's 95 % interval within this window"),
    ExportColumn("time_high_s", ColumnKind.NUMBER, "the upper end of the median's 95 % interval within this window"),
    ExportColumn("time_at_clock_s", ColumnKind.NUMBER, "the median time converted to one clock"),
    ExportColumn(
        "time_clock_mhz", ColumnKind.NUMBER, "the clock of time_at_clock_s: the model's reference clock if the times permit"
    ),
)

# From annotate.evidence.Host, between the window's edges.
_HOST = (
    ExportColumn("host_kernel", ColumnKind.TEXT, "the kernel"),
    ExportColumn("host_container", ColumnKind.TEXT, "the kind of the daemon's container"),
    ExportColumn("host_cpu_allowed_count", ColumnKind.WHOLE, "CPUs that the measured process may use"),
    ExportColumn(
        "host_span_s", ColumnKind.NUMBER, "the time between two readings; the amounts below are differences between them"
    ),
    ExportColumn("host_cpu_s", ColumnKind.NUMBER, "CPU time of the measured processes"),
    ExportColumn("host_run_wait_s", ColumnKind.NUMBER, "time for which the measured processes waited for a CPU"),
    ExportColumn("host_threads_count", ColumnKind.WHOLE, "threads of the measured processes"),
    ExportColumn("host_cgroup_throttled_s", ColumnKind.NUMBER, "time for which the measured processes' cgroup was throttled"),
    ExportColumn("host_steal_ratio", ColumnKind.NUMBER, "the share of CPU time used by other virtual machines (steal)"),
    ExportColumn("host_cpu_busy_ratio", ColumnKind.NUMBER, "the whole machine's CPU utilisation"),
    ExportColumn("host_cpu_pressure_ratio", ColumnKind.NUMBER, "the share of the span in which some task waited for a CPU"),
    ExportColumn(
        "host_numa_nodes", ColumnKind.TEXT, "NUMA nodes of the CPUs that the measured process may use, comma-separated"
    ),
    ExportColumn("host_profilers", ColumnKind.TEXT, "profilers of the measured process, comma-separated; empty: none found"),
    ExportColumn("host_sharing", ColumnKind.TEXT, "mechanisms that share the GPUs by design, comma-separated; empty: none"),
    ExportColumn("host_threads_born_count", ColumnKind.WHOLE, "threads started during the window"),
    ExportColumn("host_processes_born_count", ColumnKind.WHOLE, "processes started during the window"),
    ExportColumn("host_born_cpu_s", ColumnKind.NUMBER, "CPU time of these threads and processes"),
    ExportColumn("host_wall_step_s", ColumnKind.NUMBER, "the amount by which the wall clock was set during the window"),
    ExportColumn("host_watcher_cpu_s", ColumnKind.NUMBER, "CPU time of the daemon"),
)

COLUMNS: tuple[ExportColumn, ...] = (*_WINDOW, *_VERDICT, *_GPU, *_HOST, *PHYSICS)
