"""Xids from the kernel's log, for GPUs whose driver reports none, and for a GPU that fell off the bus.

Reading /dev/kmsg needs root, CAP_SYSLOG, or kernel.dmesg_restrict off.
"""

import logging
import os
import re
import select
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from annotate.evidence import Event, Lane
from gpuwatch.interfaces import Clock, Sink, Sweep
from gpuwatch.utf8 import clean_text

_log = logging.getLogger("gpuwatch.host.kernel_log")

KERNEL_LOG = Path("/dev/kmsg")
# The driver itself reports most Xids at the same time; the daemon waits 250 ms between a window's end and the judging.
_WAITS_FOR_DRIVER_NS = 100_000_000
_SAME_NS = 2_000_000_000
_RECORD_BYTES = 8192  # one read returns one record, of at most CONSOLE_EXT_LOG_MAX bytes
_TEXT_LENGTH = 200

# NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.\d)?\): (\d{1,6})(?:, *(.*))?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Xid:
    """One line of the driver in the kernel's log."""

    place: tuple[int, int, int]  # PCI domain, bus and device
    number: int
    text: str | None


def parse(record: str) -> Xid | None:
    """Return the Xid in a record of /dev/kmsg; None for any other record."""
    # prefix;message, then lines that begin with a space.  The time in the prefix is not the monotonic clock's.
    message = record.partition(";")[2].partition("\n")[0]
    found = _XID.search(message)
    if found is None:
        return None
    domain, bus, device, number, text = found.groups()
    return Xid((int(domain, 16), int(bus, 16), int(device, 16)), int(number), (text or "").strip()[:_TEXT_LENGTH] or None)


def opened(path: Path = KERNEL_LOG) -> int | None:
    """Return a descriptor that reads only new records; None if the log cannot be opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        _log.debug("%s: %s", path, error.strerror)
        return None
    try:
        os.lseek(descriptor, 0, os.SEEK_END)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


class KernelLog:
    """The only thread that reads the kernel's log; also a sink, to skip Xids that the driver itself reported."""

    def __init__(
        self,
        descriptor: int,
        places: Callable[[], Mapping[tuple[int, int, int], str]],
        sinks: Sequence[Sink],
        clock: Clock,
        stop: threading.Event,
        *,
        nap_s: float = 10.0,  # the longest delay of ``stop``
    ) -> None:
        self._descriptor = descriptor
        self._places = places  # UUIDs of the GPUs, by PCI address
        self._sinks = tuple(sinks)
        self._clock = clock
        self._stop = stop
        self._nap_s = nap_s
        self._reported_ns: dict[tuple[str, int | None], int] = {}
        self._waiting: list[Event] = []
        self._thread = threading.Thread(target=self._run, name="gpuwatch-kernel-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take(self, sweep: Sweep) -> None:
        """Remember the driver's own Xids (a sink)."""
        if isinstance(sweep.observed, Event) and sweep.observed.kind == "xid":
            self._reported_ns[(sweep.uuid, sweep.observed.value)] = sweep.observed.at_ns

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        try:
            while not self._stop.is_set():
                nap_s = _WAITS_FOR_DRIVER_NS / 1e9 if self._waiting else self._nap_s
                if poll.poll(nap_s * 1000) and not self._read():
                    break
                self._give()
        finally:
            os.close(self._descriptor)

    def _read(self) -> bool:
        """Read one record; return False after a read error, or at an end of file, which a kernel log never reaches."""
        try:
            record = os.read(self._descriptor, _RECORD_BYTES)
        except (BlockingIOError, BrokenPipeError):  # no complete record, or overwritten before the read
            return True
        except OSError as error:
            _log.warning("the kernel's log cannot be read any more: %s", error.strerror)
            return False
        xid = parse(clean_text(record))
        uuid = self._places().get(xid.place) if xid else None
        if xid and uuid:
            text = f"kernel log: {xid.text}" if xid.text else "kernel log"
            self._waiting.append(Event(uuid=uuid, at_ns=self._clock.now_ns(), kind="xid", value=xid.number, text=text))
        return bool(record)

    def _give(self) -> None:
        now_ns = self._clock.now_ns()
        due = [event for event in self._waiting if now_ns - event.at_ns >= _WAITS_FOR_DRIVER_NS]
        self._waiting = [event for event in self._waiting if event not in due]
        for event in due:
            reported_ns = self._reported_ns.get((event.uuid, event.value))
            if reported_ns is not None and abs(event.at_ns - reported_ns) < _SAME_NS:
                continue
            sweep = Sweep(event.uuid, Lane.EVENTS, event.at_ns, 0, 0, event)
            for sink in self._sinks:
                sink.take(sweep)
