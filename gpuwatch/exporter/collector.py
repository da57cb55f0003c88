"""The collector of a scrape: it writes values from memory to a page, and reads no driver, store or disk."""

import os
import platform
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector as Collecting

from annotate import __version__
from annotate.evidence import Lane
from gpuwatch import clock
from gpuwatch.exporter import gpu_series, rare_series
from gpuwatch.exporter.counters import Buckets, Outcomes, Tallies
from gpuwatch.exporter.metrics import REASON_CLASSES, SCRAPE_BUCKETS
from gpuwatch.exporter.metrics_page import MetricsPage
from gpuwatch.host import processes
from gpuwatch.interfaces import RareReading, WatchedGpu

# Figure of the store, name of the metric, further labels.
_STORE = (
    ("readings_bytes", "gpuwatch_store_bytes", "readings"),
    ("ledger_bytes", "gpuwatch_store_bytes", "ledger"),
    ("budget_bytes", "gpuwatch_store_budget_bytes"),
    ("rows_count", "gpuwatch_store_rows_total"),
    ("dropped_count", "gpuwatch_store_rows_dropped_total"),
    ("dropped_segments_count", "gpuwatch_store_segments_dropped_total"),
    ("set_aside_count", "gpuwatch_store_segments_set_aside_total"),
    ("queued_count", "gpuwatch_store_queued_rows"),
    ("disk_full", "gpuwatch_store_disk_full"),
)


class Machine(Protocol):
    """The part of the witness that a page shows."""

    @property
    def source_name(self) -> str: ...

    @property
    def simulated(self) -> bool: ...

    @property
    def looked(self) -> bool: ...

    @property
    def absence(self) -> str | None: ...

    def watched(self) -> tuple[WatchedGpu, ...]: ...

    def rare(self, uuid: str) -> RareReading | None: ...


@dataclass(frozen=True, slots=True)
class DaemonFigures:
    """The daemon's own figures on a page, as cheap calls."""

    store: Callable[[], Mapping[str, Any]]
    in_hand_count: Callable[[], int]
    clients_count: Callable[[], int]
    now_ns: Callable[[], int] = clock.now_ns


class Collector(Collecting):
    """A custom collector of ``prometheus_client`` that keeps no series, so that no series outlives its GPU."""

    def __init__(
        self, machine: Machine, daemon: DaemonFigures, tallies: Tallies, outcomes: Outcomes, *, processes_count: int = 0
    ) -> None:
        self._machine = machine
        self._daemon = daemon
        self._tallies = tallies
        self._outcomes = outcomes
        self._processes_count = processes_count
        self._started_s = clock.wall_s()
        self._lock = threading.Lock()  # one scrape at a time, because parallel ones could show decreasing counters
        self._scrapes = Buckets(SCRAPE_BUCKETS)
        self.collected_ns: int | None = None
        self.certificate_expiry_s: Callable[[], float | None] = lambda: None
        self._refused = dict.fromkeys(("busy", "unauthorized", "not_found", "method", "host"), 0)

    def describe(self) -> list[Family]:
        return []  # without this method, a registry with auto_describe would collect at registration

    def collect(self) -> Iterator[Family]:
        return self.page().families()

    def page(self) -> MetricsPage:
        with self._lock:
            self.collected_ns = self._daemon.now_ns()
            page = MetricsPage()
            watched = self._machine.watched()  # read once, so that a GPU is either answering or lost on the whole page
            self._gpus(page, watched)
            self._witness(page, watched)
            self._windows(page)
            self._own(page)
        return page

    def took(self, seconds: float) -> None:
        """Record the time that a page took; the next page shows this time."""
        with self._lock:
            self._scrapes.note(seconds)

    def refuse(self, why: str) -> None:
        """Count a refused request, or a connection that another one replaced."""
        with self._lock:
            self._refused[why] += 1

    def _gpus(self, page: MetricsPage, gpus: tuple[WatchedGpu, ...]) -> None:
        now_ns = self._daemon.now_ns()
        for watched in gpus:
            gpu_series.identity(page, watched)
            # Include counters of a GPU without samples, because increase() needs a first value of zero.
            tally = (self._tallies.of(watched.device.uuid) or self._tallies.fresh(watched.device)).copy()
            gpu_series.watching(page, watched, tally, now_ns)
            gpu_series.canary(page, watched, self._outcomes.canaries.get(watched.device.uuid))
            if watched.lost is None and tally.lanes[Lane.FAST].at_ns is not None:
                gpu_series.readings(page, watched, tally, now_ns, processes_count=self._processes_count)
                rare_series.put(page, watched, self._machine.rare(watched.device.uuid))

    def _witness(self, page: MetricsPage, watched: tuple[WatchedGpu, ...]) -> None:
        machine = self._machine
        answering_count = sum(each.lost is None for each in watched)
        page.put("gpuwatch_up", answering_count > 0)
        kind = machine.source_name.partition(":")[0]
        if machine.looked:
            page.put("gpuwatch_simulated", machine.simulated or kind in ("simulated", "replay"))
            page.put("gpuwatch_gpus", answering_count, "answering")
            page.put("gpuwatch_gpus", len(watched) - answering_count, "lost")
        page.put("gpuwatch_source_info", 1, kind)
        page.put("gpuwatch_build_info", 1, __version__, platform.python_version())
        for reason, of_class in REASON_CLASSES.items():
            page.put("gpuwatch_clock_event_reason_info", 1, reason, of_class)

    def _windows(self, page: MetricsPage) -> None:
        outcomes = self._outcomes
        page.put("gpuwatch_windows_in_hand", self._daemon.in_hand_count())
        page.put("gpuwatch_clients", self._daemon.clients_count())
        with outcomes.lock:
            for status, count in outcomes.statuses.items():
                page.put("gpuwatch_windows_total", count, status)
                page.histogram("gpuwatch_window_duration_seconds", outcomes.lengths[status], status, from_zero=True)
            for (rule, severity), count in outcomes.findings.items():
                page.put("gpuwatch_findings_total", count, rule, severity)
            for rule, count in sorted(outcomes.failures.items()):
                page.put("gpuwatch_rule_failures_total", count, rule)
            page.histogram("gpuwatch_judging_seconds", outcomes.judging, from_zero=True)
            for (proof, state), count in outcomes.proofs.items():
                page.put("gpuwatch_proofs_total", count, proof, state)
            page.histogram("gpuwatch_window_deviation_bound_ratio", outcomes.bounds, from_zero=True)
            page.histogram("gpuwatch_window_repeatability_ratio", outcomes.repeatability, from_zero=True)

    def _own(self, page: MetricsPage) -> None:
        page.put("gpuwatch_daemon_cpu_seconds_total", clock.process_cpu_s())
        page.put("gpuwatch_daemon_resident_memory_bytes", _resident_bytes())
        page.put("gpuwatch_daemon_start_timestamp_seconds", self._started_s)
        page.put("gpuwatch_wall_timestamp_seconds", clock.wall_s())
        page.put("gpuwatch_certificate_expiry_timestamp_seconds", self.certificate_expiry_s())
        store = self._daemon.store()
        for figure, name, *labels in _STORE:
            page.put(name, store[figure], *labels)
        page.put("gpuwatch_export_last_success_time_seconds", store.get("exported_wall_s"))
        page.histogram("gpuwatch_scrape_seconds", self._scrapes)
        for reason, count in self._refused.items():
            page.put("gpuwatch_scrapes_refused_total", count, reason)


def _resident_bytes() -> int | None:
    words = (processes.contents("/proc/self/statm") or "").split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 else None
