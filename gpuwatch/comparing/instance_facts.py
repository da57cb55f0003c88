"""Facts of an instance that differ from the reference cards, and the numbers that each difference makes incomparable."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, TypeVar

from annotate.derived import pair_conditions
from annotate.evidence import Device
from gpuwatch.comparing.qualification import Qualification

_T = TypeVar("_T")

_MEMORY_RATIO = 0.02  # drivers reserve different amounts of memory
_KIND = {**pair_conditions.KIND, "ecc_mode": "ECC"}
_SETTINGS = {
    "power_limit_w": "power limit",
    "sm_clock_max_mhz": "maximum SM clock",
    "mem_clock_max_mhz": "maximum memory clock",
}
# Facts of the machine rather than the model.
_NOTED = {
    "driver_version": "driver",
    "vbios_version": "VBIOS",
    "virtualization": "virtualisation",
    "persistence_mode": "persistence mode",
    "compute_mode": "compute mode",
    "pcie_generation_max_count": "PCIe generation",
    "pcie_width_max_count": "PCIe lanes",
}


class Reach(StrEnum):
    """The numbers that a difference makes incomparable."""

    ALL = "all numbers"
    RAW = "numbers at the clock of the moment, not those at one clock"
    HOST = "numbers that wait for a launch"
    NONE = "none by itself"


@dataclass(frozen=True, slots=True)
class FactDifference:
    """A fact of this instance that differs from the reference cards' most common value."""

    name: str
    here: str
    reference: str
    reach: Reach


def fact_differences(card: Qualification, others: Sequence[Qualification]) -> Iterator[FactDifference]:
    """Yield the known facts that differ from the other cards' most common values."""
    usual = _usual_device([each.device for each in others])
    for names, reach, tolerance in ((_KIND, Reach.ALL, 0.0), (_SETTINGS, Reach.RAW, 0.5), (_NOTED, Reach.NONE, 0.0)):
        for each in pair_conditions.differences(usual, card.device, names, tolerance=tolerance):
            yield FactDifference(each.name, each.b, each.a, reach)
    sizes = (card.device.memory_total_bytes, usual.memory_total_bytes)
    if sizes[0] and sizes[1] and abs(math.log(sizes[0] / sizes[1])) > _MEMORY_RATIO:
        yield FactDifference("memory", f"{sizes[0] / 2**30:.0f} GiB", f"{sizes[1] / 2**30:.0f} GiB", Reach.ALL)
    shared = (_is_shared(card.device), _is_shared(usual))
    if shared[0] != shared[1]:
        yield FactDifference("virtual GPU", "yes" if shared[0] else "no", "yes" if shared[1] else "no", Reach.ALL)
    # Here None means "no lock", and counts like a lock.
    locks = (card.sm_clock_lock_mhz, Counter(each.sm_clock_lock_mhz for each in others).most_common(1)[0][0])
    if locks[0] != locks[1]:
        yield FactDifference("SM clock lock", _lock_words(locks[0]), _lock_words(locks[1]), Reach.RAW)
    counts = [None if each.stamps is None else each.stamps.sms_count for each in (card, *others)]
    if counts[0] is not None and (usual_count := _usual(counts[1:])) is not None and counts[0] != usual_count:
        yield FactDifference("SMs", str(counts[0]), str(usual_count), Reach.ALL)
    yield from _versions(card.software, [each.software for each in others], Reach.NONE)
    yield from _versions(card.host, [each.host for each in others], Reach.NONE)


def _lock_words(lock_mhz: int | None) -> str:
    return f"{lock_mhz} MHz" if lock_mhz else "none"


def _is_shared(device: Device) -> bool:
    return "vgpu" in (device.virtualization or "")


def _versions(here: Mapping[str, str], theirs: Sequence[Mapping[str, str]], reach: Reach) -> Iterator[FactDifference]:
    for name, value in here.items():
        usual = _usual([each.get(name) for each in theirs])
        if usual is not None and usual != value:
            yield FactDifference(name, value, usual, reach)


def _usual_device(devices: Sequence[Device]) -> Device:
    usual: dict[str, Any] = {each.name: _usual([getattr(device, each.name) for device in devices]) for each in fields(Device)}
    return replace(devices[0], **usual)


def _usual(values: Sequence[_T | None]) -> _T | None:
    counted = Counter(value for value in values if value is not None).most_common(1)
    return counted[0][0] if counted else None
