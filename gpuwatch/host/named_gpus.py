"""The GPUs that --gpu and ``gpus=`` name: by the driver's index, UUID, either end of a UUID, or PCI address."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from annotate.output.terminal_text import shorten_uuid
from gpuwatch.errors import UsageError
from gpuwatch.host import pci

if TYPE_CHECKING:
    from annotate.evidence import Device

MEANING = "an index, a UUID or an end of it, or a PCI address"
_PCI = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.[0-7])?\Z", re.IGNORECASE)
_INDEX_LENGTH = 2  # digits: no machine has a hundred GPUs, and three digits may begin a UUID


@dataclass(frozen=True, slots=True)
class NamedGpu:
    """A GPU with its index, which follows the order of PCI addresses; MIG instances share their board's index."""

    index: int
    device: Device


def list_named(devices: Iterable[Device]) -> list[NamedGpu]:
    """Return the GPUs with their indices, each GPU once."""
    known = pci.in_order({device.uuid: device for device in devices}.values())
    places = list(dict.fromkeys(_place(device) for device in known))
    return [NamedGpu(places.index(_place(device)), device) for device in known]


def choose_named(names: Sequence[str], known: Sequence[NamedGpu], *, option: str, missing_count: int = 0) -> list[NamedGpu]:
    """Return the named GPUs, each once.

    Args:
        names: Names of GPUs.
        known: GPUs of this machine.
        option: Option or argument for the error message, ``--gpu`` or ``gpus``.
        missing_count: GPUs of the driver that are not known; these make an index uncertain.

    Raises UsageError: for a name of no GPU or of several, and for an uncertain index.
    """
    chosen: dict[str, NamedGpu] = {}
    for name in names:
        if missing_count and _is_index(name):
            absent = "1 GPU does not answer" if missing_count == 1 else f"{missing_count} GPUs do not answer"
            raise UsageError(f"{option}: expected a UUID while {absent}, found index {name}")
        matching = [gpu for gpu in known if is_named(name.strip(), gpu.device, gpu.index)]
        if len(matching) != 1:
            raise UsageError(f"{option}: {_refusal(name, known, len(matching), option)}")
        chosen[matching[0].device.uuid] = matching[0]
    return list(chosen.values())


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


def _refusal(name: str, known: Sequence[NamedGpu], count: int, option: str) -> str:
    parts = [part.strip() for part in name.split(",") if part.strip()]
    if len(parts) > 1:
        several = " ".join(f"{option} {part}" for part in parts) if option.startswith("-") else f"{option}={parts}"
        return f"expected one GPU for each name, found {name!r}; write: {several}"
    here = ", ".join(f"{gpu.index} ({shorten_uuid(gpu.device.uuid)})" for gpu in known) or "none"
    wrong = f"{name!r}, which names {count} GPUs" if count else repr(name)
    return f"expected {MEANING}, found {wrong}; GPUs here: {here}"


def _is_index(name: str) -> bool:
    return name.strip().isdecimal() and len(name.strip()) <= _INDEX_LENGTH


def _address(text: str) -> tuple[int, ...] | None:
    """Return domain (0 if absent), bus and device of a PCI address; None for other text."""
    found = _PCI.match(text)
    return None if found is None else tuple(int(part or "0", 16) for part in found.groups())


def _place(device: Device) -> str:
    """Return the GPU's PCI address, which all MIG instances of a board share; without one, the UUID."""
    return device.pci_bus_id or device.uuid
