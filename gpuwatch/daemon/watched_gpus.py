"""The GPUs being watched: the source opened and opened again, a sampler for each GPU, and what they last said."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, wait
from dataclasses import replace
from typing import Any

from annotate.evidence import SIGNALS, Device, Event, Lane, ProcessList, Reading
from gpuwatch.clock import MonotonicClock
from gpuwatch.config.settings import Settings
from gpuwatch.errors import DeviceLostError, SourceError, SourceGoneError, UsageError
from gpuwatch.host import kernel_log, pci
from gpuwatch.host.suspend import Sleep
from gpuwatch.interfaces import Sink, Source, Sweep, WatchedGpu
from gpuwatch.sampling import plan as lanes
from gpuwatch.sampling.driver_events import EventWatch
from gpuwatch.sampling.edges import Edges
from gpuwatch.sampling.sampler import Sampler
from gpuwatch.sources import open_source
from gpuwatch.store import Store

_log = logging.getLogger("gpuwatch.daemon.watched_gpus")

STOP_S = 3.0  # for the threads of all GPUs together, and then for the driver: what hangs there is left
REOPEN_S = 10.0  # how often an absent driver is looked for: no driver is a state, not a failure to start


class WatchedGpus:
    """Watches every GPU of one source, and goes on without those that are lost."""

    def __init__(self, settings: Settings, store: Store, *, sinks: Sequence[Sink], threads: Executor) -> None:
        self._settings = settings
        # A daemon never takes an invention for a GPU: without a driver it serves the fact that there is none.
        self._spec = "nvml" if settings.source == "auto" else settings.source
        self._store = store
        self._sinks = (*sinks, self)
        self._clock = MonotonicClock()
        self._stop = threading.Event()
        self._source: Source | None = None
        self._samplers: dict[str, Sampler] = {}
        self._devices: dict[str, Device] = {}
        self._refresh: dict[str, lanes.Refresh] = {}
        self._latest: dict[tuple[str, Lane], Sweep] = {}
        self._threads = threads
        self._at_edges = Edges(lambda: self._samplers, threads)
        self._open_count: dict[str | None, int] = {}
        self._censuses: dict[str, ProcessList] = {}
        self._used: dict[str, ProcessList] = {}  # by GPU, the last that told how busy each process was
        self._given: dict[str, Source] = {}  # which source each sampler was last handed
        self._reopening = threading.Lock()
        self._adding = threading.Lock()
        self._looked = threading.Event()  # the source was opened once, or found absent
        self._deaf = threading.Event()
        self._keeper: threading.Thread | None = None
        self._unanswered: tuple[str, ...] = ()
        self.absence: str | None = None

    # What it is

    @property
    def source_name(self) -> str:
        return self._source.name if self._source else self._spec

    @property
    def simulated(self) -> bool:
        return bool(self._source and self._source.simulated)

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(self._samplers)

    @property
    def looked(self) -> bool:
        """Whether the source was opened, or found absent: before, nothing is known."""
        return self._looked.is_set()

    @property
    def unanswered(self) -> tuple[str, ...]:
        """The GPUs that the driver lists and that never said who they are, each with the reason."""
        return self._unanswered

    def device(self, uuid: str) -> Device | None:
        return self._devices.get(uuid)

    def watched(self) -> tuple[WatchedGpu, ...]:
        """Every GPU the source named, lost ones too, in its order."""
        return tuple(self._watched(position, device) for position, device in enumerate(self._devices.values()))

    def _watched(self, position: int, device: Device) -> WatchedGpu:
        sampler = self._samplers.get(device.uuid)
        if sampler is None:
            return WatchedGpu(device, position, "it has not answered since the daemon started", {}, {})
        plan = sampler.plan
        return WatchedGpu(
            device, position, sampler.lost,
            sampler.period_ns,
            {name: name not in plan.unanswered for name in SIGNALS} if plan.row_cost_ns else {},
        )  # fmt: skip

    def devices(self) -> tuple[Device, ...]:
        """As a feed: the GPUs with identity and limits as they were when last (re)opened."""
        return tuple(self._devices.values())

    def latest(self) -> Mapping[tuple[str, Lane], Sweep]:
        """As a feed: the last sweep of every GPU and lane."""
        return self._latest

    def census(self, uuid: str) -> ProcessList | None:
        """The last list as the driver gave it, None if the last question had no answer."""
        return self._censuses.get(uuid)

    def silent(self, within_s: float) -> tuple[str, ...]:
        """GPUs that are not declared lost, and of which the fast lane has told nothing for so long: their sampler hangs."""
        oldest_ns = self._clock.now_ns() - int(max(within_s * 1e9, 2 * self._settings.idle_period_ns))
        last = {uuid: self._latest.get((uuid, Lane.FAST)) for uuid, sampler in self._samplers.items() if sampler.lost is None}
        return tuple(uuid for uuid, sweep in last.items() if sweep is not None and sweep.observed.at_ns < oldest_ns)

    def summary(self) -> str:
        """One line for people: what is watched, how often it is really read, what is lost."""
        if self.absence is not None:
            return f"no GPU to watch: {self.absence}"
        if not self._looked.is_set():
            return "the driver has not answered yet"
        samplers = self._samplers
        lost = {uuid: sampler.lost for uuid, sampler in samplers.items() if sampler.lost is not None}
        live = [uuid for uuid in samplers if uuid not in lost]
        names = Counter(self._devices[uuid].name for uuid in live if uuid in self._devices)
        rates_hz = [rate_hz for uuid in live if (rate_hz := samplers[uuid].rate_hz)]  # none before the second reading
        parts = [", ".join(f"{count} × {name}" for name, count in names.items()) or "no GPU answers"]
        if rates_hz:
            parts[0] += f" at {min(rates_hz):.1f} Hz" if len(rates_hz) == 1 else f" at {min(rates_hz):.1f} Hz or more"
        parts += [f"{uuid} lost: {why}" for uuid, why in lost.items()]
        unmeasured = [uuid for uuid in self._devices if uuid not in samplers]
        parts += [f"not yet measured: {', '.join(unmeasured)}"] if unmeasured else []
        parts += [f"{gpu} (listed, but not answering)" for gpu in self._unanswered]
        return "; ".join(parts)

    def take(self, sweep: Sweep) -> None:
        """As a sink of its own samplers: keep the last of each lane, learn the refresh periods."""
        if isinstance(sweep.observed, ProcessList):
            self._censuses[sweep.uuid] = sweep.observed
            sweep = replace(sweep, observed=self._with_use(sweep.observed))
        elif sweep.lane is Lane.PROCESSES:  # it was lost: who was there before is no answer for a window
            self._censuses.pop(sweep.uuid, None)
        self._latest[(sweep.uuid, sweep.lane)] = sweep
        if isinstance(sweep.observed, Reading) and (refresh := self._refresh.get(sweep.uuid)):
            refresh.take(sweep)

    def _with_use(self, census: ProcessList) -> ProcessList:
        """How busy each process is, is asked rarely: what was told stands for screens until it is asked again."""
        if census.tells_use:
            self._used[census.uuid] = census
        return census.with_use(self._used.get(census.uuid, census))

    # Its life

    def start(self) -> None:
        """Open the source and watch its GPUs, from threads: a driver that hangs holds up neither the caller nor other GPUs."""
        descriptor = kernel_log.opened() if self._spec == "nvml" else None
        if descriptor is not None:
            log = kernel_log.KernelLog(descriptor, self._places, self._sinks, self._clock, self._stop)
            self._sinks = (*self._sinks, log)  # before any sampler is given them
            log.start()
        self._keeper = threading.Thread(target=self._keep, name="gpuwatch-keeper", daemon=True)
        self._keeper.start()

    def stop(self) -> None:
        self._stop.set()
        self._deaf.set()
        deadline_ns = self._clock.now_ns() + round(STOP_S * 1e9)
        for sampler in self._samplers.values():
            sampler.stop(max(0.0, (deadline_ns - self._clock.now_ns()) / 1e9))
        if self._source is not None:  # in a thread: a driver that hangs is not waited for at the end either
            wait([self._threads.submit(self._source.close)], STOP_S)

    async def first_sweep(self, wait_s: float) -> None:
        """Wait until every GPU has been read once in every lane that counts, or there is none; at most so long."""
        deadline_ns = self._clock.now_ns() + int(wait_s * 1e9)
        while self._clock.now_ns() < deadline_ns:
            wanted = [(uuid, lane) for uuid in self._devices for lane in (Lane.FAST, Lane.SLOW, Lane.PROCESSES)]
            if self._looked.is_set() and all(key in self._latest for key in wanted):
                return
            await asyncio.sleep(0.01)

    def reconfigure(self, settings: Settings) -> None:
        self._settings = settings
        for sampler in self._samplers.values():
            sampler.set_periods(settings.idle_period_ns, settings.active_period_ns)

    # Windows

    def adopt(self, uuid: str, pid: int) -> None:
        """Tell a simulated GPU whose process its scene's own one is."""
        adopt = getattr(self._source, "adopt", None)
        if adopt is not None and pid:
            adopt(uuid, pid)

    def window_opened(self, uuids: tuple[str, ...] | None) -> None:
        """Sample at the full rate while windows are open; None: on every GPU."""
        self._count(uuids, 1)

    def window_closed(self, uuids: tuple[str, ...] | None) -> None:
        self._count(uuids, -1)

    def slept(self, sleep: Sleep) -> None:
        """The machine was suspended: what lies on both sides of it is not one stretch of watching, and is kept as two."""
        text = f"the machine was suspended for {sleep.slept_s:.1f} s"
        for uuid in self._samplers:
            event = Event(uuid=uuid, at_ns=sleep.end_ns, kind="suspended", text=text)
            self._store.take(Sweep(uuid, Lane.EVENTS, sleep.end_ns, 0, 0, event))
            self._store.put_gap(uuid, Lane.FAST, sleep.begin_ns, sleep.end_ns)

    async def mark(self, uuids: Sequence[str]) -> None:
        await self._at_edges.mark(uuids)

    async def edge(self, uuids: Sequence[str]) -> None:
        await self._at_edges.edge(uuids)

    async def hand_over(self, uuids: Sequence[str]) -> tuple[str, ...]:
        return await self._at_edges.hand_over(uuids)

    def status(self) -> dict[str, Any]:
        return {
            "source": self.source_name,
            "simulated": self.simulated,
            "absence": self.absence,
            "epoch_ns": getattr(self._source, "epoch_ns", None),
            "gpus": [
                {
                    "uuid": uuid,
                    "name": self._devices[uuid].name,
                    "driver_version": self._devices[uuid].driver_version,
                    **sampler.status(),
                }
                for uuid, sampler in self._samplers.items()
            ],
            "unanswered": list(self._unanswered),
            "unmeasured": [uuid for uuid in self._devices if uuid not in self._samplers],
        }

    # The pieces

    def _count(self, uuids: tuple[str, ...] | None, change: int) -> None:
        for uuid in (None,) if uuids is None else uuids:
            self._open_count[uuid] = self._open_count.get(uuid, 0) + change
        with self._adding:
            for uuid, sampler in self._samplers.items():
                if sampler.active != self._wanted(uuid):
                    sampler.set_active(self._wanted(uuid))

    def _places(self) -> Mapping[tuple[int, int, int], str]:
        """The GPU at each place of the PCI buses."""
        found = {pci.place(device.pci_bus_id): uuid for uuid, device in self._devices.items()}
        return {place: uuid for place, uuid in found.items() if place is not None}

    def _wanted(self, uuid: str) -> bool:
        """Whether an open window wants this GPU at the full rate."""
        return self._open_count.get(None, 0) > 0 or self._open_count.get(uuid, 0) > 0

    def _open(self) -> None:
        try:
            source, devices = self._opened()
        except (SourceError, UsageError) as error:  # the latter: no such scene, or a recording that cannot be read
            if self.absence != str(error):
                _log.warning("no GPU to watch: %s", error)
            self.absence = str(error)
            return
        self.absence = None
        self._source = source
        self._join(source, devices)
        self._listen(source)

    def _join(self, source: Source, devices: Sequence[Device]) -> None:
        """Watch those boards that are not watched yet."""
        known, boards = self._devices, [device for device in devices if device.parent_uuid is None]
        self._devices = _in_order(known, boards)
        for device in (board for board in boards if board.uuid not in known):
            # Daemonic: one that never returns from the driver must not keep the process.
            watch = threading.Thread(target=self._watch, args=(source, device), name="gpuwatch-measure", daemon=True)
            watch.start()
        unanswered = _unanswered(source)
        # Of a GPU that was watched before, its own lanes tell that it is lost, and ask again.
        if len(unanswered) <= len(known.keys() - {board.uuid for board in boards}):
            unanswered = ()
        if unanswered != self._unanswered:
            self._unanswered = unanswered
            _log.warning("listed, but not answering: %s", "; ".join(unanswered) or "none any more")

    def _opened(self) -> tuple[Source, tuple[Device, ...]]:
        """A source and its GPUs.  Raises SourceError, and then holds on to nothing: NVML counts its users."""
        source = open_source(self._spec, self._clock)
        try:
            return source, source.devices()
        except SourceError:
            source.close()
            raise

    def _watch(self, source: Source, device: Device) -> None:
        """Measure one GPU, then sample it."""
        uuid = device.uuid
        self._store.put_device(device)
        plan, reopen = self._plan(source, device), functools.partial(self._reopened, uuid)
        sampler = Sampler(source, device, plan, self._sinks, self._clock, self._stop, reopen=reopen)
        with self._adding:
            self._given[uuid] = source
            self._refresh = {**self._refresh, uuid: lanes.Refresh(uuid)}
            # Replaced, not changed: others iterate over it.  In the source's order, however long each took to measure.
            found = {**self._samplers, uuid: sampler}
            self._samplers = {known: found[known] for known in self._devices if known in found}
            sampler.set_active(self._wanted(uuid))
        sampler.start()

    def _plan(self, source: Source, device: Device) -> lanes.SamplingPlan:
        try:
            plan = lanes.measure(
                source, device, self._clock, budget_ratio=self._settings.budget_ratio,
                idle_period_ns=self._settings.idle_period_ns, active_period_ns=self._settings.active_period_ns,
            )  # fmt: skip
        except (DeviceLostError, SourceGoneError) as error:
            _log.warning("%s could not be measured: %s", device.uuid, error)
            plan = lanes.unmeasured(device, self._settings.idle_period_ns, self._settings.active_period_ns)
        self._store.put_refresh(device.uuid, plan.refresh_ns)
        return plan

    def _listen(self, source: Source) -> None:
        """Wait for the driver's own events, from this source and no longer from the one before."""
        self._deaf.set()
        self._deaf = threading.Event()
        EventWatch(source, self._sinks, self._clock, self._deaf).start()

    def _reopened(self, uuid: str) -> Source:
        """A fresh source for a sampler whose source is gone: the first to ask closes the old one, the others share the new.

        NVML counts its users, so a driver is only attached anew after every one of them let go.  Raises SourceError.
        """
        with self._reopening:
            current = self._source
            if current is None or current is self._given.get(uuid):
                if current is not None:
                    self._deaf.set()
                    current.close()
                current, devices = self._opened()
                self._source = current
                self._join(current, devices)
                self._listen(current)
            self._given[uuid] = current
            return current

    def _keep(self) -> None:
        """Open the source, look for an absent driver, and note refresh periods as they become known."""
        self._open()
        self._looked.set()
        while not self._stop.wait(REOPEN_S):
            if self._source is None:
                self._open()
            elif self._unanswered:
                self._look_again(self._source)
            for uuid, refresh in self._refresh.items():
                learnt = refresh.refresh_ns()
                if learnt:
                    self._store.put_refresh(uuid, learnt)

    def _look_again(self, source: Source) -> None:
        """See whether GPUs that were listed and did not answer do now."""
        try:
            self._join(source, source.devices())
        except SourceError:
            return  # the lanes tell of it


def _in_order(known: Mapping[str, Device], boards: Sequence[Device]) -> dict[str, Device]:
    """The known ones, listed now or lost, and the others: by their places on the bus, which is how a driver lists them."""
    found = {**known, **{board.uuid: board for board in boards if board.uuid not in known}}
    return found if not known else {device.uuid: device for device in pci.in_order(found.values())}


def _unanswered(source: Source) -> tuple[str, ...]:
    """The GPUs a source lists that did not say who they are; only a driver knows such."""
    found: tuple[str, ...] = getattr(source, "unanswered", ())
    return found


__all__ = ["WatchedGpus"]
