"""Tests of Xids from the kernel's log, through a socket that separates records like /dev/kmsg."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from annotate.evidence import Event, Lane
from gpuwatch.clock import MonotonicClock
from gpuwatch.host import kernel_log
from gpuwatch.host.kernel_log import KernelLog, Xid
from gpuwatch.interfaces import Sweep
from tests.gpuwatch.scripted import UUID, Kept

OFF_THE_BUS = "4,811,98765,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (OFF_THE_BUS, Xid((0, 0x3B, 0), 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")),
        ("4,1,2,-;NVRM: Xid (PCI:0008:01:00): 43\n SUBSYSTEM=pci\n", Xid((8, 1, 0), 43, None)),
        ("4,1,2,-;NVRM: Xid (0000:03:00): 14, Channel 00000001", Xid((0, 3, 0), 14, "Channel 00000001")),
        ("4,1,2,-;NVRM: Xid (PCI:00000000:AF:00.0): 31, pid=7", Xid((0, 0xAF, 0), 31, "pid=7")),
        ("4,1,2,-;usb 1-1: new device NVRM: Xid", None),
        ("NVRM: Xid (PCI:0000:3b:00): 79", None),  # not a record of the kernel
        ("", None),
    ],
)
def test_only_the_drivers_xid_records_are_parsed(record: str, found: Xid | None) -> None:
    assert kernel_log.parse(record) == found


@contextmanager
def reading(kept: Kept) -> Iterator[tuple[socket.socket, KernelLog]]:
    stop = threading.Event()
    kernel, here = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with kernel:
        log = KernelLog(here.detach(), lambda: {(0, 0x3B, 0): UUID}, [kept], MonotonicClock(), stop)
        log.start()
        yield kernel, log
        stop.set()


def test_only_xids_of_watched_gpus_reach_the_sinks() -> None:
    kept = Kept()
    with reading(kept) as (kernel, _):
        for record in ("6,1,2,-;audit: hello", "4,1,2,-;NVRM: Xid (PCI:0000:3c:00): 13, not ours", OFF_THE_BUS):
            kernel.sendall(record.encode())
        assert kept.wait_for(lambda sweeps: len(sweeps) == 1)
    (sweep,) = kept.sweeps
    assert sweep.lane is Lane.EVENTS
    assert isinstance(sweep.observed, Event)
    assert (sweep.observed.kind, sweep.observed.value) == ("xid", 79)
    assert (sweep.observed.text or "").endswith("GPU has fallen off the bus.")


def test_xid_that_the_driver_reports_too_is_counted_once() -> None:
    kept = Kept()
    with reading(kept) as (kernel, log):
        kernel.sendall(OFF_THE_BUS.encode())
        now_ns = MonotonicClock().now_ns()
        log.take(Sweep(UUID, Lane.EVENTS, now_ns, 0, 0, Event(uuid=UUID, at_ns=now_ns, kind="xid", value=79)))
        kernel.sendall(OFF_THE_BUS.replace("79", "48").encode())
        assert kept.wait_for(lambda sweeps: len(sweeps) == 1)
    assert [sweep.observed.value for sweep in kept.sweeps if isinstance(sweep.observed, Event)] == [48]


def test_unreadable_kernel_log_gives_no_descriptor(tmp_path: Path) -> None:
    assert kernel_log.opened(tmp_path / "none") is None


@pytest.mark.skipif(os.getuid() != 0 or not kernel_log.KERNEL_LOG.exists(), reason="needs root and the kernel's log")
def test_real_kernel_log_is_read_from_its_end() -> None:
    descriptor = kernel_log.opened()
    if descriptor is None:
        pytest.skip("this container cannot read the kernel's log")
    with pytest.raises(BlockingIOError):
        os.read(descriptor, 8192)
    os.close(descriptor)
