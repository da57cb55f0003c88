"""The driver's own events: Xids and memory errors, for all GPUs at once."""

import ctypes
import threading
from collections.abc import Iterable, Mapping

from annotate.evidence import Event
from gpuwatch import clock
from gpuwatch.sources.nvml.binding import TIMEOUT, Api, Handle, asked, treat

# Bits as in nvml.h.  Clock changes (0x10) are not registered: under a power cap the driver sends dozens per second
# (docs/decisions/0003).
_KINDS: Mapping[int, str] = {
    0x0008: "xid", 0x0001: "ecc", 0x0002: "ecc", 0x0200: "ecc", 0x0400: "ecc", 0x0800: "ecc",
}  # fmt: skip
_ECC_TEXTS: Mapping[int, str] = {
    0x0001: "single-bit error", 0x0002: "double-bit error", 0x0200: "storm of single-bit errors",
    0x0400: "memory retired", 0x0800: "memory could not be retired",
}  # fmt: skip
_UNKNOWN_XID = 999


class EventWait:
    """One event set, registered for every board.  Events before the registration are lost."""

    def __init__(self, api: Api, boards: Iterable[tuple[str, Handle]], *, patience_s: float = 2.0) -> None:
        self._api = api
        self._patience_s = patience_s  # twice the longest wait for an event
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._uuids: dict[int, str] = {}
        self.kinds: dict[str, frozenset[str]] = {}  # by UUID: the kinds of events that the GPU can report
        self._set = asked(api, "nvmlEventSetCreate")
        if self._set is None:
            return
        for uuid, handle in boards:
            supported = asked(api, "nvmlDeviceGetSupportedEventTypes", handle) or 0
            taken = [bit for bit in _KINDS if bit & supported and self._register(handle, bit)]
            if taken:
                self._uuids[_address(handle)] = uuid
                self.kinds[uuid] = frozenset(_KINDS[bit] for bit in taken)

    def _register(self, handle: Handle, bit: int) -> bool:
        # One event per call: a refused event does not disable the others.
        try:
            self._api.nvmlDeviceRegisterEvents(handle, bit, self._set)
        except self._api.NVMLError:
            return False
        return True

    def wait(self, timeout_s: float, *, most: int = 256) -> tuple[Event, ...]:
        """Return at most ``most`` new events; wait at most ``timeout_s`` for the first.

        Raises SourceGoneError: when the driver is gone.
        """
        if not self._uuids:
            self._closing.wait(timeout_s)
            return ()
        found: list[Event] = []
        with self._lock:
            timeout_ms = max(0, round(timeout_s * 1000))
            while len(found) < most and not self._closing.is_set():
                try:
                    data = self._api.nvmlEventSetWait_v2(self._set, timeout_ms)
                except self._api.NVMLError as error:
                    if error.value != TIMEOUT:
                        self._failed(error, timeout_s)
                    break
                found += self._event(data)
                timeout_ms = 0
        return tuple(found)

    def _failed(self, error: Exception, timeout_s: float) -> None:
        if error.value not in (15, 16):  # type: ignore[attr-defined]  # the code does not identify the lost GPU; the lanes report it
            treat(error)
        self._closing.wait(timeout_s)

    def _event(self, data: object) -> list[Event]:
        address, bit, value = _address(data.device), data.eventType, data.eventData  # type: ignore[attr-defined]
        uuid, kind = self._uuids.get(address), _KINDS.get(bit)
        if uuid is None or kind is None:
            return []
        text = _ECC_TEXTS.get(bit)
        if kind == "xid" and value == _UNKNOWN_XID:
            text = "an Xid without a known number"
        return [Event(uuid=uuid, at_ns=clock.now_ns(), kind=kind, value=int(value), text=text)]

    def close(self) -> None:
        """Wait for a pending ``wait`` to return, then free the set; keep the set if that call hangs in the driver."""
        self._closing.set()
        if not self._lock.acquire(timeout=self._patience_s):
            return
        try:
            event_set, self._set = self._set, None
            self._uuids.clear()
            if event_set is not None:
                asked(self._api, "nvmlEventSetFree", event_set)
        finally:
            self._lock.release()


def _address(handle: Handle) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
