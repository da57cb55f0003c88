"""The daemon's exporter: a sink for sweeps, a receiver of verdicts, and the metrics page."""

import logging
from collections.abc import Callable

from annotate.evidence import Device
from gpuwatch.config.settings import Settings
from gpuwatch.errors import UsageError
from gpuwatch.exporter.access import access
from gpuwatch.exporter.collector import Collector, DaemonFigures, Machine
from gpuwatch.exporter.counters import Outcomes, Tallies
from gpuwatch.exporter.http_server import HttpServer

_log = logging.getLogger("gpuwatch.exporter")


class Exporter:
    """The exporter, which counts from construction on and serves from ``start`` on.

    Raises UsageError: for an invalid access configuration.
    """

    def __init__(self, settings: Settings, device: Callable[[str], Device | None]) -> None:
        self.tallies = Tallies(device)
        self.outcomes = Outcomes()
        self._settings = settings
        self.listen = settings.listen
        self._access = access(settings)  # read before anything is started, because the user must correct errors
        self.web: HttpServer | None = None
        self._collector: Collector | None = None

    @property
    def scraped_ns(self) -> int | None:
        """Return the start time of the last page's collection; None before the first."""
        return self._collector.collected_ns if self._collector else None

    @property
    def url(self) -> str | None:
        """Return the address of the page; None before ``start``."""
        return self.web.url if self.web else None

    def start(self, machine: Machine, daemon: DaemonFigures, ready: Callable[[], bool]) -> None:
        """Start to serve the page.

        Raises UsageError: when the address cannot be bound, or the page's thread cannot start.
        """
        most_count = self._settings.exporter_processes_count
        self._collector = Collector(machine, daemon, self.tallies, self.outcomes, processes_count=most_count)
        self._collector.certificate_expiry_s = lambda: self._access.expiry_s
        self.web = HttpServer(self._settings.listen, self._access, self._collector, ready)
        _log.info("metrics: %s", self.web.url)

    def reload(self, settings: Settings) -> None:
        """Read certificate and users again, for example after a renewal; keep the old ones if the new ones are invalid."""
        try:
            self._access = access(settings)
        except UsageError as error:
            _log.error("metrics: still using the old certificate and users: %s", error)
            return
        if self.web is not None:
            self.web.site.access = self._access

    def stop(self) -> None:
        if self.web is not None:
            self.web.close()
