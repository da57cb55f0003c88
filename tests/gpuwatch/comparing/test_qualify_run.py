"""Tests of signs of other work before the probes, from a driver's lists and memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from annotate.evidence import Process, ProcessList
from gpuwatch.comparing.qualify_run import SeenGpu, signs_of_others
from tests.gpuwatch.comparing.cards import healthy

MIB = 1 << 20


def signs(process: Process | None, used_mib: int = 700) -> list[str]:
    """Return the signs on a GPU of 141 GiB, whose driver reserves 600 MiB, with this process."""
    device = replace(healthy().device, memory_reserved_bytes=600 * MIB, memory_total_bytes=144_000 * MIB)
    processes = () if process is None else (process,)
    listed = ProcessList(uuid=device.uuid, at_ns=0, took_ns=0, processes=processes)
    return list(signs_of_others(SeenGpu(device, None, used_mib * MIB, listed)))


@pytest.mark.parametrize(
    ("process", "is_named"),
    [
        (Process(pid=7, name="train", memory_bytes=4096 * MIB), True),
        (Process(pid=7, name="train", memory_bytes=MIB, utilization_ratio=0.3), True),
        (Process(pid=7, name="unknown"), True),
        (Process(pid=7, name="Xorg", memory_bytes=50 * MIB, utilization_ratio=0.0), False),
    ],
)
def test_working_or_large_processes_are_neighbours(process: Process, is_named: bool) -> None:
    assert signs(process) == ([f"another process is on this GPU: {process.name} (pid 7)"] if is_named else [])


def test_memory_of_unlisted_processes_is_a_sign() -> None:
    assert signs(None) == []
    assert signs(None, 9000) == ["8400 MiB are in use, but no listed process holds them: another container's memory, or a leak"]
    assert signs(Process(pid=7, name="Xorg", memory_bytes=100 * MIB), 9000)[0].startswith("8300 MiB")
    assert len(signs(Process(pid=7, name="train", memory_bytes=8400 * MIB), 9000)) == 1
