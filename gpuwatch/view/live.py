"""Records of the present for screens, and the client that requests them from the daemon."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from annotate.evidence import Device, Lane, ProcessList, Reading
from gpuwatch.client.connection import Client, connect_and
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DaemonError
from gpuwatch.wire import messages
from gpuwatch.wire.shown import Shown, ShownGpu

_T = TypeVar("_T")
_described = [msgspec.json.Decoder(kind) for kind in (Device, Reading, ProcessList)]  # for threads, as in annotate/verdict.py
_OVERLAP_NS = 1_000_000_000  # a row is stored after its time: without the overlap, two answers could miss a row between them


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveGpu:
    """One GPU and the last row of each lane."""

    device: Device
    lost: str | None = None
    period_ns: Mapping[Lane, int] = field(default_factory=dict)
    rows: Mapping[Lane, Reading] = field(default_factory=dict)
    process_list: ProcessList | None = None
    processes_left_out_count: int = 0

    def said(self, name: str) -> Any:  # the type of the signal's field
        """Return a signal's last value, from the first lane that has one, or None if it was not observed."""
        for lane in (Lane.FAST, Lane.SLOW, Lane.EDGE):
            if lane in self.rows and (value := getattr(self.rows[lane], name)) is not None:
                return value
        return None

    def age_s(self, now_ns: int) -> float | None:
        """Return the age of the GPU's last fast-lane row; None without a row."""
        return max(0, now_ns - self.rows[Lane.FAST].at_ns) / 1e9 if Lane.FAST in self.rows else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """One answer of the daemon, or one moment of a history; in an answer ``at_ns`` is CLOCK_MONOTONIC of this machine."""

    at_ns: int
    source: str
    simulated: bool = False
    absence: str | None = None
    gpus: tuple[LiveGpu, ...] = ()
    windows: tuple[Shown, ...] = ()
    gpus_left_out_count: int = 0
    windows_left_out_count: int = 0
    unanswered: tuple[str, ...] = ()  # GPUs that the driver lists, but that do not answer


def of(answer: messages.Readings, before: Live | None = None) -> Live:
    """Build the records of an answer; take omitted, unchanged parts from the previous one, ``before``.

    Rows of a newer daemon's unknown lanes are skipped.

    Raises DaemonError: for a malformed answer.
    """
    known = {gpu.device.uuid: gpu for gpu in before.gpus} if before else {}
    return Live(
        at_ns=answer.at_ns,
        source=answer.source,
        simulated=answer.simulated,
        absence=answer.absence,
        gpus=tuple(_live(gpu, known) for gpu in answer.gpus),
        windows=tuple(answer.windows),
        gpus_left_out_count=answer.gpus_left_out_count,
        windows_left_out_count=answer.windows_left_out_count,
        unanswered=tuple(answer.unanswered),
    )


def _live(gpu: ShownGpu, known: Mapping[str, LiveGpu]) -> LiveGpu:
    device = _record(gpu.device, Device)
    before = known.get(device.uuid)
    rows = dict(before.rows) if before else {}
    for data in gpu.rows:
        if data.get("lane") in list(Lane):
            row = _record(data, Reading)
            rows[row.lane] = row
    process_list, left_out_count = (before.process_list, before.processes_left_out_count) if before else (None, 0)
    if gpu.process_list is not None:
        process_list, left_out_count = _record(gpu.process_list, ProcessList), gpu.processes_left_out_count
    periods: dict[Lane, int] = {}
    for name, period_ns in gpu.period_ns.items():
        with contextlib.suppress(ValueError):
            periods[Lane(name)] = period_ns
    return LiveGpu(
        device=device,
        lost=gpu.lost,
        period_ns=periods,
        rows=rows,
        process_list=process_list,
        processes_left_out_count=left_out_count,
    )


def _record(data: dict[str, Any], kind: type[_T]) -> _T:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        why = f"expected a {kind.__name__} from the daemon, found another form ({error}); restart the daemon with this version"
        raise DaemonError(why, "bad-answer") from error


class Looker:
    """A client that requests readings from the daemon, and reconnects after the daemon went away.

    Only the first request, and the one after ``start_again``, may start a daemon: a stopped daemon stays stopped.
    """

    def __init__(self, settings: Settings, *, start: bool = True) -> None:
        self._settings = settings
        self._client: Client | None = None
        self._before: Live | None = None
        self._start = start

    def start_again(self) -> None:
        """Let the next request start a daemon."""
        self._start = True

    def look(self) -> Live:
        """Return the current readings.

        Raises DaemonError: when the daemon fails to answer.  The next call reconnects.
        """
        try:
            if self._client is None:
                start, self._start = self._start, False
                # The next daemon answers if this one exits between greeting and request.
                self._client, answer = connect_and(lambda client: client.readings(0), self._settings, start=start)
                self._before = of(answer, None)
            else:
                since_ns = max(0, self._before.at_ns - _OVERLAP_NS) if self._before else 0
                self._before = of(self._client.readings(since_ns), self._before)
        except DaemonError:
            self.close()
            raise
        return self._before

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None
