"""Tests of a GPU's peaks against its data sheet, and of the names of data types."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate.derived.roofline import arithmetic, fastest, most_l2_bytes, peak_bytes_a_second, peak_flops, sm_count
from annotate.evidence import Device


def gpu(capability: str | None, cores: int | None, clock: int | None = None, bits: int | None = None) -> Device:
    return Device(
        uuid="GPU-1",
        name="some GPU",
        compute_capability=capability,
        cuda_cores_count=cores,
        mem_clock_max_mhz=clock,
        memory_bus_bits_count=bits,
    )


V100 = gpu("7.0", 5120, 877, 4096)
T4 = gpu("7.5", 2560, 5001, 256)
A100 = gpu("8.0", 6912, 1215, 5120)
A40 = gpu("8.6", 10752, 7251, 384)
L4 = gpu("8.9", 7424, 6251, 192)
L40S = gpu("8.9", 18176, 9001, 384)
H100 = gpu("9.0", 16896, 2619, 5120)
H200 = gpu("9.0", 16896, 3201, 6144)
B200 = gpu("10.0", 18944, 3996, 8192)
RTX_5090 = gpu("12.0", 21760, 14001, 512)

# Teraflops from NVIDIA's white papers and data sheets, without sparsity, at the stated boost clock.
SHEETS = [
    (V100, 1530, "fp16", 125), (V100, 1530, "fp32", 15.7), (V100, 1530, "fp64", 7.8),
    (T4, 1590, "fp16", 65), (T4, 1590, "int8", 130), (T4, 1590, "fp32", 8.1),
    (A100, 1410, "bf16", 312), (A100, 1410, "tf32", 156), (A100, 1410, "int8", 624), (A100, 1410, "fp64", 19.5),
    (A100, 1410, "fp32", 19.5), (A40, 1740, "fp16", 149.7), (A40, 1740, "tf32", 74.8), (A40, 1740, "fp32", 37.4),
    (L4, 2040, "bf16", 121), (L4, 2040, "fp8", 242), (L40S, 2520, "fp16", 362), (L40S, 2520, "tf32", 183),
    (L40S, 2520, "fp32", 91.6), (H200, 1830, "bf16", 989), (H200, 1830, "fp8", 1979), (H200, 1830, "tf32", 494.7),
    (H200, 1980, "fp32", 67), (H200, 1980, "fp64", 67), (B200, 1860, "bf16", 2250), (B200, 1860, "fp4", 9000),
    (B200, 1965, "fp32", 75), (RTX_5090, 2407, "fp16", 419), (RTX_5090, 2407, "fp8", 838), (RTX_5090, 2407, "fp32", 104.8),
]  # fmt: skip


@pytest.mark.parametrize(("device", "clock_mhz", "dtype", "teraflops"), SHEETS)
def test_peak_flops_matches_the_data_sheet(device: Device, clock_mhz: float, dtype: str, teraflops: float) -> None:
    assert peak_flops(device, dtype, clock_mhz) == pytest.approx(teraflops * 1e12, rel=0.015)


@pytest.mark.parametrize(
    ("device", "gigabytes"),
    [(V100, 900), (T4, 320), (A100, 1555), (A40, 696), (L4, 300), (H100, 3352), (H200, 4917), (B200, 8184), (RTX_5090, 1792)],
)
def test_bandwidth_follows_from_clock_and_bus(device: Device, gigabytes: float) -> None:
    assert peak_bytes_a_second(device) == pytest.approx(gigabytes * 1e9, rel=0.005)


def test_sm_count_follows_from_the_cores() -> None:
    assert (sm_count(H200), sm_count(A100), sm_count(B200)) == (132, 108, 148)


@pytest.mark.parametrize("device", [gpu(None, 16896), gpu("9.0", None), gpu("99.9", 16896), gpu("8.7", 2048)])
def test_gpu_of_unknown_generation_or_cores_has_no_peaks(device: Device) -> None:
    assert peak_flops(device, "bf16", 1830) is None
    assert sm_count(device) is None
    assert peak_bytes_a_second(device) is None


def test_generation_determines_cache_and_fastest_type() -> None:
    """The compute capability determines the largest L2 and the fastest data type; an unknown generation has neither."""
    assert most_l2_bytes(H200) == 60 << 20
    assert (fastest(H200), fastest(B200)) == ("fp8", "fp4")
    assert most_l2_bytes(gpu("99.9", 1)) is None
    assert fastest(gpu(None, 1)) is None


def test_roofline_unknown_type_or_clock_has_no_peak() -> None:
    """A type that the generation lacks, an unknown type, a clock of 0 and an unknown bus width have no peak."""
    assert peak_flops(A100, "fp8", 1410) is None
    assert peak_flops(A100, "complex64", 1410) is None
    assert peak_flops(A100, "bf16", 0.0) is None
    assert peak_bytes_a_second(replace(A100, memory_bus_bits_count=None)) is None


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("torch.bfloat16", "bf16"), ("float16", "fp16"), ("half", "fp16"), ("FP32", "fp32"), ("torch.float8_e4m3fn", "fp8"),
        ("torch.float4_e2m1fn_x2", "fp4"), ("uint8", "int8"), ("double", "fp64"), ("tf32", "tf32"), ("complex64", None),
    ],
)  # fmt: skip
def test_data_type_has_several_names(word: str, name: str | None) -> None:
    assert arithmetic(word) == name


@given(st.text(max_size=20))
def test_arithmetic_accepts_any_text(word: str) -> None:
    assert arithmetic(word) is None or peak_flops(B200, word, 1000) is not None or arithmetic(word) == "int4"
