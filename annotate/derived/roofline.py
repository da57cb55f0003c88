"""Peak rates of a GPU, and the least time for the declared work of one call.

The arithmetic peak follows from SMs and SM clock, the traffic peak from memory clock and bus.

Sources of the table: NVIDIA's architecture white papers (Volta 2017, Turing 2018, A100 2020, GA102 2021, Ada 2023, H100 2022,
Blackwell and RTX Blackwell 2025).  Each peak is divided by the part's SMs and boost clock.  Cores per SM come from the CUDA
C++ programming guide.  Check: H200, 132 SMs x 4096 x 1830 MHz = 989 TFLOP/s bf16, as in its data sheet.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from annotate.amount_words import amount_text
from annotate.declared import amount, text
from annotate.evidence import Device, Evidence
from annotate.evidence.asked import kept

# The data type that torch may use for a float32 product, by torch.get_float32_matmul_precision().
_FLOAT32: dict[str | None, str] = {"highest": "fp32", "high": "tf32", "medium": "bf16"}


@dataclass(frozen=True, slots=True)
class _Sm:
    """One SM: CUDA cores, dense operations per clock (a multiply-add is two), and the generation's largest L2."""

    cores_count: int
    operations: Mapping[str, int]
    l2_most_bytes: int


# The best part of each generation, by compute capability.  GeForce parts run products accumulated in fp32 at half the rate,
# and never reach these peaks.
_SMS: Mapping[str, _Sm] = {
    # Volta
    "7.0": _Sm(64, {"fp16": 1024, "bf16": 128, "fp32": 128, "fp64": 64, "int8": 512}, 6 << 20),
    # Turing
    "7.5": _Sm(64, {"fp16": 1024, "bf16": 128, "fp32": 128, "fp64": 4, "int8": 2048, "int4": 4096}, 6 << 20),
    # A100
    "8.0": _Sm(64, {"fp16": 2048, "bf16": 2048, "tf32": 1024, "fp32": 128, "fp64": 128, "int8": 4096, "int4": 8192}, 48 << 20),
    # Ampere
    "8.6": _Sm(128, {"fp16": 1024, "bf16": 1024, "tf32": 512, "fp32": 256, "fp64": 4, "int8": 2048, "int4": 4096}, 6 << 20),
    # Ada
    "8.9": _Sm(
        128,
        {"fp16": 1024, "bf16": 1024, "tf32": 512, "fp32": 256, "fp64": 4, "fp8": 2048, "int8": 2048, "int4": 4096},
        96 << 20,
    ),
    # Hopper
    "9.0": _Sm(128, {"fp16": 4096, "bf16": 4096, "tf32": 2048, "fp32": 256, "fp64": 256, "fp8": 8192, "int8": 8192}, 60 << 20),
    # Blackwell
    "10.0": _Sm(
        128,
        {"fp16": 8192, "bf16": 8192, "tf32": 4096, "fp32": 256, "fp64": 128, "fp8": 16384, "int8": 16384, "fp4": 32768},
        128 << 20,
    ),
    # RTX Blackwell
    "12.0": _Sm(
        128,
        {"fp16": 1024, "bf16": 1024, "tf32": 512, "fp32": 256, "fp64": 4, "fp8": 2048, "int8": 2048, "fp4": 4096},
        128 << 20,
    ),
}

_NAMES: Mapping[str, str] = {
    "half": "fp16", "float16": "fp16", "fp16": "fp16", "f16": "fp16",
    "bfloat16": "bf16", "bf16": "bf16",
    "tf32": "tf32", "tensorfloat32": "tf32",
    "float": "fp32", "float32": "fp32", "fp32": "fp32", "f32": "fp32",
    "double": "fp64", "float64": "fp64", "fp64": "fp64", "f64": "fp64",
    "fp8": "fp8", "e4m3": "fp8", "e5m2": "fp8",
    "int8": "int8", "uint8": "int8", "i8": "int8", "int4": "int4", "uint4": "int4",
    "fp4": "fp4", "nvfp4": "fp4", "mxfp4": "fp4", "e2m1": "fp4",
}  # fmt: skip


def arithmetic(dtype: str) -> str | None:
    """Return the short name of a data type, given as in torch, numpy or a data sheet; None for another."""
    word = dtype.strip().lower().removeprefix("torch.").removeprefix("numpy.")
    if word.startswith("float8"):
        return "fp8"
    if word.startswith("float4"):
        return "fp4"
    return _NAMES.get(word)


def sm_count(device: Device) -> int | None:
    """Return the number of SMs, or None for a generation not in the table or if the driver reports no cores."""
    sm = _SMS.get(device.compute_capability or "")
    return device.cuda_cores_count // sm.cores_count if sm and device.cuda_cores_count else None


def cores_count(compute_capability: str, sms_count: int) -> int | None:
    """Return the CUDA cores of this number of SMs, or None for a generation not in the table."""
    sm = _SMS.get(compute_capability)
    return sms_count * sm.cores_count if sm else None


def peak_flops(device: Device, dtype: str, clock_mhz: float) -> float | None:
    """Return the peak operations per second in a data type at an SM clock, without sparsity, or None if not known."""
    sm, count = _SMS.get(device.compute_capability or ""), sm_count(device)
    operations = sm.operations.get(arithmetic(dtype) or "") if sm else None
    return count * operations * clock_mhz * 1e6 if operations and count and clock_mhz > 0 else None


def fastest(device: Device) -> str | None:
    """Return the data type with the highest peak, or None if not known."""
    sm = _SMS.get(device.compute_capability or "")
    return max(sm.operations, key=lambda name: sm.operations[name]) if sm else None


def peak_bytes_a_second(device: Device) -> float | None:
    """Return the peak bytes per second of device memory at its highest clock, or None if not known."""
    if not device.mem_clock_max_mhz or not device.memory_bus_bits_count:
        return None
    # HBM and GDDR move two bits per pin and cycle of NVML's clock, as in the bandwidth section of the CUDA Best Practices
    # Guide.  H200: 3201 MHz x 6144 bit = 4.92 TB/s.  L4: 6251 MHz x 192 bit = 300 GB/s.
    return device.mem_clock_max_mhz * 1e6 * device.memory_bus_bits_count * 2 / 8


def most_l2_bytes(device: Device) -> int | None:
    """Return the largest L2 cache of the generation, an upper limit if CUDA reported none, or None if not known."""
    sm = _SMS.get(device.compute_capability or "")
    return sm.l2_most_bytes if sm else None


@dataclass(frozen=True, slots=True)
class LeastTime:
    """One limit of the GPU: the least time of a call, the declared amount of work, and the peak rate.

    ``peak_a_second`` and ``least_s`` are at the same clock.
    """

    least_s: float
    what: str
    unit: str
    amount: float
    peak_a_second: float

    def rate(self, call_s: float) -> str:
        """Return the rate, in words, of calls that take this time."""
        return amount_text(self.amount / call_s, self.unit)

    @property
    def peak(self) -> str:
        return f"{amount_text(self.peak_a_second, self.unit)} {self.what}"


def arithmetic_bound(evidence: Evidence, clock_mhz: float | None) -> LeastTime | None:
    """Return the least time for the declared operations at this SM clock, or None if unknown.

    Without a declared data type, the fastest one counts.
    """
    device, flops = evidence.device, amount(evidence.declared, "call_flops_count")
    if device is None or not flops or not clock_mhz:
        return None
    dtype = _done_in(evidence, device)
    peak = peak_flops(device, dtype, clock_mhz) if dtype else None
    if dtype is None or peak is None:
        return None
    return LeastTime(flops / peak, f"in {dtype} at {clock_mhz:.0f} MHz", "FLOP/s", flops, peak)


@kept
def traffic_bound(evidence: Evidence) -> LeastTime | None:
    """Return the least time for the declared bytes beyond L2, at the highest memory clock, or None if unknown."""
    device, call_bytes = evidence.device, amount(evidence.declared, "call_bytes")
    peak = peak_bytes_a_second(device) if device else None
    l2_bytes = amount(evidence.declared, "l2_bytes") or (most_l2_bytes(device) if device else None)
    if not call_bytes or peak is None or l2_bytes is None:
        return None
    touched_bytes = amount(evidence.declared, "working_set_bytes") or call_bytes
    rest_bytes = call_bytes * max(0.0, 1.0 - l2_bytes / touched_bytes)
    return LeastTime(rest_bytes / peak, "of its memory", "B/s", call_bytes, peak)


def _done_in(evidence: Evidence, device: Device) -> str | None:
    """Return the fastest data type that the work may use, if known; float32 counts as tf32 or bf16 if torch may round it."""
    declared = text(evidence.declared, "dtype")
    if declared is None:
        return fastest(device)
    dtype = arithmetic(declared)
    if dtype != "fp32":
        return dtype
    precision = text(evidence.declared, "matmul_precision")
    rounded = "tf32" if evidence.declared.get("cudnn_tf32") is not False or precision is None else "fp32"
    candidates = {"fp32", rounded, _FLOAT32.get(precision, "fp32")}
    return max(candidates, key=lambda name: peak_flops(device, name, 1.0) or 0.0)
