"""The past for screens, from a store or a recording, behind the interface ``tui.data_interfaces.HistorySource``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from annotate.errors import AnnotateError
from annotate.evidence import Event, Evidence, Trace
from annotate.verdict import Verdict
from gpuwatch.errors import StoreError, UsageError
from gpuwatch.host import pci
from gpuwatch.view import at_moment
from gpuwatch.view.live import Live
from gpuwatch.wire import messages
from gpuwatch.wire.shown import Shown

if TYPE_CHECKING:
    from gpuwatch.store import Reader, Run
    from gpuwatch.store.boot import Boot

NEAR_NS = 60_000_000_000  # a GPU read within this distance belongs to the moment
_KEPT_RUNS_COUNT = 256  # cached with their verdicts, which are slow to unpack
_WALL_NS = 1_000_000_000_000_000_000  # larger times are nanoseconds since 1970, smaller ones since a machine's boot


class StoredHistory:
    """The last boot of a store.  ``where`` returns the folder when the store is opened, and may raise StoreError."""

    def __init__(self, where: Callable[[], Path]) -> None:
        self._where = where
        self._lock = threading.Lock()
        self._opened: tuple[Reader, Boot] | None = None
        self._runs: dict[str, Run] = {}

    def span_ns(self) -> tuple[int, int] | None:
        with self._open() as (_, boot):
            spans = boot.segment_spans()
            return (spans[0].begin_ns, max(each.end_ns for each in spans)) if spans else None

    def live(self, at_ns: int) -> Live:
        from gpuwatch.view import snapshot

        with self._open() as (reader, boot):
            near = [each for each in boot.segment_spans() if each.begin_ns - NEAR_NS <= at_ns <= each.end_ns + NEAR_NS]
            uuids = list(dict.fromkeys(uuid for each in near for uuid in each.uuids))
            lost = boot.lost(uuids, at_ns)
            # A store lists GPUs in the order of their first readings, which is arbitrary.
            devices = pci.in_order(reader.device(uuid, boot_id=boot.boot_id, at_ns=at_ns) for uuid in uuids)
            gpus = [
                at_moment.then(
                    device,
                    reader.trace(device.uuid, boot.boot_id or "", at_ns - at_moment.REACH_NS, at_ns),
                    at_ns,
                    lost=lost.get(device.uuid),
                )
                for device in devices
            ]
            runs, left_out_count = self._begun(reader, boot, at_ns)
            source = near[-1].source if near else ""
            shown, _ = snapshot.shown_windows(runs)
        # As in the daemon's list: GPUs without readings around ``at_ns`` were absent.
        there = tuple(gpu for gpu in gpus if gpu.rows or gpu.lost is not None)
        return Live(
            at_ns=at_ns,
            source=source,
            simulated=any(gpu.device.simulated for gpu in there),
            gpus=there[: messages.SHOWN_GPUS_COUNT],
            absence=None if there else "nothing was read around that moment",
            windows=tuple(shown),
            gpus_left_out_count=max(0, len(there) - messages.SHOWN_GPUS_COUNT),
            windows_left_out_count=left_out_count,
        )

    def trace(self, uuid: str, begin_ns: int, end_ns: int) -> Trace:
        with self._open() as (reader, boot):
            return reader.trace(uuid, boot.boot_id or "", begin_ns, end_ns)

    def events(self, begin_ns: int, end_ns: int) -> Sequence[Event]:
        with self._open() as (_, boot):
            return boot.events(begin_ns, end_ns)

    def verdicts(self, run_id: str) -> Sequence[Verdict]:
        with self._open() as (reader, _):
            run = reader.run(run_id)
        try:
            return tuple(Verdict.from_dict(verdict) for verdict in run.verdicts)
        except AnnotateError as error:
            raise StoreError(f"run {run_id}: {error}") from error

    def close(self) -> None:
        with self._lock:
            self._shut()

    @contextmanager
    def _open(self) -> Iterator[tuple[Reader, Boot]]:
        """Yield the store to one query at a time.  After a StoreError the next query reopens a possibly replaced store."""
        from gpuwatch.store import Reader
        from gpuwatch.store.boot import Boot

        with self._lock:
            try:
                if self._opened is None:
                    where = self._where()
                    reader = Reader(where)
                    try:
                        self._opened = reader, Boot(where)
                    except StoreError:
                        reader.close()
                        raise
                yield self._opened
            except StoreError:
                self._shut()
                raise

    def _shut(self) -> None:
        for each in self._opened or ():
            each.close()
        self._opened = None
        self._runs.clear()

    def _begun(self, reader: Reader, boot: Boot, at_ns: int) -> tuple[list[Run], int]:
        """Return the newest windows begun by ``at_ns``, open first, and the number left out; windows that end later are open."""
        ids, left_out_count = boot.begun(at_ns, most=messages.SHOWN_WINDOWS_COUNT)
        for run in reader.named([each for each in ids if each not in self._runs]):
            if run.verdicts and len(self._runs) < _KEPT_RUNS_COUNT:
                self._runs[run.id] = run
        fresh = {run.id: run for run in reader.named([each for each in ids if each not in self._runs])}
        runs = [found for each in ids if (found := self._runs.get(each) or fresh.get(each)) is not None]
        runs = [
            replace(run, status="open", end_ns=None, verdicts=(), why="") if run.end_ns is None or run.end_ns > at_ns else run
            for run in runs
        ]
        return sorted(runs, key=lambda run: run.end_ns is not None), left_out_count


class Recorded:
    """A recording: its windows, and every GPU from its first reading to its last.

    Raises UsageError: for another file, and for a recording without readings.
    """

    def __init__(self, path: Path) -> None:
        from gpuwatch.sources import recordings

        self._path = path
        self._windows = _windows(recordings.load(path))
        self._gpus = {evidence.device.uuid: evidence for evidence in recordings.whole(path) if evidence.device is not None}
        if not any(evidence.trace.columns for evidence in self._gpus.values()):
            raise UsageError(f"{path}: expected readings to show, found none")
        self._periods = {uuid: at_moment.period_ns(evidence.trace) for uuid, evidence in self._gpus.items()}
        self._verdicts: dict[str, tuple[Verdict, ...]] = {}
        self._lock = threading.Lock()

    @property
    def has_wall_time(self) -> bool:
        """Return True if the recording's times are wall times, False if they count from a machine's boot."""
        return self.span_ns()[0] >= _WALL_NS

    def span_ns(self) -> tuple[int, int]:
        windows = [evidence.window for evidence in self._gpus.values()]
        return min(each.begin_ns for each in windows), max(each.end_ns for each in windows)

    def live(self, at_ns: int) -> Live:
        gpus = tuple(
            at_moment.then(evidence.device, evidence.trace, at_ns, period_ns=self._periods[uuid])
            for uuid, evidence in self._gpus.items()
            if evidence.device is not None
        )
        shown = [self._shown(run, pieces, at_ns) for run, pieces in self._windows.items() if pieces[0].window.begin_ns <= at_ns]
        shown.sort(key=lambda each: (each.end_ns is not None, -each.begin_ns))
        return Live(
            at_ns=at_ns,
            source=f"replay:{self._path}",
            simulated=any(gpu.device.simulated for gpu in gpus),
            gpus=gpus[: messages.SHOWN_GPUS_COUNT],
            windows=tuple(shown[: messages.SHOWN_WINDOWS_COUNT]),
            gpus_left_out_count=max(0, len(gpus) - messages.SHOWN_GPUS_COUNT),
            windows_left_out_count=max(0, len(shown) - messages.SHOWN_WINDOWS_COUNT),
        )

    def trace(self, uuid: str, begin_ns: int, end_ns: int) -> Trace:
        if uuid not in self._gpus:
            raise StoreError(f"{self._path}: expected one of {', '.join(self._gpus)}, found {uuid}")
        return at_moment.part(self._gpus[uuid].trace, begin_ns, end_ns)

    def events(self, begin_ns: int, end_ns: int) -> Sequence[Event]:
        every = [event for evidence in self._gpus.values() for event in evidence.trace.events]
        return sorted((event for event in every if begin_ns <= event.at_ns <= end_ns), key=lambda event: event.at_ns)

    def verdicts(self, run_id: str) -> Sequence[Verdict]:
        """Judge now, as `gpuwatch audit --trace` does: a recording holds evidence, but no stored verdict.

        Raises StoreError: for an unknown window.
        """
        with self._lock:
            if run_id not in self._verdicts:
                if run_id not in self._windows:
                    raise StoreError(f"{self._path}: expected one of its {len(self._windows)} windows, found {run_id}")
                from annotate.judge import judge

                verdicts = [judge(evidence) for evidence in self._windows[run_id]]
                self._verdicts[run_id] = tuple(sorted(verdicts, key=lambda each: each.status.badness, reverse=True))
            return self._verdicts[run_id]

    def close(self) -> None:
        """Do nothing: no file is open."""

    def _shown(self, run: str, pieces: Sequence[Evidence], at_ns: int) -> Shown:
        window = pieces[0].window
        uuids = [piece.device.uuid for piece in pieces if piece.device is not None][: messages.SHOWN_GPUS_COUNT]
        shown = Shown(
            run=run,
            claim="sustained",
            status="open",
            begin_ns=window.begin_ns,
            label=window.label,
            uuids=uuids,
            pids=sorted(window.pids)[: messages.SHOWN_PIDS_COUNT],
        )
        if window.end_ns > at_ns:
            return shown
        worst = self.verdicts(run)[0]
        hazards = [finding.rule for finding in worst.hazards if not finding.accepted]
        return msgspec.structs.replace(
            shown, status=worst.status.value, end_ns=window.end_ns, why=worst.why[:200], hazards=hazards[:12]
        )


def _windows(pieces: Sequence[Evidence]) -> dict[str, list[Evidence]]:
    """Return windows by name, numbered as in the file; pieces of one interval and label are one window over several GPUs."""
    found: dict[tuple[int, int, str | None], list[Evidence]] = {}
    for piece in pieces:
        found.setdefault((piece.window.begin_ns, piece.window.end_ns, piece.window.label), []).append(piece)
    return {f"window-{number}": each for number, each in enumerate(found.values(), 1)}
