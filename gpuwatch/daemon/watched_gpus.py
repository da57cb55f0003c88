"""The watched GPUs: measurement of call costs, sampling, and the latest sweeps."""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, wait
from dataclasses import replace
from typing import TypeGuard

from annotate.evidence import Device, Event, Lane, ProcessList, Reading
from gpuwatch.clock import MonotonicClock
from gpuwatch.config.settings import Settings
from gpuwatch.daemon.rare_reader import RareReader
from gpuwatch.daemon.source_keeper import SourceKeeper
from gpuwatch.errors import DeviceLostError, SourceGoneError
from gpuwatch.host import kernel_log, pci
from gpuwatch.host.suspend import Sleep
from gpuwatch.interfaces import Observed, Sink, Source, Sweep
from gpuwatch.sampling.edges import Edges
from gpuwatch.sampling.plan import PlanTargets, SamplingPlan, unmeasured
from gpuwatch.sampling.refresh import Refresh
from gpuwatch.sampling.sampler import Sampler
from gpuwatch.store import Store

_log = logging.getLogger("gpuwatch.daemon.watched_gpus")

STOP_S = 3.0  # time limit for all GPUs' threads, and then for the driver; threads that hang are abandoned
# GPUs measured at once delay each other's calls, and a delayed measurement gives a GPU a low sampling rate for good.
MEASURED_AT_ONCE_COUNT = 4
MEASURE_TURN_S = 60.0  # the longest wait for other GPUs' measurements, which may hang
MEASURED_AFTER_S = 5.0  # the longest wait of a measurement for the start of service
UNCHANGED_NS = 1_000_000_000  # unchanged lists pass at this interval: a listed process may join a window's tree later
LOOK_S = 10.0  # interval of looks for an absent driver and unanswered GPUs, and of storing refresh periods


class LatestSweeps:
    """A sink that keeps each lane's last sweep, written by sampling threads and readable from any thread."""

    def __init__(self) -> None:
        self._sweeps: dict[tuple[str, Lane], Sweep] = {}
        self._process_lists: dict[str, ProcessList] = {}
        self._news: dict[str, tuple[int, object]] = {}  # by GPU, the time and processes of the last list for windows
        self._with_use: dict[str, ProcessList] = {}  # by GPU, the last list that included each process's use

    def take(self, sweep: Sweep) -> None:
        if isinstance(sweep.observed, ProcessList):
            self._process_lists[sweep.uuid] = sweep.observed
            sweep = replace(sweep, observed=self._add_use(sweep.observed))
        elif sweep.lane is Lane.PROCESSES:  # the last call failed: an older list is not evidence
            self._process_lists.pop(sweep.uuid, None)
        self._sweeps[(sweep.uuid, sweep.lane)] = sweep

    def by_lane(self) -> Mapping[tuple[str, Lane], Sweep]:
        """Return the last sweep of every GPU and lane; process lists carry each process's use from a recent reading."""
        return self._sweeps

    def process_list(self, uuid: str) -> ProcessList | None:
        """Return the driver's last process list, or None before the first list and after a failed call."""
        return self._process_lists.get(uuid)

    def is_news(self, listed: Observed) -> TypeGuard[ProcessList]:
        """Return whether a process list differs from the last list that this method accepted, or is a second newer."""
        if not isinstance(listed, ProcessList):
            return False
        content = (listed.visibility, tuple((each.pid, each.started_s) for each in listed.processes))
        at_ns, before = self._news.get(listed.uuid, (0, None))
        if content == before and listed.at_ns - at_ns < UNCHANGED_NS:
            return False
        self._news[listed.uuid] = listed.at_ns, content
        return True

    def _add_use(self, listed: ProcessList) -> ProcessList:
        if listed.tells_use:
            self._with_use[listed.uuid] = listed
        return listed.with_use(self._with_use.get(listed.uuid, listed))


class WatchedGpus:
    """All GPUs of one source and their samplers; lost GPUs do not affect the others."""

    def __init__(self, settings: Settings, store: Store, *, sinks: Sequence[Sink], threads: Executor) -> None:
        self._settings = settings
        self._store = store
        self._threads = threads
        self._clock = MonotonicClock()
        self._stop = threading.Event()
        self.has_answered = threading.Event()  # set soon after the daemon answers: measuring may then begin
        self._adding = threading.Lock()
        self._measurers: list[threading.Thread] = []
        self._measuring = threading.Semaphore(MEASURED_AT_ONCE_COUNT)
        self._refresh: dict[str, Refresh] = {}
        self._is_attended = True
        self._open_counts: Counter[str | None] = Counter()  # open windows by GPU; None: on every GPU
        self.latest = LatestSweeps()
        self._sinks: tuple[Sink, ...] = (*sinks, self.latest, self)
        self.samplers: dict[str, Sampler] = {}
        self.source = SourceKeeper(settings.source, self._clock, on_new=self._watch_new, sinks=lambda: self._sinks)
        self.rare = RareReader(
            lambda: self.source.current,
            lambda: [uuid for uuid, sampler in self.samplers.items() if sampler.lost is None],
            self._stop,
        )
        self.edges = Edges(lambda: self.samplers, threads)

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(self.samplers)

    @property
    def devices(self) -> Mapping[str, Device]:
        """Return the GPUs that the source listed, including lost ones, in the source's order."""
        return self.source.devices

    def take(self, sweep: Sweep) -> None:
        """Learn refresh periods from a sweep (a sink)."""
        if isinstance(sweep.observed, Reading) and (refresh := self._refresh.get(sweep.uuid)):
            refresh.take(sweep)

    def start(self) -> None:
        """Open the source and watch its GPUs in threads, so that a hanging driver blocks neither the caller nor other GPUs."""
        descriptor = kernel_log.opened() if self.source.is_nvml else None
        if descriptor is not None:
            log = kernel_log.KernelLog(descriptor, self._places, self._sinks, self._clock, self._stop)
            self._sinks = (*self._sinks, log)  # before any sampler gets the sinks
            log.start()
        threading.Thread(target=self._keep, name="gpuwatch-keeper", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()
        self.has_answered.set()
        self.source.deafen()
        deadline_ns = self._clock.now_ns() + round(STOP_S * 1e9)
        for thread in self._measurers:
            thread.join(max(0.0, (deadline_ns - self._clock.now_ns()) / 1e9))
        for sampler in self.samplers.values():
            sampler.stop(max(0.0, (deadline_ns - self._clock.now_ns()) / 1e9))
        # In a thread, because shutdown must not wait for a hanging driver either.
        wait([self._threads.submit(self.source.close)], STOP_S)

    async def first_sweep(self, wait_s: float) -> None:
        """Wait at most ``wait_s`` for the source, and for every GPU's first fast row."""
        deadline_ns = self._clock.now_ns() + int(wait_s * 1e9)
        while self._clock.now_ns() < deadline_ns:
            wanted = {(uuid, Lane.FAST) for uuid in self.devices}
            if self.source.has_looked and wanted <= self.latest.by_lane().keys():
                return
            await asyncio.sleep(0.002)

    def reconfigure(self, settings: Settings) -> None:
        self._settings = settings
        for sampler in self.samplers.values():
            sampler.set_periods(settings.idle_period_ns, settings.active_period_ns)

    def window_opened(self, uuids: tuple[str, ...] | None) -> None:
        """Sample these GPUs, or every GPU for None, at the full rate until ``window_closed``."""
        self._count(uuids, 1)

    def window_closed(self, uuids: tuple[str, ...] | None) -> None:
        self._count(uuids, -1)

    def attend(self, attended: bool) -> None:  # noqa: FBT001 - the state is the whole call
        """Set whether a client, a scrape or a window needs the readings: otherwise expensive readings of idle GPUs become rare."""
        self._is_attended = attended
        for sampler in self.samplers.values():
            sampler.rest.set_attended(attended)
        self._note_rest()

    def _note_rest(self) -> None:
        are_resting = all(sampler.rest.is_resting for sampler in self.samplers.values())
        self._store.set_resting(are_resting and not self._is_attended)

    def note_suspension(self, sleep: Sleep) -> None:
        """Store a suspension of the machine as an event and a gap on every GPU."""
        text = f"the machine was suspended for {sleep.slept_s:.1f} s"
        for uuid in self.samplers:
            event = Event(uuid=uuid, at_ns=sleep.end_ns, kind="suspended", text=text)
            self._store.take(Sweep(uuid, Lane.EVENTS, sleep.end_ns, 0, 0, event))
            self._store.put_gap(uuid, Lane.FAST, sleep.begin_ns, sleep.end_ns)

    def _count(self, uuids: tuple[str, ...] | None, change: int) -> None:
        for uuid in (None,) if uuids is None else uuids:
            self._open_counts[uuid] += change
        with self._adding:
            for uuid, sampler in self.samplers.items():
                if sampler.is_active != self._is_wanted(uuid):
                    sampler.set_active(self._is_wanted(uuid))

    def _is_wanted(self, uuid: str) -> bool:
        return self._open_counts[None] > 0 or self._open_counts[uuid] > 0

    def _places(self) -> Mapping[tuple[int, int, int], str]:
        found = {pci.place(device.pci_bus_id): uuid for uuid, device in self.devices.items()}
        return {place: uuid for place, uuid in found.items() if place is not None}

    def _keep(self) -> None:
        """Open the source, look for an absent driver or unanswered GPUs, and store refresh periods as they become known."""
        self.source.look()
        while not self._stop.wait(LOOK_S):
            self.source.look()
            for uuid, refresh in self._refresh.items():
                if learnt_ns := refresh.refresh_ns():
                    self._store.put_refresh(uuid, learnt_ns)

    def _watch_new(self, source: Source, device: Device) -> None:
        # Daemonic: a thread that never returns from the driver must not keep the process alive.
        thread = threading.Thread(target=self._watch, args=(source, device), name="gpuwatch-measure", daemon=True)
        self._measurers = [each for each in self._measurers if each.is_alive()] + [thread]
        thread.start()

    def _watch(self, source: Source, device: Device) -> None:
        """Sample one GPU at once; measure its call costs, a few GPUs at a time, from the daemon's first answers on."""
        uuid, settings = device.uuid, self._settings
        self._store.put_device(device)
        first = unmeasured(device, settings.idle_period_ns, settings.active_period_ns, why="the daemon has just started")
        sampler = Sampler(source, first, self._sinks, self._clock, self._stop, reopen=self.source.reopen)
        sampler.rest.on_change = self._note_rest
        with self._adding:
            self._refresh = {**self._refresh, uuid: Refresh(uuid)}
            # Replaced, not changed, because other threads iterate over the samplers; sorted in the source's order.
            found = {**self.samplers, uuid: sampler}
            self.samplers = {known: found[known] for known in self.devices if known in found}
            sampler.set_active(self._is_wanted(uuid))
        sampler.start()
        # Measuring calls, and their imports, would delay the first sweep, for which the daemon's start waits.
        self.has_answered.wait(MEASURED_AFTER_S)
        if self._stop.is_set():
            return
        sampler.replan(self._plan(source, device))
        sampler.set_periods(self._settings.idle_period_ns, self._settings.active_period_ns)  # may have changed meanwhile

    def _plan(self, source: Source, device: Device) -> SamplingPlan:
        settings = self._settings
        from gpuwatch.sampling.measure import measure  # imported only once the daemon answers

        targets = PlanTargets(settings.idle_period_ns, settings.active_period_ns, budget_ratio=settings.budget_ratio)
        is_turn = self._measuring.acquire(timeout=MEASURE_TURN_S)
        try:
            plan = measure(source, device, self._clock, targets, stop=self._stop)
        except (DeviceLostError, SourceGoneError) as error:
            level = logging.DEBUG if self._stop.is_set() else logging.WARNING
            _log.log(level, "%s could not be measured: %s", device.uuid, error)
            plan = unmeasured(device, settings.idle_period_ns, settings.active_period_ns)
        finally:
            if is_turn:
                self._measuring.release()
        self._store.put_refresh(device.uuid, plan.refresh_ns)
        return plan
