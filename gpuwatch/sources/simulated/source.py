"""The simulated Source: boards with physics behind the same questions a driver answers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from annotate.evidence import SIGNALS, Census, Device, Event, Lane, PowerRecord, Process, Reading, Timings, Visibility
from gpuwatch.errors import DeviceLostError, SourceGoneError, UsageError
from gpuwatch.protocols import Clock
from gpuwatch.sources.names import nearest
from gpuwatch.sources.simulated.driver import (
    CENSUS_BUSY_COST_NS,
    CENSUS_COST_NS,
    OWN_BYTES,
    POWER_RECORD_COST_NS,
    RESERVED_BYTES,
    Driver,
    cost_ns,
)
from gpuwatch.sources.simulated.physics import SLOWDOWN_C
from gpuwatch.sources.simulated.scenes import DEFAULT_FLEET, FLEETS, SCENES, Fault, Scene
from gpuwatch.sources.simulated.script import Script
from gpuwatch.sources.simulated.times import kernel_times

UUID_PREFIX = "GPU-51301a7e-"  # "simulate" in the digits a UUID has
OWN_PID = 51_301  # of the scene's own process, until a window adopts it


@dataclass(slots=True)
class _Gpu:
    """One simulated board and what the source remembers of who asked it what."""

    device: Device
    instances: tuple[Device, ...]
    script: Script
    driver: Driver
    own_pid: int = OWN_PID
    record_until_ns: int = 0
    busy_at_ns: int = 0
    busy_ns: dict[int, float] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Simulated:
    """One simulated GPU a scene, on any clock; everything about it says SIMULATED.

    ``scenes`` is a name or several with commas; a fleet's name stands for several, none for the default fleet.  The
    scenes begin at ``epoch_ns`` (default: now), and the same scenes, seed and epoch give the same readings at the same
    times, whoever asks.

    A simulated GPU cannot know which real process a window measures: ``adopt(uuid, pid)`` tells it.  From then on that
    process is the scene's own one, in the process list and in the utilisation record; the last one adopted is it.

    Raises UsageError for a scene that does not exist.
    """

    simulated = True

    def __init__(self, scenes: str | None, clock: Clock, *, seed: int = 0, epoch_ns: int | None = None) -> None:
        self._clock = clock
        self.epoch_ns = clock.now_ns() if epoch_ns is None else epoch_ns
        self.name = f"simulated:{scenes}" if scenes else "simulated"
        self._closed = threading.Event()
        self._gpus: dict[str, _Gpu] = {}
        self._by_instance: dict[str, _Gpu] = {}
        self._told_ns = -1  # events up to here were handed out
        for position, scene in enumerate(scenes_named(scenes or DEFAULT_FLEET)):
            gpu = _gpu(scene, position, seed)
            self._gpus[gpu.device.uuid] = gpu
            self._by_instance.update({instance.uuid: gpu for instance in gpu.instances})

    def devices(self) -> tuple[Device, ...]:
        self._check_open()
        out: list[Device] = []
        for gpu in self._gpus.values():
            if not gpu.script.at(self._now_ns() / 1e9).lost:
                out += [gpu.device, *gpu.instances]
        return tuple(out)

    def read(self, uuid: str, lane: Lane, names: Sequence[str]) -> Reading:
        asked = frozenset(names)
        instance = uuid in self._by_instance
        if unknown := asked - SIGNALS.keys():
            raise ValueError(f"no such signal: {', '.join(sorted(unknown))}")
        gpu, now_ns = self._at_now(uuid)
        with gpu.lock:
            gpu.driver.advance(now_ns)
            # Of a MIG instance the driver tells only what memory is used; clocks, power and heat are the board's.
            values: dict[str, Any] = {"memory_used_bytes": OWN_BYTES} if instance else gpu.driver.values(asked)
        return Reading(
            uuid=uuid,
            lane=lane,
            at_ns=self.epoch_ns + now_ns,
            took_ns=cost_ns(asked),
            **{name: value for name, value in values.items() if name in asked},
        )

    def census(self, uuid: str, *, utilization: bool = False) -> Census:
        gpu, now_ns = self._at_now(uuid)
        with gpu.lock:
            gpu.driver.advance(now_ns)
            processes = _processes(gpu, now_ns, utilization=utilization)
        hides = any(not neighbour.listed for neighbour in gpu.script.scene.neighbours)
        return Census(
            uuid=uuid,
            at_ns=self.epoch_ns + now_ns,
            took_ns=CENSUS_BUSY_COST_NS if utilization else CENSUS_COST_NS,
            processes=processes,
            visibility=Visibility.NAMESPACE if hides else Visibility.HOST,
        )

    def power_record(self, uuid: str) -> PowerRecord:
        gpu, now_ns = self._at_now(uuid)
        with gpu.lock:
            gpu.driver.advance(now_ns)
            fresh = [(at_ns, power_w) for at_ns, power_w in gpu.driver.physics.record if at_ns > gpu.record_until_ns]
            if uuid in self._by_instance:
                fresh = []
            elif fresh:
                gpu.record_until_ns = fresh[-1][0]
        return PowerRecord(
            uuid=uuid,
            at_ns=self.epoch_ns + now_ns,
            took_ns=POWER_RECORD_COST_NS,
            sample_at_ns=tuple(self.epoch_ns + at_ns for at_ns, _ in fresh),
            sample_w=tuple(round(power_w, 3) for _, power_w in fresh),
        )

    def events(self, timeout_s: float) -> tuple[Event, ...]:
        deadline_ns = self._clock.now_ns() + round(timeout_s * 1e9)
        while True:
            self._check_open()
            now_ns = self._now_ns()
            due = [event for gpu in self._gpus.values() for event in _scripted(gpu, self.epoch_ns)]
            due.sort(key=lambda event: event.at_ns)
            fresh = tuple(event for event in due if self._told_ns < event.at_ns - self.epoch_ns <= now_ns)
            self._told_ns = max(self._told_ns, now_ns)
            if fresh or self._clock.now_ns() >= deadline_ns:
                return fresh
            ahead_ns = [event.at_ns for event in due if event.at_ns - self.epoch_ns > now_ns]
            self._clock.wait_until(min([deadline_ns, *ahead_ns]), self._closed)

    def timings(self, uuid: str, begin_ns: int, end_ns: int) -> Timings | None:
        """Kernel times of the scene's own process over an interval of the last minute: not part of the Source role.

        It follows the true clock, which the driver does not show.
        """
        gpu, now_ns = self._at_now(uuid)
        with gpu.lock:
            gpu.driver.advance(now_ns)
            return kernel_times(gpu.driver.physics.history, gpu.script.scene, begin_ns, end_ns, self.epoch_ns)

    def adopt(self, uuid: str, pid: int) -> None:
        """Make a real process the scene's own on this GPU.  An unknown UUID or a lost GPU: DeviceLostError."""
        gpu, _ = self._at_now(uuid)
        with gpu.lock:
            gpu.busy_ns[pid] = gpu.busy_ns.get(gpu.own_pid, 0.0)
            gpu.own_pid = pid

    def close(self) -> None:
        self._closed.set()

    def _now_ns(self) -> int:
        return max(0, self._clock.now_ns() - self.epoch_ns)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise SourceGoneError(f"{self.name}: closed")

    def _at_now(self, uuid: str) -> tuple[_Gpu, int]:
        self._check_open()
        gpu = self._gpus.get(uuid) or self._by_instance.get(uuid)
        if gpu is None:
            raise DeviceLostError(uuid, f"{self.name} has no such GPU")
        now_ns = self._now_ns()
        if gpu.script.at(now_ns / 1e9).lost:
            raise DeviceLostError(uuid, "the simulated GPU has fallen off the bus")
        return gpu, now_ns


def scenes_named(names: str) -> tuple[Scene, ...]:
    """The scenes of ``NAME[,NAME…]``, fleets spelled out.  Raises UsageError with the nearest name."""
    out: list[Scene] = []
    for name in names.split(","):
        for member in FLEETS.get(name, (name,)):
            if member not in SCENES:
                raise UsageError(f"no scene {member!r}: {nearest(member, [*SCENES, *FLEETS])}")
            out.append(SCENES[member])
    return tuple(out)


def _gpu(scene: Scene, position: int, seed: int) -> _Gpu:
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
    return _Gpu(device, instances, script, Driver(script, f"{seed}/{position}/{scene.name}"))


def _processes(gpu: _Gpu, now_ns: int, *, utilization: bool) -> tuple[Process, ...]:
    scene, physics = gpu.script.scene, gpu.driver.physics
    at_s = physics.stretch.begin_s
    totals = dict(physics.by_neighbour_ns)
    totals[gpu.own_pid] = physics.totals.own_ns
    span_ns = now_ns - gpu.busy_at_ns

    def busy_ratio(pid: int) -> float | None:
        if not utilization or span_ns <= 0:
            return None
        return round(min(1.0, (totals.get(pid, 0.0) - gpu.busy_ns.get(pid, 0.0)) / span_ns), 2)

    out: list[Process] = []
    if at_s >= scene.context_s:
        out.append(Process(pid=gpu.own_pid, memory_bytes=OWN_BYTES, utilization_ratio=busy_ratio(gpu.own_pid)))
    for neighbour in scene.neighbours:
        if neighbour.begin_s <= at_s < neighbour.end_s:
            busy = busy_ratio(neighbour.pid)
            if neighbour.listed:
                out.append(Process(pid=neighbour.pid, name=neighbour.name, memory_bytes=neighbour.memory_bytes,
                                   utilization_ratio=busy))  # fmt: skip
            elif busy:  # another container's: the list leaves it out, the utilisation record does not
                out.append(Process(pid=neighbour.pid, utilization_ratio=busy, listed=False))
    if utilization:
        gpu.busy_at_ns, gpu.busy_ns = now_ns, totals
    return tuple(out)


def _scripted(gpu: _Gpu, epoch_ns: int) -> list[Event]:
    """The driver's own reports in the first round of the scene."""
    out: list[Event] = []
    for mishap in gpu.script.scene.mishaps:
        if mishap.fault is Fault.XID:
            at_ns = epoch_ns + round(mishap.begin_s * 1e9)
            out.append(Event(uuid=gpu.device.uuid, at_ns=at_ns, kind="xid", value=int(mishap.value)))
    return out
