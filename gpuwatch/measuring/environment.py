"""The outside world of a benchmark, which tests replace to run without a GPU, a daemon and real time."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TextIO

from annotate.derived import roofline
from annotate.evidence import Device
from gpuwatch import clock
from gpuwatch.client.start import start
from gpuwatch.client.window import window
from gpuwatch.config.settings import Settings
from gpuwatch.measuring import cache, canary_record
from gpuwatch.measuring.attempt import MeasuredWindow
from gpuwatch.process import torch_state


@dataclass(frozen=True, slots=True)
class TorchDevice:
    """The current GPU of this process, and the size of its cache if torch reports it."""

    device: Device
    l2_bytes: int | None


def current_device() -> TorchDevice | None:
    """Return torch's current GPU; None without a context.  Facts that torch lacks are None, the UUID is ``GPU-unknown``."""
    cuda = torch_state.cuda_with_context()
    if cuda is None:
        return None
    found = cuda.get_device_properties(cuda.current_device())
    capability = f"{found.major}.{found.minor}"
    clock_khz, memory_khz = getattr(found, "clock_rate", None), getattr(found, "memory_clock_rate", None)
    device = Device(
        uuid=f"GPU-{getattr(found, 'uuid', 'unknown')}",
        name=found.name,
        compute_capability=capability,
        cuda_cores_count=roofline.cores_count(capability, found.multi_processor_count),
        sm_clock_max_mhz=clock_khz // 1000 if clock_khz else None,
        mem_clock_max_mhz=memory_khz // 1000 if memory_khz else None,
        memory_bus_bits_count=getattr(found, "memory_bus_width", None),
        memory_total_bytes=found.total_memory,
    )
    return TorchDevice(device, getattr(found, "L2_cache_size", None))


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchEnvironment:
    """The functions through which a benchmark reaches clock, daemon, GPU and terminal.

    ``window`` takes the arguments of ``gpuwatch.window``; ``stream`` shows progress, None for standard error.
    """

    now_ns: Callable[[], int] = clock.now_ns
    window: Callable[..., AbstractContextManager[MeasuredWindow]] = window
    start_daemon: Callable[[Settings | None], None] = start  # before the warm-up: a warm GPU cools while a daemon starts
    gpu: Callable[[], TorchDevice | None] = current_device
    canary: Callable[[str, Settings | None], canary_record.CanaryRun | None] = canary_record.run_canary
    flush: Callable[[int | None], tuple[Callable[[], None], int]] = cache.make_flush
    stream: TextIO | None = None
