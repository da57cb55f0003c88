"""The kernels of a simulated GPU, with their figures.

Clocks are true SM clocks (cycle counter over global timer), from the H200 recordings in ``tests/traces/README.md``.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The power that a load draws, and the driver's utilisation figures under the load."""

    dynamic_w: float  # above the static power, at the maximum clock
    ceiling_ratio: float  # true clock under this load before any cap: tensor work lowers the clock at once
    shown_ratio: float = 1.0  # under a cap: the ratio of NVML's clock to the true clock
    unrest_ratio: float = 0.005  # standard deviation of the power's random change per bin of 20 ms
    heat_ratio: float = 1.0  # share of the power that reaches the core's sensor
    utilization_ratio: float = 1.0
    mem_utilization_ratio: float = 0.25
    sm_activity_ratio: float = 0.95
    tensor_activity_ratio: float = 0.0
    dram_activity_ratio: float = 0.2
    occupancy_ratio: float = 0.14


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(Load):
    """One kernel run back to back: its load and its duration.

    At the full memory clock, one run takes ``time_s * (reference_ratio / clock_ratio) ** beta``.  Clock ratios are of the
    board's maximum.
    """

    name: str
    time_s: float
    reference_ratio: float  # the true clock at which the kernel takes time_s
    beta: float  # sensitivity of the time to the clock: 1 is compute-bound, 0 memory-bound
    noise_ratio: float = 0.002  # variation of one iteration beyond the clock's effect


GEMM = Kernel(
    name="gemm 4096³ bf16", time_s=204.1e-6, reference_ratio=1391 / 1980, beta=0.93, dynamic_w=1122.0,
    ceiling_ratio=1633 / 1980, shown_ratio=1.11, unrest_ratio=0.025, utilization_ratio=0.98, mem_utilization_ratio=0.24,
    tensor_activity_ratio=0.89, dram_activity_ratio=0.11,
)  # fmt: skip
LARGE_GEMM = Kernel(
    name="gemm 16384³ bf16", time_s=13.02e-3, reference_ratio=1302 / 1980, beta=0.99, dynamic_w=1281.0, ceiling_ratio=0.79,
    shown_ratio=1.09, mem_utilization_ratio=0.23, tensor_activity_ratio=0.95, dram_activity_ratio=0.12,
)  # fmt: skip
CONVOLUTION = Kernel(
    name="conv 3×3 bf16", time_s=477.2e-6, reference_ratio=1511 / 1980, beta=0.81, dynamic_w=951.0, ceiling_ratio=1690 / 1980,
    shown_ratio=1.10, unrest_ratio=0.03, noise_ratio=0.001, tensor_activity_ratio=0.6,
)  # fmt: skip
ATTENTION = Kernel(
    name="attention", time_s=1.843e-3, reference_ratio=1493 / 1980, beta=0.99, dynamic_w=974.0, ceiling_ratio=1605 / 1980,
    shown_ratio=1.09, unrest_ratio=0.001, tensor_activity_ratio=0.6,
)  # fmt: skip
FLOAT_GEMM = Kernel(
    name="gemm 4096³ fp32", time_s=2.675e-3, reference_ratio=1978 / 1980, beta=0.94, dynamic_w=430.0, ceiling_ratio=1978 / 1980,
    noise_ratio=0.0004, sm_activity_ratio=0.99,
)  # fmt: skip
COPY = Kernel(
    name="copy 1 GiB", time_s=510.1e-6, reference_ratio=1976 / 1980, beta=0.02, dynamic_w=438.0, ceiling_ratio=1976 / 1980,
    noise_ratio=0.002, heat_ratio=0.75, utilization_ratio=0.97, mem_utilization_ratio=1.0, sm_activity_ratio=0.98,
    dram_activity_ratio=0.91, occupancy_ratio=0.85,
)  # fmt: skip
VECTOR_ADD = Kernel(
    name="vector add", time_s=120e-6, reference_ratio=1976 / 1980, beta=0.02, dynamic_w=620.0, ceiling_ratio=1976 / 1980,
    shown_ratio=1.11, utilization_ratio=1.0, mem_utilization_ratio=1.0, sm_activity_ratio=0.98, dram_activity_ratio=0.9,
    occupancy_ratio=0.9,
)  # fmt: skip
# Every SM spins for some cycles.  The power is an assumption, too low for any cap.
SPIN = Kernel(
    name="spin", time_s=2e-3, reference_ratio=1.0, beta=1.0, dynamic_w=60.0, ceiling_ratio=1.0, noise_ratio=0.0004,
    mem_utilization_ratio=0.0, dram_activity_ratio=0.0,
)  # fmt: skip
