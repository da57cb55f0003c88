"""PCI addresses of GPUs, which give the order in which a driver lists them."""

import re
from collections.abc import Iterable

from annotate.evidence import Device


def place(pci_bus_id: str | None) -> tuple[int, int, int] | None:
    """Return domain, bus and device from ``00000000:3B:00.0``, NVML's form; None for other text."""
    found = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.\d", pci_bus_id or "", re.IGNORECASE)
    return (int(found[1], 16), int(found[2], 16), int(found[3], 16)) if found else None


def in_order(devices: Iterable[Device]) -> list[Device]:
    """Sort by PCI address; keep the given order if an address is missing."""
    given = list(devices)
    placed = [(at, device) for device in given if (at := place(device.pci_bus_id)) is not None]
    return given if len(placed) < len(given) else [device for _, device in sorted(placed, key=lambda each: each[0])]
