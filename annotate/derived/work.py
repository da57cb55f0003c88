"""The declared work of one call, and the least time a GPU needs for it."""

from __future__ import annotations

from dataclasses import dataclass

from annotate.declared import amount, text
from annotate.derived.roofline import arithmetic, fastest, most_l2_bytes, peak_bytes_a_second, peak_flops
from annotate.evidence import Device, Evidence

# What torch may do a float32 product in, by torch.get_float32_matmul_precision().
_FLOAT32: dict[str | None, str] = {"highest": "fp32", "high": "tf32", "medium": "bf16"}


@dataclass(frozen=True, slots=True)
class LeastTime:
    """One limit of the GPU: the least time of a call, and in words what is claimed of it and what it can do.

    ``peak_a_second`` and ``least_s`` are at the same clock.
    """

    least_s: float
    what: str
    unit: str
    amount: float
    peak_a_second: float

    def rate(self, call_s: float) -> str:
        """Return what calls of such a time would amount to."""
        return readable_rate(self.amount / call_s, self.unit)

    @property
    def peak(self) -> str:
        return f"{readable_rate(self.peak_a_second, self.unit)} {self.what}"


def arithmetic_bound(evidence: Evidence, clock_mhz: float | None) -> LeastTime | None:
    """Bound the time by the declared operations and the SM clock, in the fastest type if none was declared; None if unknown."""
    device, flops = evidence.device, amount(evidence.declared, "call_flops_count")
    if device is None or not flops or not clock_mhz:
        return None
    dtype = _done_in(evidence, device)
    peak = peak_flops(device, dtype, clock_mhz) if dtype else None
    if dtype is None or peak is None:
        return None
    return LeastTime(flops / peak, f"in {dtype} at {clock_mhz:.0f} MHz", "FLOP/s", flops, peak)


def traffic_bound(evidence: Evidence) -> LeastTime | None:
    """Bound the time by the declared bytes, less what the L2 cache can hold, and the memory's highest clock."""
    device, call_bytes = evidence.device, amount(evidence.declared, "call_bytes")
    peak = peak_bytes_a_second(device) if device else None
    l2_bytes = amount(evidence.declared, "l2_bytes") or (most_l2_bytes(device) if device else None)
    if not call_bytes or peak is None or l2_bytes is None:
        return None
    touched_bytes = amount(evidence.declared, "working_set_bytes") or call_bytes
    rest_bytes = call_bytes * max(0.0, 1.0 - l2_bytes / touched_bytes)
    return LeastTime(rest_bytes / peak, "of its memory", "B/s", call_bytes, peak)


def readable_rate(rate: float, unit: str) -> str:
    """An amount, of a second or of a call, as people write it."""
    for scale, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if rate >= scale:
            return f"{rate / scale:.3g} {prefix}{unit}"
    return f"{rate:.3g} {unit}"


def _done_in(evidence: Evidence, device: Device) -> str | None:
    """The short name of the type the arithmetic may be done in: float32 is faster than it says where torch may round it."""
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
