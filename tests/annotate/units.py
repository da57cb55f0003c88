"""The closed list of unit suffixes: the last word of a name is its unit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit: the symbol for people, and the base unit in Prometheus."""

    suffix: str
    text: str
    base: str
    base_per_unit: float


UNITS: dict[str, Unit] = {
    unit.suffix: unit
    for unit in (
        Unit("mhz", "MHz", "hertz", 1e6),
        Unit("w", "W", "watts", 1.0),
        Unit("j", "J", "joules", 1.0),
        Unit("c", "°C", "celsius", 1.0),
        Unit("bytes", "bytes", "bytes", 1.0),
        Unit("ns", "ns", "seconds", 1e-9),
        Unit("s", "s", "seconds", 1.0),
        Unit("ratio", "", "ratio", 1.0),
        Unit("count", "", "", 1.0),
        # A set of bits, and a position in a vendor's enumeration: neither is an amount, so neither converts.
        Unit("mask", "", "", 1.0),
        Unit("mode", "", "", 1.0),
    )
}


def unit_of(name: str) -> Unit | None:
    return UNITS.get(name.rpartition("_")[2])
