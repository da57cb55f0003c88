"""Counters of both sides: ncu where it is permitted, else GPM over a run of each kernel alone, else none."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, TypeAlias

from annotate.evidence import Device, Lane
from gpuwatch.diff import ncu_process
from gpuwatch.diff.kernel_counters import REPEATS, Counters, Readings
from gpuwatch.diff.ncu_process import Asked, CounterPermission
from gpuwatch.diff.timing_process import TimingProcess
from gpuwatch.errors import SourceError, UsageError
from gpuwatch.interfaces import Source

SideName: TypeAlias = Literal["a", "b"]
# The driver's samples are some 130 ms old: a run begins this long before its first one.
LEAD_S = 0.4
_TURN_S = 1.0  # so that each side runs for 3 s
_SIGNALS = {
    "sm_activity_ratio": "sm_activity_ratio",
    "dram_activity_ratio": "dram_activity_ratio",
    "tensor_activity_ratio": "tensor_activity_ratio",
    "occupancy_ratio": "sm_occupancy_ratio",
}
_FIRST_WITH_GPM = 9.0  # compute capability


def has_gpm(device: Device) -> bool:
    """Return True for a GPU of a generation with GPM."""
    return float(device.compute_capability or 0) >= _FIRST_WITH_GPM


def collect(
    pair: TimingProcess,
    permission: CounterPermission,
    asked: Asked,
    open_source: Callable[[], Source],
    say: Callable[[str], None],
) -> Counters:
    """Say what counts, and count.

    Raises UsageError: when ``asked`` is ncu or require, and the counters cannot be had.
    """
    kind, says = permission.choose(asked, has_gpm=has_gpm(pair.device))
    if asked != "off":
        say(f"counters: {says}")
    if kind == "ncu":
        try:
            return Counters(
                "ncu", says, *(ncu_process.count(permission.ncu or "ncu", pair.once_command(side)) for side in _SIDES)
            )
        except ncu_process.CountersRefusedError as error:
            return collect(pair, replace(permission, why_not=str(error)), asked, open_source, say)
    if kind == "none":
        return Counters("none", says)
    try:
        source = open_source()
        try:
            readings = read_gpm(pair, source)
        finally:
            source.close()
    except (SourceError, UsageError) as error:  # also of a side that fails when it runs again
        readings, says = ({}, {}), f"{says}; GPM: {error}"
    if not any(readings):
        if asked == "require":
            raise UsageError(f"--counters require: {says}; GPM gave no reading")
        return Counters("none", f"none: {says}; GPM gave no reading")
    return Counters("GPM", says, *readings)


_SIDES: tuple[SideName, SideName] = ("a", "b")


def read_gpm(pair: TimingProcess, source: Source) -> tuple[Readings, Readings]:
    """Run the sides in turns and return the activity of each turn.  Raises SourceError: when the driver does not answer."""
    names = tuple(_SIGNALS.values())
    turns = {side: [] for side in _SIDES}  # type: dict[SideName, list[object]]
    for _ in range(REPEATS):
        for side in _SIDES:
            pair.run_alone(side, LEAD_S)
            source.read(pair.device.uuid, Lane.SLOW, names)
            pair.run_alone(side, _TURN_S)
            turns[side].append(source.read(pair.device.uuid, Lane.SLOW, names))
    a, b = (
        {name: tuple(getattr(turn, signal) for turn in turns[side]) for name, signal in _SIGNALS.items()} for side in _SIDES
    )
    return tuple({name: values for name, values in each.items() if None not in values} for each in (a, b))  # type: ignore[return-value]
