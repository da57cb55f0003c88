"""The steps of a qualification: read the machine, run the probes, name the disturbances."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from annotate.evidence import Device, Lane, Process, ProcessList
from annotate.verdict import Verdict
from gpuwatch import clock
from gpuwatch.comparing.instance_probes import Probed, host_facts, run_probes
from gpuwatch.comparing.qualification import Qualification
from gpuwatch.config.settings import Settings
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.interfaces import Source
from gpuwatch.sources import has_driver, open_source

_CONTENTION, _OWN_WORK = "contention-", "contention-self"
_SHARED = ("timer-overhead",)  # equal for each card's probes
_SMALL_MEMORY_RATIO = 0.005  # share of the memory that a driver or a desktop may hold


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """A GPU as the driver reports it before the probes."""

    device: Device
    lock_mhz: int | None
    used_bytes: int | None
    process_list: ProcessList


def qualify(settings: Settings, say: Callable[[str], None]) -> Qualification:
    """Read the machine and run the probes; ``say`` takes a line about each probe.

    Raises GpuwatchError: when no GPU exists or is usable, or the driver does not list the GPU that CUDA uses.
    Raises UsageError: for a recording, which cannot run work.
    """
    if settings.source.startswith("replay"):
        raise UsageError("--source: expected auto, nvml or simulated for --qualify, found a recording")
    if settings.source == "auto" and not has_driver():
        raise GpuwatchError("selftest: expected an NVIDIA driver, found none; run `gpuwatch doctor` for the cause")
    begin_ns, begun_wall_s = clock.now_ns(), clock.wall_s()
    with closing(open_source(settings.source, clock.MonotonicClock())) as source:
        seen = {device.uuid: _look(source, device) for device in source.devices()}
        is_simulated = source.simulated
    probed = _simulated(settings.source) if is_simulated else run_probes(settings, say)
    here = _of_uuid(seen, probed.uuid)
    signs = () if is_simulated else tuple(signs_of_others(here))  # a simulated scene lists its own process, too
    return replace(
        qualification_of(here.device, probed, signs),
        sm_clock_lock_mhz=here.lock_mhz,
        visibility=here.process_list.visibility,
        host={} if is_simulated else host_facts(),
        measured_wall_s=begun_wall_s,
        took_s=(clock.now_ns() - begin_ns) / 1e9,
    )


def qualification_of(device: Device, probed: Probed, signs: Sequence[str] = ()) -> Qualification:
    """Return the qualification of a device; ``signs`` are signs of other work, seen before the probes."""
    hazards = {hazard.rule: hazard.says for each in probed.verdicts for hazard in each.hazards}
    others = [says for rule, says in hazards.items() if rule.startswith(_CONTENTION) and rule != _OWN_WORK]
    return Qualification(
        device=device,
        amounts=probed.amounts,
        missing=probed.missing,
        stamps=probed.stamps,
        neighbours=(*signs, *others),
        faults=tuple(_disturbances(probed.verdicts, "reject")),
        disturbances=tuple(_disturbances(probed.verdicts, "flag")),
        software=probed.software,
    )


def _simulated(spec: str) -> Probed:
    from gpuwatch.comparing.simulated_instance import probe_scene
    from gpuwatch.sources.simulated.scenes import DEFAULT_FLEET
    from gpuwatch.sources.simulated.simulated_source import scenes_named

    return probe_scene(scenes_named(spec.partition(":")[2] or DEFAULT_FLEET)[0])


def _look(source: Source, device: Device) -> SeenGpu:
    slow = source.read(device.uuid, Lane.SLOW, ("sm_clock_lock_mhz",))
    fast = source.read(device.uuid, Lane.FAST, ("memory_used_bytes",))
    processes = source.read_process_list(device.uuid, utilization=True)
    return SeenGpu(device, slow.sm_clock_lock_mhz, fast.memory_used_bytes, processes)


def _of_uuid(seen: dict[str, SeenGpu], uuid: str | None) -> SeenGpu:
    """Return the GPU that the probes used, by default the first.  Raises GpuwatchError: when the driver does not list the GPU.

    CUDA names a MIG instance by the same digits with another prefix.
    """
    if uuid is not None:
        for each, found in seen.items():
            if each.partition("-")[2].lower() == uuid.partition("-")[2].lower():
                return found
        raise GpuwatchError(f"selftest: expected the driver to list the GPU that CUDA uses, {uuid}, found {', '.join(seen)}")
    if not seen:
        raise GpuwatchError("selftest: expected a GPU, found none; run `gpuwatch doctor` for the cause")
    return next(iter(seen.values()))


def signs_of_others(seen: SeenGpu) -> Iterator[str]:
    """Yield the processes on the GPU before this process created a context, and memory that no listed process holds."""
    for process in seen.process_list.processes:
        if _is_neighbour(process, seen.device):
            yield f"another process is on this GPU: {_words(process)}"
    hidden_bytes = _hidden_bytes(seen)
    if hidden_bytes:
        yield f"{hidden_bytes / 2**20:.0f} MiB are in use, but no listed process holds them: another container's memory, or a leak"


def _is_neighbour(process: Process, device: Device) -> bool:
    """Return True if a process computes or holds more memory than a desktop; also if a size of memory is unknown."""
    if process.utilization_ratio:
        return True
    known = process.memory_bytes is not None and device.memory_total_bytes is not None
    return not known or (process.memory_bytes or 0) > _SMALL_MEMORY_RATIO * (device.memory_total_bytes or 0)


def _hidden_bytes(seen: SeenGpu) -> int:
    """Return the memory beyond the driver's reserve that no listed process holds; 0 if unknown, or small for a driver."""
    used, reserved, whole = seen.used_bytes, seen.device.memory_reserved_bytes, seen.device.memory_total_bytes
    held = [process.memory_bytes for process in seen.process_list.processes]
    if used is None or reserved is None or whole is None or None in held:
        return 0
    hidden_bytes = used - reserved - sum(filter(None, held))
    return hidden_bytes if hidden_bytes > _SMALL_MEMORY_RATIO * whole else 0


def _words(process: Process) -> str:
    return f"{process.name or 'unnamed'} (pid {process.pid})"


def _disturbances(verdicts: list[Verdict], severity: str) -> Iterator[str]:
    """Yield each rule's hazard of this severity, without contention and the timer's overhead.

    For "flag", also yield the evidence that windows lack.
    """
    found = {
        hazard.rule: f"{hazard.rule} in {verdict.label or 'a probe'}: {hazard.says}"
        for verdict in verdicts
        for hazard in verdict.hazards
        if hazard.severity == severity and hazard.rule not in _SHARED and not hazard.rule.startswith(_CONTENTION)
    }
    yield from found.values()
    if severity == "flag":
        yield from sorted({f"{verdict.label or 'a probe'}: {verdict.why}" for verdict in verdicts if verdict.why})
