"""The simulated Source: boards with physics behind the interface of a driver."""

import threading
from collections.abc import Sequence
from typing import Any

from annotate.evidence import SIGNALS, Device, Event, Lane, PowerRecord, ProcessList, Reading, Timings
from gpuwatch.errors import DeviceLostError, SourceGoneError, UsageError
from gpuwatch.interfaces import Clock, InstanceReading, RareReading
from gpuwatch.sources import nearest
from gpuwatch.sources.simulated.driver_model import (
    OWN_BYTES,
    POWER_RECORD_COST_NS,
    PROCESS_LIST_BUSY_COST_NS,
    PROCESS_LIST_COST_NS,
    cost_ns,
)
from gpuwatch.sources.simulated.scenes import DEFAULT_FLEET, FLEETS, SCENES, Scene
from gpuwatch.sources.simulated.simulated_gpu import SimulatedGpu, gpu_of


class Simulated:
    """One simulated GPU per scene, on any clock.  The names of all GPUs contain SIMULATED.

    ``scenes`` is one or more names separated by commas, a fleet's name, or Scene objects; None means the default fleet.
    The scenes start at ``epoch_ns`` (default: now).  The same scenes, seed and epoch give the same physics at the same
    times, for any sequence of calls.

    ``adopt(uuid, pid)`` sets the real process that a window measures.  From then on this process replaces the scene's own
    process in the process list and the utilisation record.  The last adoption wins.

    Raises UsageError: for an unknown scene.
    """

    simulated = True

    def __init__(
        self, scenes: str | Sequence[Scene] | None, clock: Clock, *, seed: int = 0, epoch_ns: int | None = None
    ) -> None:
        self._clock = clock
        self.epoch_ns = clock.now_ns() if epoch_ns is None else epoch_ns
        members = scenes_named(scenes or DEFAULT_FLEET) if scenes is None or isinstance(scenes, str) else tuple(scenes)
        names = scenes if isinstance(scenes, str) else ",".join(scene.name for scene in members)
        self.name = f"simulated:{names}" if scenes else "simulated"
        self._closed = threading.Event()
        self._gpus: dict[str, SimulatedGpu] = {}
        self._by_instance: dict[str, SimulatedGpu] = {}
        self._returned_ns = -1  # events up to here were already returned
        for position, scene in enumerate(members):
            gpu = gpu_of(scene, position, seed)
            self._gpus[gpu.device.uuid] = gpu
            self._by_instance.update({instance.uuid: gpu for instance in gpu.instances})

    def devices(self) -> tuple[Device, ...]:
        self._check_open()
        answering = [gpu for gpu in self._gpus.values() if not gpu.is_lost(self._now_ns())]
        return tuple(device for gpu in answering for device in (gpu.device, *gpu.instances))

    def read(self, uuid: str, lane: Lane, names: Sequence[str]) -> Reading:
        asked = frozenset(names)
        instance = uuid in self._by_instance
        if unknown := asked - SIGNALS.keys():
            raise ValueError(f"no such signal: {', '.join(sorted(unknown))}")
        gpu, now_ns = self._at_now(uuid)
        with gpu.lock:
            gpu.driver.advance(now_ns)
            # On a MIG instance the driver reports only used memory; clocks, power and heat belong to the board.
            values: dict[str, Any] = {"memory_used_bytes": OWN_BYTES} if instance else gpu.driver.values(asked)
        return Reading(
            uuid=uuid,
            lane=lane,
            at_ns=self.epoch_ns + now_ns,
            took_ns=cost_ns(asked),
            **{name: value for name, value in values.items() if name in asked},
        )

    def read_process_list(self, uuid: str, *, utilization: bool = False) -> ProcessList:
        gpu, now_ns = self._at_now(uuid)
        with gpu.lock:
            gpu.driver.advance(now_ns)
            processes = gpu.processes(now_ns, utilization=utilization)
        return ProcessList(
            uuid=uuid,
            at_ns=self.epoch_ns + now_ns,
            took_ns=PROCESS_LIST_BUSY_COST_NS if utilization else PROCESS_LIST_COST_NS,
            processes=processes,
            visibility=gpu.visibility,
            use_asked=utilization,
        )

    def power_record(self, uuid: str) -> PowerRecord:
        gpu, now_ns = self._at_now(uuid)
        with gpu.lock:
            gpu.driver.advance(now_ns)
            fresh = [] if uuid in self._by_instance else gpu.fresh_record()
        return PowerRecord(
            uuid=uuid,
            at_ns=self.epoch_ns + now_ns,
            took_ns=POWER_RECORD_COST_NS,
            sample_at_ns=tuple(self.epoch_ns + at_ns for at_ns, _ in fresh),
            sample_w=tuple(round(power_w, 3) for _, power_w in fresh),
        )

    def read_rare(self, uuid: str) -> RareReading:
        """Return readings for the metrics page: the board receives 1 MB and sends 0.1 MB per second of work."""
        gpu, now_ns = self._at_now(uuid)
        with gpu.lock:
            gpu.driver.advance(now_ns)
            utilized_s = gpu.driver.physics.totals.utilized_ns / 1e9
            busy_ratio, dram_ratio = gpu.driver.utilization_ratio, gpu.driver.mem_utilization_ratio
        return RareReading(
            uuid=uuid,
            at_ns=self.epoch_ns + now_ns,
            took_ns=cost_ns(frozenset({"sm_activity_ratio"})),
            performance_state=0,
            remapped_corrected_count=0,
            remapped_uncorrected_count=0,
            pcie_sent_bytes=round(1e5 * utilized_s),
            pcie_received_bytes=round(1e6 * utilized_s),
            instances=tuple(
                InstanceReading(
                    uuid=each.uuid,
                    name=each.name,
                    gpu_instance_id=number,
                    compute_instance_id=0,
                    processes_count=1,
                    memory_total_bytes=profile_bytes(each.name),
                    memory_used_bytes=OWN_BYTES,
                    sm_activity_ratio=busy_ratio,
                    dram_activity_ratio=dram_ratio,
                )
                for number, each in enumerate(gpu.instances)
            ),
        )

    def events(self, timeout_s: float) -> tuple[Event, ...]:
        deadline_ns = self._clock.now_ns() + round(timeout_s * 1e9)
        while True:
            self._check_open()
            now_ns = self._now_ns()
            due = [event for gpu in self._gpus.values() for event in gpu.reports(self.epoch_ns)]
            due.sort(key=lambda event: event.at_ns)
            fresh = tuple(event for event in due if self._returned_ns < event.at_ns - self.epoch_ns <= now_ns)
            self._returned_ns = max(self._returned_ns, now_ns)
            if fresh or self._clock.now_ns() >= deadline_ns:
                return fresh
            ahead_ns = [event.at_ns for event in due if event.at_ns - self.epoch_ns > now_ns]
            self._clock.wait_until(min([deadline_ns, *ahead_ns]), self._closed)

    def timings(self, uuid: str, begin_ns: int, end_ns: int) -> Timings | None:
        """Return kernel times of the scene's own process over an interval of the last minute; None without a kernel.

        The times follow the true clock, which the driver does not report.  This method is not part of the Source protocol.
        """
        from gpuwatch.sources.simulated.iteration_times import kernel_times  # imports numpy, which watching does not need

        gpu, now_ns = self._at_now(uuid)
        with gpu.lock:
            gpu.driver.advance(now_ns)
            return kernel_times(gpu.driver.physics.history, gpu.script.scene, begin_ns, end_ns, self.epoch_ns)

    def adopt(self, uuid: str, pid: int) -> None:
        """Replace the scene's own process by a real one, even on a lost GPU.

        Raises DeviceLostError: for an unknown UUID.
        Raises SourceGoneError: after ``close``.
        """
        gpu = self._known(uuid)
        with gpu.lock:
            gpu.adopt(pid)

    def close(self) -> None:
        self._closed.set()

    def _now_ns(self) -> int:
        return max(0, self._clock.now_ns() - self.epoch_ns)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise SourceGoneError(f"{self.name}: closed")

    def _known(self, uuid: str) -> SimulatedGpu:
        self._check_open()
        gpu = self._gpus.get(uuid) or self._by_instance.get(uuid)
        if gpu is None:
            raise DeviceLostError(uuid, f"{self.name} has no such GPU")
        return gpu

    def _at_now(self, uuid: str) -> tuple[SimulatedGpu, int]:
        gpu = self._known(uuid)
        now_ns = self._now_ns()
        if gpu.is_lost(now_ns):
            raise DeviceLostError(uuid, "the simulated GPU does not answer")
        return gpu, now_ns


def profile_bytes(name: str) -> int:
    """Return the bytes of memory stated in the name of a MIG instance, such as "… 3g.71gb"."""
    return int(name.rpartition(".")[2].removesuffix("gb")) << 30


def scenes_named(names: str) -> tuple[Scene, ...]:
    """Return the scenes of ``NAME[,NAME…]``, with fleets expanded.

    Raises UsageError: for an unknown name.
    """
    out: list[Scene] = []
    for name in names.split(","):
        for member in FLEETS.get(name, (name,)):
            if member not in SCENES:
                raise UsageError(f"no scene {member!r}: {nearest(member, [*SCENES, *FLEETS])}")
            out.append(SCENES[member])
    return tuple(out)
