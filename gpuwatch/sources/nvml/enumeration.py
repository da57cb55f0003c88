"""Enumeration of all listed GPUs, in one thread per GPU, so that a hanging GPU does not block the others."""

import threading
from concurrent.futures import FIRST_COMPLETED, Future, wait

from annotate.evidence import Device
from gpuwatch.errors import DeviceLostError, SourceGoneError
from gpuwatch.sources.nvml import device_facts
from gpuwatch.sources.nvml.binding import Api
from gpuwatch.sources.nvml.device_facts import BoardHandles

_Present = list[tuple[BoardHandles, Device]]


def _ask(api: Api, index: int, answer: Future[_Present]) -> None:
    """Set ``answer`` for one index of the driver's list: a GPU and its MIG instances, or the error."""
    try:
        answer.set_result([(board, device_facts.device(api, board)) for board in device_facts.at(api, index)])
    except Exception as error:  # noqa: BLE001 - ``RollCall.call`` raises or records the error
        answer.set_exception(error)


class RollCall:
    """Repeated enumeration.  A GPU whose last call has not returned gets no new call."""

    def __init__(self, api: Api, *, patience_s: float = 3.0) -> None:  # a slower GPU joins at the next call
        self._api = api
        self._patience_s = patience_s
        self._calling = threading.Lock()
        self._open: dict[int, Future[_Present]] = {}
        self.missing: dict[int, str] = {}  # by index in the driver's list: the reason for the missing answer

    def begin(self) -> int:
        """Start the calls of GPUs without a pending call, and return the count of listed GPUs.

        Raises SourceGoneError: when the driver does not list its GPUs.
        """
        count = device_facts.count(self._api)
        for index in range(count):
            if index not in self._open:
                answer = self._open[index] = Future()
                # Daemonic: a thread that never returns from the driver must not keep the process alive.
                threading.Thread(
                    target=_ask, args=(self._api, index, answer), name=f"gpuwatch-roll-{index}", daemon=True
                ).start()
        return count

    def call(self) -> _Present:
        """Return the GPUs that answered, in the driver's order.  Stop waiting after ``patience_s`` without a further answer.

        Raises SourceGoneError: when the driver is gone or does not list its GPUs.
        """
        with self._calling:
            count = self.begin()
            asked = dict(self._open)
            waiting = set(asked.values())
            while waiting and (answered := wait(waiting, self._patience_s, FIRST_COMPLETED).done):
                waiting -= answered
            # Drop the finished answers before an error below can end this call: the next call must not reuse them.
            self._open = {index: answer for index, answer in asked.items() if answer in waiting}
            found: _Present = []
            self.missing = {}
            for index in range(count):
                if index in self._open:
                    self.missing[index] = f"no answer for {self._patience_s:g} s"
                    continue
                try:
                    found += asked[index].result()
                except DeviceLostError as error:
                    self.missing[index] = error.reason
                except SourceGoneError:
                    raise
                except Exception as error:  # noqa: BLE001 - an unforeseen answer, such as invalid text: retry at the next call
                    self.missing[index] = f"invalid answer from the driver: {type(error).__name__}: {error}"
            return found
