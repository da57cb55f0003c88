"""The GPUs that --gpu names, printed to standard error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from annotate.output.report import plain
from gpuwatch.cli import output
from gpuwatch.errors import DaemonError
from gpuwatch.host.named_gpus import choose_named, list_named

if TYPE_CHECKING:
    from annotate.evidence import Device
    from gpuwatch.config.settings import Settings


def choose(names: Sequence[str], devices: Iterable[Device], *, without: int = 0) -> tuple[str, ...]:
    """Return the UUIDs of the named GPUs, each once, and print the choice to standard error.

    ``without`` counts GPUs of the driver that ``devices`` lacks, which make an index uncertain.
    Raises UsageError: as ``choose_named``.
    """
    chosen = choose_named(names, list_named(devices), option="--gpu", missing_count=without)
    for gpu in chosen:
        address = f", PCI {gpu.device.pci_bus_id}" if gpu.device.pci_bus_id else ""
        output.say(plain(f"GPU {gpu.index}: {gpu.device.name}, {gpu.device.uuid}{address}"))
    return tuple(gpu.device.uuid for gpu in chosen)


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
