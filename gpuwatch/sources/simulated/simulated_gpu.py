"""One GPU of a simulated machine: its identity, its board behind the driver, and its processes."""

import threading
from dataclasses import dataclass, field

from annotate.evidence import Device, Event, Process, Visibility
from gpuwatch.sources.simulated.driver_model import OWN_BYTES, RESERVED_BYTES, Driver
from gpuwatch.sources.simulated.physics import SLOWDOWN_C
from gpuwatch.sources.simulated.scenes import Fault, Scene
from gpuwatch.sources.simulated.script import Script

UUID_PREFIX = "GPU-51301a7e-"  # "simulate", spelled with hexadecimal digits
OWN_PID = 51_301  # of the scene's own process, until a window adopts a real process


@dataclass(slots=True)
class SimulatedGpu:
    """A board, and the driver's cursors for its callers.  ``now_ns`` counts from the source's ``epoch_ns``.

    Callers must hold ``lock`` to use ``driver``, ``adopt``, ``fresh_record`` or ``processes``.
    """

    device: Device
    instances: tuple[Device, ...]
    script: Script
    driver: Driver
    own_pid: int = OWN_PID
    lock: threading.Lock = field(default_factory=threading.Lock)
    _record_until_ns: int = 0
    _busy_at_ns: int = 0
    _busy_ns: dict[int, float] = field(default_factory=dict)

    @property
    def visibility(self) -> Visibility:
        """Return NAMESPACE if a neighbour is hidden in another container, else HOST."""
        hides = any(not neighbour.listed for neighbour in self.script.scene.neighbours)
        return Visibility.NAMESPACE if hides else Visibility.HOST

    def is_lost(self, now_ns: int) -> bool:
        return self.script.at(now_ns / 1e9).lost

    def adopt(self, pid: int) -> None:
        self._busy_ns[pid] = self._busy_ns.get(self.own_pid, 0.0)
        self.own_pid = pid

    def fresh_record(self) -> list[tuple[int, float]]:
        """Return the samples of the dense power record since the last call, as nanoseconds and watts."""
        fresh = [(at_ns, power_w) for at_ns, power_w in self.driver.physics.record if at_ns > self._record_until_ns]
        if fresh:
            self._record_until_ns = fresh[-1][0]
        return fresh

    def processes(self, now_ns: int, *, utilization: bool) -> tuple[Process, ...]:
        """Return the processes; with ``utilization`` also each one's GPU share since the last such call."""
        scene, physics = self.script.scene, self.driver.physics
        at_s = physics.stretch.begin_s
        totals = {**physics.by_neighbour_ns, self.own_pid: physics.totals.own_ns}
        span_ns = now_ns - self._busy_at_ns

        def busy_ratio(pid: int) -> float | None:
            if not utilization or span_ns <= 0:
                return None
            return round(min(1.0, (totals.get(pid, 0.0) - self._busy_ns.get(pid, 0.0)) / span_ns), 2)

        out: list[Process] = []
        if at_s >= scene.context_s:
            out.append(Process(pid=self.own_pid, memory_bytes=OWN_BYTES, utilization_ratio=busy_ratio(self.own_pid)))
        for neighbour in scene.neighbours:
            if not neighbour.begin_s <= at_s < neighbour.end_s:
                continue
            pid, busy = neighbour.pid, busy_ratio(neighbour.pid)
            if neighbour.listed:
                out.append(Process(pid=pid, name=neighbour.name, memory_bytes=neighbour.memory_bytes, utilization_ratio=busy))
            elif busy:  # another container's process: only the utilisation record names it
                out.append(Process(pid=pid, utilization_ratio=busy, listed=False))
        if utilization:
            self._busy_at_ns, self._busy_ns = now_ns, totals
        return tuple(out)

    def reports(self, epoch_ns: int) -> list[Event]:
        """Return the scene's Xid events, for the first round of the scene only."""
        return [
            Event(uuid=self.device.uuid, at_ns=epoch_ns + round(m.begin_s * 1e9), kind="xid", value=int(m.value))
            for m in self.script.scene.mishaps
            if m.fault is Fault.XID
        ]


def gpu_of(scene: Scene, position: int, seed: int) -> SimulatedGpu:
    """Build the GPU at this position of the machine, with this scene.  The UUID depends only on the position."""
    board = scene.board
    uuid = f"{UUID_PREFIX}0000-0000-0000-{position:012d}"
    device = Device(
        uuid=uuid,
        name="SIMULATED NVIDIA H200",
        pci_bus_id=f"00000000:{position:02X}:00.0",
        driver_version="580.159.04 (simulated)",
        nvml_version="13.580.159.04 (simulated)",
        architecture="hopper",
        compute_capability="9.0",
        simulated=True,
        sm_clock_max_mhz=board.sm_clock_max_mhz,
        mem_clock_max_mhz=board.mem_clock_max_mhz,
        power_limit_w=board.power_limit_w,
        power_limit_default_w=700.0,
        power_limit_min_w=200.0,
        power_limit_max_w=700.0,
        temperature_slowdown_c=SLOWDOWN_C,
        temperature_shutdown_c=95,
        memory_total_bytes=150_754_820_096,
        memory_reserved_bytes=RESERVED_BYTES,
        pcie_generation_max_count=5,
        pcie_width_max_count=16,
        cuda_cores_count=16_896,
        memory_bus_bits_count=6_144,
        persistence_mode=board.persistence_mode,
        ecc_mode=True,
        mig_mode=bool(board.mig_profiles),
        compute_mode="default",
        virtualization="none",
        supported_reasons_mask=0x1FF,
    )
    instances = tuple(
        Device(
            uuid=f"MIG-51301a7e-{position:04d}-0000-0000-{index:012d}",
            name=f"SIMULATED NVIDIA H200 MIG {profile}",
            parent_uuid=uuid,
            simulated=True,
            driver_version=device.driver_version,
            mig_mode=True,
        )
        for index, profile in enumerate(board.mig_profiles)
    )
    script = Script(scene)
    return SimulatedGpu(device, instances, script, Driver(script, f"{seed}/{position}/{scene.name}"))
