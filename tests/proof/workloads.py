"""Benchmark loops with the kernels, launch gaps and noise of recordings from an H200."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuwatch.sources.simulated.kernels import ATTENTION, CONVOLUTION, COPY, FLOAT_GEMM, GEMM, LARGE_GEMM, Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One benchmark's loop: a kernel or a step of several kernels, and the gap between two iterations."""

    name: str
    kernel: Kernel
    gap_s: float = 6.0e-6  # median time between the end of an iteration and the start of the next
    gap_noise_ratio: float = 0.07
    outliers_ratio: float = 0.01  # share of iterations with a small delay
    between_ratio: float = 0.4  # share of a neighbour's time slices that fall between two iterations
    bytes_ratio: float = 0.3  # share of a neighbour's copy slowdown that reaches this work

    @property
    def share(self) -> float:
        """Return the share of time in which the kernels of an undisturbed loop run."""
        return self.kernel.time_s / (self.kernel.time_s + 1.3 * self.gap_s)

    @property
    def rests(self) -> bool:
        """Return whether the GPU idles long enough between two iterations to change the board's state."""
        return self.gap_s > 5e-3

    @property
    def burst_s(self) -> float:
        """Return the time of an iteration at the uncapped clock, in seconds."""
        kernel = self.kernel
        return float(kernel.time_s * (kernel.reference_ratio / kernel.ceiling_ratio) ** kernel.beta)

    @property
    def metered_share(self) -> float:
        """Return the busy share of time by the driver's meters, which miss the gaps between back-to-back launches."""
        return 1.0 if self.share > 0.9 else self.share

    @property
    def capped(self) -> bool:
        """Return whether an H200 runs this loop at the power limit."""
        return self.kernel.shown_ratio > 1.0 and self.share > 0.8


_SHORT_ATTENTION = replace(
    ATTENTION, name="short attention", time_s=349.0e-6, reference_ratio=1711 / 1980, beta=0.98, dynamic_w=742.0,
    ceiling_ratio=1920 / 1980, unrest_ratio=0.015, noise_ratio=0.0015,
)  # fmt: skip
_SOFTMAX = replace(COPY, name="softmax", time_s=550.6e-6, beta=0.16, dynamic_w=405.0, noise_ratio=0.0025)
_SMALL = replace(
    FLOAT_GEMM, name="small kernel", time_s=62.0e-6, beta=0.6, dynamic_w=260.0, noise_ratio=0.02, sm_activity_ratio=0.6
)
_DECODE = replace(
    COPY, name="decoding step", time_s=4.9e-3, beta=0.12, dynamic_w=300.0, noise_ratio=0.0006, mem_utilization_ratio=0.64
)
_TRAINING = replace(
    CONVOLUTION, name="training step", time_s=38.0e-3, beta=0.6, dynamic_w=800.0, noise_ratio=0.004, unrest_ratio=0.02
)

WORKLOADS: tuple[Workload, ...] = (
    Workload(name="gemm", kernel=replace(GEMM, noise_ratio=0.0025)),
    Workload(name="large gemm", kernel=replace(LARGE_GEMM, unrest_ratio=0.012), between_ratio=0.0),
    Workload(name="attention", kernel=replace(ATTENTION, unrest_ratio=0.012), between_ratio=0.1),
    Workload(name="short attention", kernel=_SHORT_ATTENTION),
    Workload(name="convolution", kernel=CONVOLUTION, between_ratio=0.3),
    Workload(name="copy", kernel=COPY, between_ratio=0.1, bytes_ratio=1.0),
    Workload(name="softmax", kernel=_SOFTMAX, between_ratio=0.05, bytes_ratio=1.0),
    Workload(name="fp32 gemm", kernel=FLOAT_GEMM, between_ratio=0.0, bytes_ratio=0.1),
    Workload(name="small launches", kernel=_SMALL, gap_s=28.0e-6, gap_noise_ratio=0.15, between_ratio=0.5),
    Workload(name="decoding", kernel=_DECODE, gap_s=12.0e-6, between_ratio=0.0, bytes_ratio=1.0),
    Workload(name="training", kernel=_TRAINING, gap_s=0.6e-3, gap_noise_ratio=0.3, between_ratio=0.0),
    Workload(name="sleeps between", kernel=LARGE_GEMM, gap_s=20.0e-3, gap_noise_ratio=0.004, between_ratio=0.0),
)  # fmt: skip
