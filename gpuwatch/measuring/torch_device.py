"""The GPU as torch describes it, for a benchmark that empties its cache and names its peaks."""

from __future__ import annotations

from dataclasses import dataclass

from annotate.derived import roofline
from annotate.evidence import Device
from gpuwatch.process import torch_state


@dataclass(frozen=True, slots=True)
class TorchDevice:
    """The current GPU of this process, and the size of its cache where torch gives it."""

    device: Device
    l2_bytes: int | None


def current_device() -> TorchDevice | None:
    """Return the GPU torch works on; None where this process has made no context.  What torch does not give stays None."""
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
