"""Tests of a GPU's PCI address, and of the order of GPUs."""

from __future__ import annotations

from dataclasses import replace

from gpuwatch.host import pci
from tests.gpuwatch.store.streams import DEVICE


def test_pci_address_is_parsed_in_both_spellings() -> None:
    assert pci.place("00000000:3B:00.0") == (0, 0x3B, 0)
    assert pci.place("0008:01:00.0") == (8, 1, 0)
    assert pci.place(None) is None
    assert pci.place("nonsense") is None


def test_gpus_are_ordered_by_pci_address() -> None:
    """GPUs are sorted by PCI address, or kept in the given order if an address is missing."""
    first, second = (
        replace(DEVICE, uuid=uuid, pci_bus_id=at) for uuid, at in (("GPU-b", "0000:3B:00.0"), ("GPU-a", "0000:AF:00.0"))
    )
    nowhere = replace(DEVICE, uuid="GPU-c", pci_bus_id=None)
    assert pci.in_order([second, first]) == [first, second]
    assert pci.in_order([second, nowhere, first]) == [second, nowhere, first]
