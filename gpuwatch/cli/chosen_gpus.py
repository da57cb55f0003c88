"""The GPUs that --gpu names: by the driver's index, UUID, either end of a UUID, or PCI address."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from annotate.output.report import plain
from gpuwatch.cli import output
from gpuwatch.errors import DaemonError, UsageError
from gpuwatch.host import pci

if TYPE_CHECKING:
    from annotate.evidence import Device
    from gpuwatch.config.settings import Settings

_PCI = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.[0-7])?\Z", re.IGNORECASE)
_INDEX_LENGTH = 2  # digits: no machine has a hundred GPUs, and three digits may begin a UUID


def choose(names: Sequence[str], devices: Iterable[Device], *, without: int = 0) -> tuple[str, ...]:
    """Return the UUIDs of the named GPUs, each once, and print the choice to standard error.

    ``without`` counts GPUs of the driver that ``devices`` lacks, which make an index uncertain.
    Raises UsageError: for a name of no GPU or of several, and for an uncertain index.
    """
    known = pci.in_order({device.uuid: device for device in devices}.values())
    places = list(dict.fromkeys(_place(device) for device in known))
    chosen: dict[str, Device] = {}
    for name in names:
        matching = [device for device in known if is_named(name.strip(), device, places.index(_place(device)))]
        if without and _is_index(name):
            raise UsageError(
                f"--gpu: expected a UUID while {output.counted(without, 'GPU')} does not answer, found index {name}"
            )
        if len(matching) != 1:
            wrong = f"{name!r}, which names {len(matching)} of them" if matching else repr(name)
            here = "; ".join(_words(device, places) for device in known) or "none"
            raise UsageError(
                f"--gpu: expected one GPU by index, UUID, either end of a UUID, or PCI address, found {wrong}; GPUs here: {here}"
            )
        chosen[matching[0].uuid] = matching[0]
    for device in chosen.values():
        output.say(_words(device, places))
    return tuple(chosen)


def choose_of_daemon(names: Sequence[str], settings: Settings) -> tuple[str, ...]:
    """Call ``choose`` with the GPUs that the daemon watches; return the names if no daemon answers or it watches no GPU.

    Raises UsageError: as ``choose``.
    """
    from gpuwatch.view.live import Looker

    try:
        with closing(Looker(settings)) as looker:
            live = looker.look()
    except DaemonError:
        return tuple(names)  # the window's verdict gives the reason
    if not live.gpus:
        return tuple(names)
    return choose(names, (gpu.device for gpu in live.gpus), without=len(live.unanswered) + live.gpus_left_out_count)


def is_named(name: str, device: Device, index: int) -> bool:
    """Return True if a name is this GPU's index, UUID, one or both ends of the UUID, or PCI address."""
    if _is_index(name):
        return int(name) == index
    uuid, word = device.uuid.lower(), name.lower()
    if (address := _address(word)) is not None:
        return address == pci.place(device.pci_bus_id)
    begin, _, end = word.partition("…")  # as verdicts and `doctor` shorten a UUID
    if "…" in word and end:
        return uuid.startswith((begin, f"gpu-{begin}")) and uuid.endswith(end)
    return uuid.startswith((begin, f"gpu-{begin}")) or uuid.endswith(begin)


def _is_index(name: str) -> bool:
    return name.strip().isdecimal() and len(name.strip()) <= _INDEX_LENGTH


def _address(text: str) -> tuple[int, ...] | None:
    """Return domain (0 if absent), bus and device of a PCI address; None for other text."""
    found = _PCI.match(text)
    return None if found is None else tuple(int(part or "0", 16) for part in found.groups())


def _place(device: Device) -> str:
    """Return the GPU's PCI address, which all MIG instances of a board share; without one, the UUID."""
    return device.pci_bus_id or device.uuid


def _words(device: Device, places: Sequence[str]) -> str:
    address = f", PCI {device.pci_bus_id}" if device.pci_bus_id else ""
    return plain(f"GPU {places.index(_place(device))}: {device.name}, {device.uuid}{address}")
