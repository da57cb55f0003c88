"""Target: a record of the kernel's log, whose text can be anything, gives an Xid with valid values, or None."""

from __future__ import annotations

from gpuwatch.host import kernel_log, pci


def target(data: bytes) -> None:
    record = data[:8192].decode("utf-8", "replace")
    found = kernel_log.parse(record)
    if found is not None:
        assert 0 <= found.number < 10**6
        assert found.text is None or 0 < len(found.text) <= 200
        assert all(0 <= part < 1 << 32 for part in found.place)
    place = pci.place(record)
    assert place is None or len(place) == 3
