"""Conditions of two compared windows and their differences; the baseline is always ``a``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from annotate.derived import sm_clock
from annotate.derived.sm_clock import measured
from annotate.evidence import Column, Device, Evidence, Fact
from annotate.evidence.asked import kept
from annotate.stats.intervals import batch_interval
from annotate.stats.robust import block_means, effective_count
from annotate.times.clock_sensitivity import Sensitivity, sensitivity
from annotate.times.durations import inside

# Properties of the chip and its partition: a difference changes a kernel's time even at one clock.
KIND: Mapping[str, str] = {
    "name": "model",
    "compute_capability": "compute capability",
    "cuda_cores_count": "CUDA cores",
    "mig_mode": "MIG mode",
}
# The rule hardware-mismatch rejects for a difference in ``MODEL``, and only flags for one in ``BOARD``.
MODEL: Mapping[str, str] = {
    "name": "model",
    "power_limit_w": "power limit",
    "memory_total_bytes": "memory",
    "compute_capability": "compute capability",
    "cuda_cores_count": "CUDA cores",
    "mig_mode": "MIG mode",
    "virtualization": "virtualization",
}
BOARD: Mapping[str, str] = {
    "uuid": "GPU",
    "vbios_version": "VBIOS",
    "sm_clock_max_mhz": "maximum SM clock",
    "mem_clock_max_mhz": "maximum memory clock",
    "pcie_generation_max_count": "PCIe generation",
    "pcie_width_max_count": "PCIe lanes",
    "ecc_mode": "ECC",
    "persistence_mode": "persistence mode",
}
# Declared facts that change the speed: versions and flags.
_VERSIONS: Mapping[str, str] = {
    "torch_version": "torch",
    "cuda_version": "CUDA",
    "cudnn_version": "cuDNN",
    "matmul_precision": "float32 precision",
    "cudnn_tf32": "cuDNN's TF32",
    "cudnn_benchmark": "cuDNN's benchmark mode",
    "deterministic": "deterministic algorithms",
    "launch_blocking": "CUDA_LAUNCH_BLOCKING",
}
# Declared facts that change the measured quantity on any machine: the timer and the inputs.
_MEASURED: Mapping[str, str] = {
    "timer": "timer",
    "cache": "L2 cache",
    "dtype": "data type",
    "input_dtype": "data type of inputs",
    "input_bytes": "size of inputs",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between baseline ``a`` and window ``b``.  ``patch``: only the last number of a version differs."""

    name: str
    a: str
    b: str
    patch: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.a} -> {self.b}"


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of baseline ``a`` and window ``b``; ``true`` if both come from stamps.

    ``error_ratio`` is half of the 95 % interval of the clocks' ratio; 0 if unknown.
    """

    a_mhz: float
    b_mhz: float
    true: bool
    error_ratio: float = 0.0

    @property
    def apart_ratio(self) -> float:
        """Return the relative difference of the clocks."""
        return abs(self.b_mhz / self.a_mhz - 1.0)


def differences(a: Device, b: Device, names: Mapping[str, str], *, tolerance: float) -> list[Difference]:
    """Return the properties known for both GPUs that differ; numbers must differ by more than the tolerance."""
    out = []
    for name, title in names.items():
        before, after = getattr(a, name), getattr(b, name)
        if before is None or after is None or before == after:
            continue
        if isinstance(before, float | int) and not isinstance(before, bool) and abs(before - after) <= tolerance:
            continue
        out.append(Difference(title, _value(name, before), _value(name, after)))
    # A MIG instance has its own identity and is not comparable with a whole board.
    if "name" in names and (a.parent_uuid is None) != (b.parent_uuid is None):
        out.append(Difference("partition", _partition(a), _partition(b)))
    return out


def software(a: Evidence, b: Evidence) -> tuple[int, list[Difference]]:
    """Return the count of versions and settings known for both windows, and the differing ones."""
    known, out = 0, []
    drivers = [each.device.driver_version if each.device else None for each in (a, b)]
    if drivers[0] is not None and drivers[1] is not None:
        known += 1
        if drivers[0] != drivers[1]:
            patch = drivers[0].rpartition(".")[0] == drivers[1].rpartition(".")[0]
            out.append(Difference("driver", drivers[0], drivers[1], patch=patch))
    for titles in (_VERSIONS, _MEASURED):
        count, differing = _declared(a, b, titles)
        known += count
        out += differing
    environments = [_environment(each.declared.get("environment")) for each in (a, b)]
    if environments[0] is not None and environments[1] is not None:
        known += 1
        for name in sorted(environments[0].keys() | environments[1].keys()):
            values = [environment.get(name, "unset") for environment in environments if environment is not None]
            if values[0] != values[1]:
                out.append(Difference(name, _short(values[0]), _short(values[1])))
    return known, out


def measured_otherwise(a: Evidence, b: Evidence) -> list[Difference]:
    """Return the differences in timer and inputs: with any, the windows measured different quantities."""
    return _declared(a, b, _MEASURED)[1]


def _declared(a: Evidence, b: Evidence, titles: Mapping[str, str]) -> tuple[int, list[Difference]]:
    """Return the count of these facts that both windows declared, and the differing ones."""
    known, out = 0, []
    for name, title in titles.items():
        before, after = _sensible(a.declared.get(name)), _sensible(b.declared.get(name))
        if before is None or after is None:
            continue
        known += 1
        if str(before) != str(after):
            out.append(Difference(title, _value(name, before), _value(name, after)))
    return known, out


def listed(found: Sequence[Difference], most: int = 2) -> str:
    """Return the first few differences as text, with the count of the others."""
    rest = len(found) - most
    return ", ".join(str(each) for each in found[:most]) + (f" and {rest} more" if rest > 0 else "")


def driver_reloaded(a: Evidence, b: Evidence) -> bool | None:
    """Return whether the energy counter, which only a driver reload resets, fell from the earlier to the later window.

    Return None if the counter was not read in both windows, or for different or unknown GPUs.
    """
    if a.device is None or b.device is None or a.device.uuid != b.device.uuid:
        return None
    earlier, later = sorted((a, b), key=lambda each: each.window.begin_ns)
    before, after = (each.trace.column("energy_j").observed.values for each in (earlier, later))
    return bool(after[-1] < before[0]) if len(before) and len(after) else None


def clocks_mhz(a: Evidence, b: Evidence) -> Clocks | None:
    """Return both mean true clocks, else both medians of the driver's gauge at work, or None if one is unknown."""
    true = [_true_mhz(each) for each in (a, b)]
    if true[0] is not None and true[1] is not None:
        error_ratio = float(np.hypot(_clock_error_ratio(a), _clock_error_ratio(b)))
        return Clocks(true[0], true[1], true=True, error_ratio=error_ratio)
    gauge = [sm_clock.median_mhz(sm_clock.working(each)) for each in (a, b)]
    if gauge[0] and gauge[1]:
        return Clocks(gauge[0], gauge[1], true=False)
    return None


def beta(a: Evidence, b: Evidence) -> float:
    """Return the exponent β of time against clock, a mean over the windows with a fit; 1 without a fit."""
    found = [sensitivity(each.timings) for each in (a, b) if each.timings is not None and each.observes("timings.sm_clock_mhz")]
    betas = [each.beta for each in found if isinstance(each, Sensitivity)]
    return float(np.clip(np.mean(betas), 0.0, 1.2)) if betas else 1.0


def change_ratio(a: Evidence, b: Evidence) -> float | None:
    """Return the relative change of the median time from ``a`` to ``b``, or None if either has no times."""
    before, after = inside(a).took_s, inside(b).took_s
    return float(np.median(after) / np.median(before) - 1.0) if len(before) and len(after) else None


@kept
def noise_ratio(evidence: Evidence) -> float | None:
    """Return the relative standard error of the centre of the window's times; None without an interval."""
    times = inside(evidence)
    interval = batch_interval(times.at_ns, times.took_s)
    return None if interval is None or interval.centre <= 0 else (interval.high - interval.low) / 3.92 / interval.centre


def overlap_ratio(a: Evidence, b: Evidence) -> float:
    """Return the share of the shorter window in which both ran; 0 across boots, whose clocks are not comparable."""
    if a.host.boot_id != b.host.boot_id:
        return 0.0
    both_ns = min(a.window.end_ns, b.window.end_ns) - max(a.window.begin_ns, b.window.begin_ns)
    return max(0, both_ns) / max(1, min(a.window.length_ns, b.window.length_ns))


@kept
def capped_throughout(evidence: Evidence) -> bool:
    """Return whether the power cap held for at least 95 % of the window, within the counter's error."""
    capped = evidence.increase("power_violation_ns") or evidence.increase("power_cap_ns")
    return capped is not None and capped.span_ns > 0 and capped.ratio + capped.error_ratio >= 0.95


def _true_mhz(evidence: Evidence) -> float | None:
    true = measured(evidence)
    return true.clock_mhz if true is not None and true.iterations else None


def _clock_error_ratio(evidence: Evidence) -> float:
    """Return half of the 95 % interval of a window's mean true clock, as a ratio; 0 if it is not known.

    The interval allows for the correlation of consecutive blocks.
    """
    from scipy.special import stdtrit

    times = inside(evidence)
    clock = times.sm_clock_mhz
    if clock is None:
        return 0.0
    # A block is 100 ms, a tenth of the power controller's cycle.  Fewer than eight blocks do not show the drift of the clock.
    blocks = block_means(Column(times.at_ns, clock).observed, 100_000_000).values
    if len(blocks) < 8:
        return 0.0
    worth = max(3.0, effective_count(blocks))
    return float(stdtrit(worth - 1.0, 0.975) * blocks.std(ddof=1) / np.sqrt(worth) / blocks.mean())


def _partition(device: Device) -> str:
    return "whole GPU" if device.parent_uuid is None else "MIG instance"


def _environment(text: object) -> Mapping[str, str] | None:
    if not isinstance(text, str):
        return None
    pairs = (entry.partition("=") for entry in text.split(";") if entry.strip())
    return {name.strip(): value for name, _, value in pairs}


def _value(name: str, value: Any) -> str:  # Any: a value of a record or a declared fact
    if isinstance(value, bool):
        return "on" if value else "off"
    if name == "memory_total_bytes":
        return f"{value / 1e9:.0f} GB"
    if name.endswith("_w"):
        return f"{value:.0f} W"
    if name.endswith("_mhz"):
        return f"{value} MHz"
    return _short(str(value).removeprefix("NVIDIA "))


def _sensible(value: Fact) -> Fact:
    """Return a declared setting, or None for a number of 1e18 or more, which is not a valid version, count or size."""
    return value if isinstance(value, str | bool | None) or abs(value) < 1e18 else None


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= 40 else plain[:39] + "…"
