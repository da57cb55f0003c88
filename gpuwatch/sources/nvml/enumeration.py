"""The roll call: every listed GPU says who it is, in a thread of its own, so that one that hangs or is lost costs only itself."""

from __future__ import annotations

import threading

from annotate.evidence import Device
from gpuwatch.errors import DeviceLostError, SourceGoneError
from gpuwatch.sources.nvml import device_facts
from gpuwatch.sources.nvml.binding import Api
from gpuwatch.sources.nvml.device_facts import BoardHandles

_Present = list[tuple[BoardHandles, Device]]


class _DeviceQuery:
    """One place in the driver's list being asked: a GPU and its MIG instances, or why there is none."""

    def __init__(self, api: Api, index: int, answered: threading.Condition) -> None:
        self._api = api
        self._index = index
        self._answered = answered
        self.found: _Present | None = None
        self.why: str | None = None
        self.gone: SourceGoneError | None = None
        # Daemonic: one that never returns from the driver must not keep the process.
        threading.Thread(target=self._ask, name=f"gpuwatch-roll-{index}", daemon=True).start()

    @property
    def done(self) -> bool:
        return self.found is not None or self.why is not None or self.gone is not None

    def _ask(self) -> None:
        found, why, gone = None, None, None
        try:
            found = [(board, device_facts.device(self._api, board)) for board in device_facts.at(self._api, self._index)]
        except DeviceLostError as error:
            why = error.reason
        except SourceGoneError as error:
            gone = error
        except Exception as error:  # noqa: BLE001 - an answer nobody foresaw, as text that is none: it is asked again
            why = f"its answer is not understood: {type(error).__name__}: {error}"
        with self._answered:
            self.found, self.why, self.gone = found, why, gone
            self._answered.notify_all()


class RollCall:
    """Calls the roll, again and again if need be; a GPU that has not come back from the last call is not asked twice."""

    def __init__(self, api: Api, *, patience_s: float = 3.0) -> None:  # what needs longer joins at the next call
        self._api = api
        self._patience_s = patience_s
        self._calling = threading.Lock()
        self._answered = threading.Condition()
        self._open: dict[int, _DeviceQuery] = {}
        self.missing: dict[int, str] = {}  # by place in the driver's list: why there was no answer

    def call(self) -> _Present:
        """Those who answered, in the driver's order; waits as long as at least one more answers within the patience.

        Raises SourceGoneError.
        """
        with self._calling:
            count = device_facts.count(self._api)
            for index in range(count):
                if index not in self._open:
                    self._open[index] = _DeviceQuery(self._api, index, self._answered)
            self._wait()
            asked = dict(self._open)
            # What was answered is not taken for an answer to the next call, also where this one ends here.
            self._open = {index: question for index, question in asked.items() if not question.done}
            found: _Present = []
            self.missing = {}
            for index in range(count):
                question = asked[index]
                if question.gone is not None:
                    raise question.gone
                if question.found is None:
                    self.missing[index] = question.why or f"no answer for {self._patience_s:g} s"
                found += question.found or []
            return found

    def _wait(self) -> None:
        with self._answered:
            while self._undone() and self._answered.wait(self._patience_s):
                pass

    def _undone(self) -> int:
        return sum(not question.done for question in self._open.values())
