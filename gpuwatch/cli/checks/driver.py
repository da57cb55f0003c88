"""Checks of the source: the driver and each GPU."""

import statistics
from collections.abc import Iterator

from annotate.evidence import SIGNALS, Device, Lane, ProcessList, Reason, Visibility
from gpuwatch.cli.checks import Check, failed, passed, warned
from gpuwatch.clock import MonotonicClock
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DeviceLostError, SourceError
from gpuwatch.interfaces import Source
from gpuwatch.sampling.measure import measure
from gpuwatch.sampling.plan import PlanTargets, SamplingPlan
from gpuwatch.sources.nvml import compiled_loop


def checks(settings: Settings, source: Source | None, absence: str) -> Iterator[Check]:
    """Check the source; ``source`` is None if it could not be opened, and ``absence`` then is the reason."""
    if source is None:
        yield failed("driver", absence, "every window ends unproven until this is fixed; without a GPU, try: gpuwatch demo")
        return
    if source.simulated:
        yield warned("driver", f"SIMULATED: {source.name}", "the lines below describe simulated GPUs", source=source.name)
    try:
        devices = source.devices()
    except SourceError as error:
        yield failed("driver", str(error), "every window ends unproven until this is fixed")
        return
    first = devices[0]
    boards_count = sum(device.parent_uuid is None for device in devices)
    if not source.simulated:
        yield passed(
            "driver",
            f"{first.driver_version}, NVML {first.nvml_version or 'of unknown version'}, {boards_count} GPU{'' if boards_count == 1 else 's'}",
            source=source.name,
            driver_version=first.driver_version,
            nvml_version=first.nvml_version,
        )
        yield _binding()
        yield _loop()
    for silent in getattr(source, "unanswered", ()):
        name, _, why = silent.partition(": ")
        yield failed(name, f"listed, but not answering: {why}", "see dmesg; if it was lost: nvidia-smi --gpu-reset, or reboot")
    for device in devices:
        if device.parent_uuid is not None:
            found = f"{device.name}: watched through its board, whose clock, power and heat are shared with its neighbours"
            yield warned(_name(device), found, "for proof, measure on a whole GPU", uuid=device.uuid, board=device.parent_uuid)
            continue
        try:
            plan = measure(source, device, MonotonicClock(), PlanTargets(budget_ratio=settings.budget_ratio))
            process_list = source.read_process_list(device.uuid)
            lock_mhz = source.read(device.uuid, Lane.SLOW, ("sm_clock_lock_mhz",)).sm_clock_lock_mhz
        except SourceError as error:
            reason = error.reason if isinstance(error, DeviceLostError) else str(error)
            yield failed(
                _name(device), f"lost: {reason}", "reset it (nvidia-smi --gpu-reset) or reboot; dmesg may name the cause"
            )
            continue
        yield from _gpu(device, plan)
        yield from _setup(device, lock_mhz)
        yield _processes(device, process_list)


def _name(device: Device) -> str:
    """Return a short name: the UUIDs of simulated GPUs differ at the end, those of real GPUs at the start."""
    return f"GPU-…{device.uuid[-7:]}" if device.simulated else device.uuid[:12]


def _binding() -> Check:
    from importlib import metadata

    try:
        other = metadata.version("pynvml")
    except metadata.PackageNotFoundError:
        other = None
    official = metadata.version("nvidia-ml-py")
    if other is not None and int(other.partition(".")[0]) < 12:
        # The abandoned package pynvml has no module since version 12; older versions shadow the official one.
        return warned(
            "pynvml",
            f"nvidia-ml-py {official}, but the package pynvml {other} is installed too and may replace it",
            "pip uninstall pynvml && pip install --force-reinstall nvidia-ml-py",
            official=official,
            other=other,
        )
    return passed("pynvml", f"nvidia-ml-py {official}, NVIDIA's package", official=official)


def _loop() -> Check:
    library, why = compiled_loop.compiled()
    if library is None:
        return warned(
            "sampling loop",
            f"Python: {why}",
            "verdicts are the same, but watching needs more CPU time: install gcc, then gpuwatch again",
        )
    return passed("sampling loop", "compiled")


def _gpu(device: Device, plan: SamplingPlan) -> Iterator[Check]:
    dropped = [name for name in SIGNALS if name in plan.unanswered]
    facts = {
        "uuid": device.uuid,
        "name": device.name,
        "supported": sorted({name for names in plan.names.values() for name in names}),
        "dropped": {name: plan.reasons.get(name, "") for name in dropped},
        "cost_us": {name: cost / 1e3 for name, cost in plan.cost_ns.items()},
        "row_cost_us": {lane.value: cost / 1e3 for lane, cost in plan.row_cost_ns.items()},
        "refresh_ms": {name: period / 1e6 for name, period in plan.refresh_ns.items()},
        "active_period_ms": {lane.value: period / 1e6 for lane, period in plan.active_period_ns.items()},
    }
    blind = _blind(device, dropped)
    found = f"{device.name}: {len(SIGNALS) - len(dropped)} of {len(SIGNALS)} signals answered"
    if blind:
        yield failed(
            _name(device),
            f"{found}; without {', '.join(blind)} every window ends unproven",
            "measure on the host or with full pass-through: MIG, vGPU and WSL hide these",
            **facts,
        )
    elif dropped:
        names = ", ".join(dropped[:4]) + (f" and {len(dropped) - 4} more" if len(dropped) > 4 else "")
        yield warned(_name(device), f"{found}; not {names}", "rules that need these report `not checked`", **facts)
    else:
        yield passed(_name(device), found, **facts)
    yield _speed(device, plan)


# Signals for the rules that every claim requires: any of these counters, or a sampled reason that the GPU can report.
_NEEDED: tuple[tuple[tuple[str, ...], Reason], ...] = (
    (("power_cap_ns", "power_violation_ns"), Reason.SW_POWER_CAP),
    (("sw_thermal_ns", "thermal_violation_ns"), Reason.SW_THERMAL),
    (("hw_thermal_ns",), Reason.HW_THERMAL),
    ((), Reason.HW_SLOWDOWN),  # has no counter
)


def _blind(device: Device, dropped: list[str]) -> list[str]:
    blind: list[str] = [name for name in ("sm_clock_mhz", "event_reasons_mask") if name in dropped]
    if "event_reasons_mask" in blind:  # without the mask, hardware slow-downs are invisible and counters do not help
        return blind
    known_mask = device.supported_reasons_mask
    for counters, reasons in _NEEDED:
        if known_mask is not None and reasons & ~known_mask and all(name in dropped for name in counters):
            named = " and ".join((reason.name or "").lower() for reason in reasons)
            blind.append(" or ".join((*counters, f"the reason {named}")))
    return blind


_PULSE_WORDS = {"sm_clock_mhz": "clock", "event_reasons_mask": "reasons"}


def _speed(device: Device, plan: SamplingPlan) -> Check:
    row_us, period_ms = plan.row_cost_ns.get(Lane.FAST, 0) / 1e3, plan.active_period_ns[Lane.FAST] / 1e6
    taken = f"in a window a fast reading is taken every {period_ms:g} ms and costs {row_us:.0f} µs"
    if Lane.PULSE in plan.active_period_ns:
        pulse_us, pulse_ms = plan.row_cost_ns.get(Lane.PULSE, 0) / 1e3, plan.active_period_ns[Lane.PULSE] / 1e6
        words = " and ".join(_PULSE_WORDS.get(name, name) for name in plan.names[Lane.PULSE])
        taken = (
            f"in a window {words} are read every {pulse_ms:g} ms ({pulse_us:.0f} µs),"
            f" the rest of the fast lane every {period_ms:g} ms ({row_us:.0f} µs)"
        )
    refresh = [plan.refresh_ns[name] / 1e6 for name in ("sm_clock_mhz", "power_w", "power_cap_ns") if name in plan.refresh_ns]
    fresh = (
        f"values change every {statistics.median(refresh):.0f} ms"
        if refresh
        else "the refresh period of values is visible only under load"
    )
    found = f"{taken}; {fresh}"
    if reasons := [plan.reasons[lane] for lane in (Lane.PULSE, Lane.FAST) if lane in plan.reasons]:
        return warned(
            f"{_name(device)} speed", f"{found} ({'; '.join(reasons)})", "raise sampling.budget, or accept fewer readings"
        )
    return passed(f"{_name(device)} speed", found)


def _setup(device: Device, lock_mhz: int | None) -> Iterator[Check]:
    name = f"{_name(device)} setup"
    if device.persistence_mode is False:
        yield warned(
            name, "persistence mode is off: the first window after a pause includes the driver start", "sudo nvidia-smi -pm 1"
        )
    if device.mig_mode:
        yield warned(
            name,
            "MIG is on: neighbours on the same board share its power, clock and heat",
            "for proof, measure on a whole GPU: sudo nvidia-smi -mig 0",
        )
    limit_w, usual_w = device.power_limit_w, device.power_limit_default_w
    if limit_w is not None and usual_w is not None and limit_w < usual_w:
        yield warned(
            name,
            f"the power limit is {limit_w:g} W, below the default of {usual_w:g} W",
            f"state it with the number, or: sudo nvidia-smi -pl {usual_w:g}",
        )
    if lock_mhz is not None and device.sm_clock_max_mhz is not None and lock_mhz < device.sm_clock_max_mhz:
        yield warned(
            name,
            f"the SM clock is held at {lock_mhz} of {device.sm_clock_max_mhz} MHz",
            "claim fixed-clock, or: sudo nvidia-smi -rgc -rac",
        )
    facts = {
        key: getattr(device, key)
        for key in (
            "persistence_mode",
            "mig_mode",
            "ecc_mode",
            "compute_mode",
            "virtualization",
            "power_limit_w",
            "power_limit_default_w",
            "sm_clock_max_mhz",
            "temperature_slowdown_c",
        )
    }
    known = ", ".join(
        text
        for text in (
            f"limit {limit_w:g} W" if limit_w is not None else "",
            f"maximum {device.sm_clock_max_mhz} MHz" if device.sm_clock_max_mhz is not None else "",
            f"slow-down at {device.temperature_slowdown_c} °C" if device.temperature_slowdown_c is not None else "",
            f"virtualisation {device.virtualization}" if device.virtualization else "",
        )
        if text
    )
    yield passed(name, known or "no limits known", **facts, sm_clock_lock_mhz=lock_mhz)


def _processes(device: Device, process_list: ProcessList) -> Check:
    name, count = f"{_name(device)} processes", len(process_list.processes)
    if count:
        return warned(
            name, f"{count} running now", "a benchmark next to these is flagged or rejected; list them: nvidia-smi", count=count
        )
    # An empty list proves nothing if processes may be missing in it.
    if process_list.visibility is Visibility.UNKNOWN:
        return warned(
            name, "the driver does not list its processes", "no window can prove that it was alone on this GPU", count=None
        )
    if process_list.visibility is Visibility.NAMESPACE:
        return passed(name, "no process of this container now; other processes are not visible", count=0)
    return passed(name, "no process now", count=0)
