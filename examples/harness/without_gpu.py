"""A driver for Triton that runs on the CPU, for examples and tests without a GPU.

Triton's ``do_bench`` runs on this driver unchanged; events read the host's clock.  The driver computes nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable


class HostEvent:
    """An event that records the host's clock at once."""

    def __init__(self, **_: bool) -> None:
        self.at_s = 0.0

    def record(self) -> None:
        self.at_s = time.perf_counter()

    def elapsed_time(self, last: HostEvent) -> float:
        """Return the milliseconds between two events."""
        return 1e3 * (last.at_s - self.at_s)


class HostInterface:
    """The part of torch.cuda that ``do_bench`` uses."""

    Event = HostEvent

    @staticmethod
    def synchronize() -> None:
        """Return at once: the host's work is done when its call returns."""


class HostDriver:
    """The part of a Triton driver that benchmarks use."""

    def get_device_interface(self) -> type[HostInterface]:
        return HostInterface

    def get_empty_cache_for_benchmark(self) -> bytearray:
        return bytearray(1 << 20)

    def clear_cache(self, cache: bytearray) -> None:
        cache[:] = bytes(len(cache))

    def get_benchmarker(self) -> Callable[..., object]:
        from triton.testing import do_bench

        found: Callable[..., object] = do_bench
        return found


def use_host() -> None:
    """Make Triton run on this driver."""
    from triton.runtime.driver import driver

    driver.set_active(HostDriver())


def use_host_without_gpu() -> None:
    """Make Triton run on this driver if torch is missing or finds no GPU."""
    if importlib.util.find_spec("torch") is None or not importlib.import_module("torch").cuda.is_available():
        use_host()
