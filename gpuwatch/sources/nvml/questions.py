"""The plan for one row: the calls and the batch of fields that read a set of signals on one GPU."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, TypeAlias

from gpuwatch.sources.nvml.binding import PERMANENT, Api, treat
from gpuwatch.sources.nvml.device_facts import BoardHandles
from gpuwatch.sources.nvml.fields import FieldBatch, Wanted, answers, slowdown_counters
from gpuwatch.sources.nvml.gpm import Gpm
from gpuwatch.sources.nvml.signals import SIGNALS, Call, Field, GpmMetric, Question, SlowdownCounter, application_clock, as_is

Bound: TypeAlias = Callable[[], Any]
Filler: TypeAlias = Callable[[dict[str, Any]], None]
Step: TypeAlias = tuple[Bound, tuple[tuple[str, Callable[[Any], Any]], ...]]


class Row:
    """The bound calls of one row, each with the receivers of its answer.  Several threads may call ``ask`` at once."""

    def __init__(self, api: Api, uuid: str, steps: Iterable[Step], batch: FieldBatch | None, gpm: Filler | None) -> None:
        self._error = api.NVMLError
        self._uuid = uuid
        self.steps = tuple(steps)
        self.batch = batch
        self.gpm = gpm

    def ask(self) -> dict[str, Any]:
        """Return the answered signals, in a Reading's units.

        Raises DeviceLostError, SourceGoneError: when the GPU or the driver is gone.
        """
        values: dict[str, Any] = {}
        for call, takers in self.steps:
            try:
                answer = call()
            except self._error as error:
                treat(error, self._uuid)
                continue
            for name, take in takers:
                values[name] = take(answer)
        if self.batch is not None:
            self.batch.ask(values)
        if self.gpm is not None:
            self.gpm(values)
        return values


class Questions:
    """The alternative that answers each signal on one GPU, probed at first use and cached."""

    def __init__(self, api: Api, board: BoardHandles, driver_version: str | None) -> None:
        self._api = api
        self._board = board
        self._driver_version = driver_version
        self._chosen: dict[str, Question | None] = {}
        self.gpm = Gpm(api, board.uuid, board.board_handle, board.instance_id)

    def row(self, names: Sequence[str]) -> Row:
        """Return the plan for the signals among ``names`` that this GPU supports."""
        calls: dict[tuple[str, tuple[str, ...], bool], list[tuple[str, Callable[[Any], Any]]]] = {}
        fields: list[Wanted] = []
        metrics: list[tuple[str, int]] = []
        for name in names:
            match self.chosen(name):
                case Call(function, args, take, instance):
                    calls.setdefault((function, args, instance), []).append((name, take))
                case Field(fields_named, take):
                    fields.append((name, self._ids(fields_named), take))
                case SlowdownCounter(position) if self._slowdown_counters is not None:
                    fields.append((name, (self._slowdown_counters[position],), as_is))
                case GpmMetric(metric):
                    metrics.append((name, getattr(self._api, metric)))
                case _:
                    continue
        steps = [
            (self._bound(function, args, instance=instance), tuple(takers))
            for (function, args, instance), takers in calls.items()
        ]
        board = self._board
        batch = FieldBatch(self._api, board.uuid, board.board_handle, fields) if fields else None
        return Row(self._api, board.uuid, steps, batch, partial(self.gpm.ask, metrics) if metrics else None)

    def chosen(self, name: str) -> Question | None:
        """Return the first alternative that this GPU supports; None without one."""
        if name not in self._chosen:
            self._chosen[name] = next((question for question in SIGNALS.get(name, ()) if self._works(question)), None)
        return self._chosen[name]

    @property
    def counters(self) -> str:
        ids = self._slowdown_counters
        if ids is None:
            return "nvmlDeviceGetViolationStatus (thermal and power only; this driver answers no slow-down counters)"
        return f"fields {ids[0]}-{ids[2]}"

    @cached_property
    def _slowdown_counters(self) -> tuple[int, int, int] | None:
        board = self._board
        return slowdown_counters(self._api, board.uuid, board.board_handle, self._driver_version)

    def _works(self, question: Question) -> bool:
        match question:
            case Call(function, args, _, instance):
                if function != "application_clock" and not hasattr(self._api, function):
                    return False
                try:
                    self._bound(function, args, instance=instance)()
                except self._api.NVMLError as error:
                    treat(error, self._board.uuid)
                    return error.value not in PERMANENT
                return True
            case Field(names):
                if not all(hasattr(self._api, name) for name in names):
                    return False
                # Probed twice: the first read of a group may return before the driver has filled its page.
                handle, ids = self._board.board_handle, self._ids(names)
                return any(answers(self._api, self._board.uuid, handle, ids) for _ in range(2))
            case SlowdownCounter():
                return self._slowdown_counters is not None
            case GpmMetric(name):
                return hasattr(self._api, name) and self.gpm.supported()

    def _ids(self, names: Iterable[str]) -> tuple[int, ...]:
        return tuple(getattr(self._api, name) for name in names)

    def _bound(self, function: str, args: tuple[str, ...], *, instance: bool) -> Bound:
        handle = self._board.handle if instance else self._board.board_handle
        if function == "application_clock":
            return partial(application_clock, self._api, handle)
        return partial(getattr(self._api, function), handle, *(getattr(self._api, name) for name in args))
