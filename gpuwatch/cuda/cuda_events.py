"""CUDA events by number: handles of the driver's library, or torch's event objects."""

import ctypes
import gc
from array import array
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gpuwatch.cuda.driver import raw_stream

Numbers = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.float64]
_LIBRARY = "libcuda.so.1"
_NOT_READY = 600  # CUDA_ERROR_NOT_READY
_spare: dict[tuple[int, int], list[int]] = {}  # handles by context, reused by the next window


class Events(Protocol):
    """Events on torch's current stream, numbered from 0."""

    def reserve(self, count: int) -> None:
        """Make room for the events below this number, if that speeds up the loop."""

    def prepare(self, number: int) -> None:
        """Create the events up to this number."""

    def record(self, number: int) -> None:
        """Record a prepared event."""

    def synchronize(self, number: int) -> None:
        """Wait until the work before an event is done."""

    def is_done(self, number: int) -> bool:
        """Return True if the work before an event is done."""

    def elapsed_s(self, firsts: Numbers, lasts: Numbers) -> Seconds:
        """Return the seconds between pairs of finished events."""

    def close(self) -> None:
        """Release the events; the caller uses none afterwards."""


class TorchEvents:
    """Events of torch: Python's collector tracks these objects, so creating events triggers young collections."""

    def __init__(self, cuda: Any) -> None:  # torch.cuda has no types
        self._cuda = cuda
        self._events: list[Any] = []

    def reserve(self, count: int) -> None:
        self.prepare(count - 1)
        if gc.isenabled():
            gc.collect(0)  # now, because it could otherwise run inside a timed iteration

    def prepare(self, number: int) -> None:
        while len(self._events) <= number:
            self._events.append(self._cuda.Event(enable_timing=True))

    def record(self, number: int) -> None:
        self._events[number].record()

    def synchronize(self, number: int) -> None:
        self._events[number].synchronize()

    def is_done(self, number: int) -> bool:
        return bool(self._events[number].query())

    def elapsed_s(self, firsts: Numbers, lasts: Numbers) -> Seconds:
        events = self._events
        pairs = zip(firsts.tolist(), lasts.tolist(), strict=True)
        return np.array([events[first].elapsed_time(events[last]) for first, last in pairs], np.float64) / 1e3

    def close(self) -> None:
        self._events = []


class DriverEvents:
    """Events of the current context as handles in an array.

    Thousands of torch's event objects would trigger long garbage collections (docs/decisions/0084).
    """

    def __init__(self, library: Any, index: int) -> None:
        """Prepare events; ``index`` is the device whose current stream records.

        Raises RuntimeError: without a context, or when the driver refuses.
        """
        self._library = library
        self._index = index
        self._context = _context(library)
        self._raw_stream: Callable[[int], int] = raw_stream()
        self._handles = array("Q")

    def reserve(self, count: int) -> None:
        spare = _spare.get(self._context, [])
        while len(self._handles) < count and spare:
            self._handles.append(spare.pop())

    def prepare(self, number: int) -> None:
        if len(self._handles) <= number:
            self.reserve(number + 1)
        while len(self._handles) <= number:
            made = ctypes.c_void_p()
            _check(self._library.cuEventCreate(ctypes.byref(made), 0))
            self._handles.append(made.value or 0)

    def record(self, number: int) -> None:
        _check(self._library.cuEventRecord(self._handles[number], self._raw_stream(self._index)))

    def synchronize(self, number: int) -> None:
        _check(self._library.cuEventSynchronize(self._handles[number]))

    def is_done(self, number: int) -> bool:
        status = self._library.cuEventQuery(self._handles[number])
        if status != _NOT_READY:
            _check(status)
        return bool(status != _NOT_READY)

    def elapsed_s(self, firsts: Numbers, lasts: Numbers) -> Seconds:
        handles, elapsed, took_ms = self._handles, self._library.cuEventElapsedTime, ctypes.c_float()
        at, out = ctypes.byref(took_ms), np.empty(len(firsts))
        for row, (first, last) in enumerate(zip(firsts.tolist(), lasts.tolist(), strict=True)):
            _check(elapsed(at, handles[first], handles[last]))
            out[row] = took_ms.value
        return out / 1e3

    def close(self) -> None:
        handles, self._handles = self._handles, array("Q")
        _spare.setdefault(self._context, []).extend(handles)


def make_events(cuda: Any, library: Any = None) -> Events:
    """Make events for torch's current device: the driver's if its library is usable, otherwise torch's."""
    try:
        return DriverEvents(library or load_library(), cuda.current_device())
    except (OSError, AttributeError, RuntimeError):
        return TorchEvents(cuda)


def load_library() -> Any:
    """Return the driver's library with the types of the called functions.

    Raises OSError: when there is no library.
    Raises AttributeError: for a driver before CUDA 12, which lacks cuCtxGetId.
    """
    library = ctypes.CDLL(_LIBRARY)
    handle = ctypes.c_void_p
    library.cuEventCreate.argtypes = [ctypes.POINTER(handle), ctypes.c_uint]
    library.cuEventRecord.argtypes = [handle, handle]
    library.cuEventSynchronize.argtypes = [handle]
    library.cuEventQuery.argtypes = [handle]
    library.cuEventElapsedTime.argtypes = [ctypes.POINTER(ctypes.c_float), handle, handle]
    library.cuCtxGetCurrent.argtypes = [ctypes.POINTER(handle)]
    library.cuCtxGetId.argtypes = [handle, ctypes.POINTER(ctypes.c_ulonglong)]
    return library


def _context(library: Any) -> tuple[int, int]:
    """Return address and number of the current context: after a reset another context may have the same address.

    Raises RuntimeError: without a context.
    """
    address, number = ctypes.c_void_p(), ctypes.c_ulonglong()
    _check(library.cuCtxGetCurrent(ctypes.byref(address)))
    if not address.value:
        raise RuntimeError("CUDA: this thread has no context")
    _check(library.cuCtxGetId(address, ctypes.byref(number)))  # from CUDA 12 on; with earlier drivers torch's events are used
    return address.value, number.value


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"CUDA: error {status} from the driver")
