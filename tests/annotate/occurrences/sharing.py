from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from annotate.evidence import Evidence, Host, OtherWindow, Ownership, Process
from tests.annotate.builders import BEGIN_NS, DEVICE, OWN, evidence

XORG = Process(
    pid=5, name="Xorg", user="root", memory_bytes=20_000_000, utilization_ratio=0.0, graphics=True, ownership=Ownership.FOREIGN
)


def scenes() -> Iterator[Evidence]:
    quiet = Host(span_s=6.0, cpu_s=6.0, run_wait_s=0.0, cpu_allowed_count=16, sharing="", numa_nodes="0", wall_step_s=0.0)
    for changes in ({"mig_mode": True}, {"virtualization": "vgpu"}, {"virtualization": "host-vgpu"}, {"parent_uuid": "GPU-1"}):
        yield evidence(device=replace(DEVICE, **changes))
    yield evidence(host=replace(quiet, sharing="HAMi,MPS"))
    yield evidence(processes=[OWN, replace(XORG, name="nvidia-cuda-mps-server", graphics=False)])
    yield evidence(declared={"busy_ratio": 0.6})
    for utilization_ratio in (None, 0.0, 0.03, 0.5):
        yield evidence(processes=[OWN, replace(XORG, utilization_ratio=utilization_ratio)])
    yield evidence(signals={"event_reasons_mask": 0x100})
    yield evidence(host=replace(quiet, numa_nodes="1"))
    yield evidence(host=replace(quiet, numa_nodes=None), signals={"pcie_width_count": 8, "pcie_generation_count": 3})
    yield replace(evidence(), overlapping=(OtherWindow(BEGIN_NS, BEGIN_NS + 10**9, pid=77, label="theirs"),))
    yield evidence(length_s=0.05)
    yield evidence(host=replace(quiet, wall_step_s=0.05))
    yield evidence(host=replace(quiet, watcher_cpu_s=5.9))
    yield evidence(host=replace(quiet, watcher_cpu_s=3.0))
