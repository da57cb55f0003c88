"""A test fleet: simulated GPUs on virtual time, with counted driver calls and the exporter's page."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from annotate.evidence import SIGNALS, Device, Event, Lane, PowerRecord, ProcessList, Reading
from gpuwatch.clock import VirtualClock
from gpuwatch.exporter.collector import Collector, DaemonFigures
from gpuwatch.exporter.counters import Outcomes, Tallies
from gpuwatch.interfaces import RareReading, Sweep, WatchedGpu
from gpuwatch.sampling.plan import SamplingPlan, unmeasured
from gpuwatch.sampling.sampler import Sampler
from gpuwatch.sources.simulated import Scene
from gpuwatch.sources.simulated.simulated_source import Simulated

STORE: dict[str, Any] = {
    "readings_bytes": 5_000_000, "ledger_bytes": 300_000, "budget_bytes": 2 << 30, "rows_count": 1234, "dropped_count": 0,
    "dropped_segments_count": 0, "set_aside_count": 0, "queued_count": 7, "disk_full": False,
}  # fmt: skip

QUESTIONS_COUNT = 5  # sweeps per sampler after a loss; waiting for a sixth would advance virtual time forever

Labels = frozenset[tuple[str, str]]
Series = dict[tuple[str, Labels], float]


class Counting(Simulated):
    """A simulated source that counts calls by kind, except rare readings."""

    calls: Counter[str]

    def devices(self) -> tuple[Device, ...]:
        self._called("devices")
        return super().devices()

    def read(self, uuid: str, lane: Lane, names: Sequence[str]) -> Reading:
        self._called("read")
        return super().read(uuid, lane, names)

    def read_process_list(self, uuid: str, *, utilization: bool = False) -> ProcessList:
        self._called("process_list")
        return super().read_process_list(uuid, utilization=utilization)

    def power_record(self, uuid: str) -> PowerRecord:
        self._called("power_record")
        return super().power_record(uuid)

    def events(self, timeout_s: float) -> tuple[Event, ...]:
        self._called("events")
        return super().events(timeout_s)

    def _called(self, what: str) -> None:
        if not hasattr(self, "calls"):
            self.calls = Counter()
        self.calls[what] += 1


@dataclass
class Machine:
    """A mock of the daemon's sampling, without threads."""

    devices: Sequence[Device]
    samplers: list[Sampler]
    source_name: str = "simulated"
    simulated: bool = True
    looked: bool = True
    absence: str | None = None
    unsupported: frozenset[str] = frozenset()
    read_rare: Callable[[str], RareReading] | None = None

    def rare(self, uuid: str) -> RareReading | None:
        return self.read_rare(uuid) if self.read_rare is not None else None

    def watched(self) -> tuple[WatchedGpu, ...]:
        return tuple(
            WatchedGpu(
                self.devices[position], position, sampler.lost, sampler.period_ns,
                {name: name not in self.unsupported for name in SIGNALS},
            )
            for position, sampler in enumerate(self.samplers)
        )  # fmt: skip


@dataclass
class Fleet:
    """Simulated GPUs and their collector.  ``play`` advances virtual time; ``scrape`` renders and parses a page."""

    scenes: str | Sequence[Scene]
    processes_count: int = 0
    unsupported: frozenset[str] = frozenset()
    clock: VirtualClock = field(default_factory=VirtualClock)
    outcomes: Outcomes = field(default_factory=Outcomes)

    def __post_init__(self) -> None:
        self.source = Counting(self.scenes, self.clock)
        boards = [device for device in self.source.devices() if device.parent_uuid is None]
        by_uuid = {board.uuid: board for board in boards}
        self.tallies = Tallies(by_uuid.get)
        stop = threading.Event()
        self.machine = Machine(
            boards,
            [Sampler(self.source, self._plan(board), (), self.clock, stop) for board in boards],
            unsupported=self.unsupported,
            read_rare=self.source.read_rare,
        )
        for sampler in self.machine.samplers:
            sampler.set_active(True)
        self._sweeps = [sampler.sweeps() for sampler in self.machine.samplers]
        daemon = DaemonFigures(lambda: STORE, lambda: 2, lambda: 3, self.clock.now_ns)
        self.collector = Collector(self.machine, daemon, self.tallies, self.outcomes, processes_count=self.processes_count)
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self.collector)

    @property
    def uuids(self) -> list[str]:
        return [sampler.plan.uuid for sampler in self.machine.samplers]

    def play(self, seconds: float) -> None:
        until_ns = self.clock.now_ns() + round(seconds * 1e9)
        for sweeps in cycle(self._sweeps):
            for sweep in islice(sweeps, 1):
                self.tallies.take(sweep)
            if self.clock.now_ns() >= until_ns:
                return

    def lose_driver(self) -> None:
        """Close the source, and pass each sampler's reports of the loss to the tallies."""
        self.source.close()
        for sweeps in self._sweeps:
            for sweep in islice(sweeps, QUESTIONS_COUNT):
                self.tallies.take(sweep)

    def report_event(self, uuid: str, kind: str, value: int | None = None) -> None:
        """Pass a driver event to the tallies."""
        now_ns = self.clock.now_ns()
        event = Event(uuid=uuid, at_ns=now_ns, kind=kind, value=value)
        self.tallies.take(Sweep(uuid, Lane.EVENTS, now_ns, 0, 0, event))

    def text(self) -> str:
        return generate_latest(self.registry).decode()

    def scrape(self) -> Series:
        return series(self.text())

    def _plan(self, board: Device) -> SamplingPlan:
        plan = unmeasured(board)
        names = {lane: tuple(n for n in of if n not in self.unsupported) for lane, of in plan.names.items()}
        return replace(plan, names=names, unanswered=self.unsupported)


def series(text: str) -> Series:
    """Return the value of every series of a page in Prometheus' text format."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_families(text)
        for sample in family.samples
    }


def openmetrics_names(text: str) -> Iterator[str]:
    """Yield the sample names of a page in OpenMetrics, read by the strict parser.

    Raises ValueError: when the page violates the format.
    """
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        yield from (sample.name for sample in family.samples)


def of(found: Series, name: str, /, **labels: str) -> float | None:
    """Return the value of the only series with this name and these labels; None if there is no such series."""
    wanted = set(labels.items())
    values = [value for (named, has), value in found.items() if named == name and wanted <= has]
    assert len(values) <= 1, f"{name}{labels}: {len(values)} series"
    return values[0] if values else None


def names(found: Series, **labels: str) -> set[str]:
    """Return the names of series with all of these labels."""
    wanted = set(labels.items())
    return {name for name, has in found if wanted <= has}
