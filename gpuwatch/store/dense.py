"""The driver's dense power record as one packed blob a second: two bytes of time and two of power a sample."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

STEP_NS = 10_000  # time is kept to 10 us; the record is 20 ms apart
PER_W = 16  # power to 1/16 W up to 4 kW; the sensor is good to 5 W
IDLE_SPAN_W = 3.0  # a second in which power moved less is kept as its two ends

_HEAD = struct.Struct("<qH")


def pack(at_ns: Sequence[int], power_w: Sequence[float]) -> bytes:
    """One blob of samples in ascending order of time; a distance over 0.6 s starts anew, so give at most that far apart."""
    distances = array("H", (min(0xFFFF, (b - a) // STEP_NS) for a, b in zip(at_ns, at_ns[1:], strict=False)))
    power = array("H", (min(0xFFFF, max(0, round(w * PER_W))) for w in power_w))
    return _HEAD.pack(at_ns[0], len(power)) + distances.tobytes() + power.tobytes()


def unpack(blob: bytes) -> tuple[list[int], list[float]]:
    """Times in nanoseconds and power in watts.  Raises ValueError for a torn blob."""
    if len(blob) < _HEAD.size:
        raise ValueError("a torn power record")
    at_ns, count = _HEAD.unpack_from(blob)
    if len(blob) != _HEAD.size + 2 * (2 * count - 1):
        raise ValueError("a torn power record")
    distances, power = array("H"), array("H")
    distances.frombytes(blob[_HEAD.size : _HEAD.size + 2 * (count - 1)])
    power.frombytes(blob[_HEAD.size + 2 * (count - 1) :])
    times = [at_ns]
    for distance in distances:
        times.append(times[-1] + distance * STEP_NS)
    return times, [value / PER_W for value in power]


def stretches(at_ns: Sequence[int], power_w: Sequence[float]) -> list[tuple[Sequence[int], Sequence[float]]]:
    """The record cut where samples lie too far apart for one blob, each idle stretch thinned to its two ends."""
    cuts = [0, *(i + 1 for i, (a, b) in enumerate(zip(at_ns, at_ns[1:], strict=False)) if b - a >= 0xFFFF * STEP_NS), len(at_ns)]
    out: list[tuple[Sequence[int], Sequence[float]]] = []
    for begin, end in zip(cuts, cuts[1:], strict=False):
        times, power = at_ns[begin:end], power_w[begin:end]
        if not times:
            continue
        near = times[-1] - times[0] < 0xFFFF * STEP_NS
        if len(times) > 2 and near and max(power) - min(power) < IDLE_SPAN_W:
            times, power = (times[0], times[-1]), (power[0], power[-1])
        out.append((times, power))
    return out
