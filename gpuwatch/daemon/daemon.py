"""The daemon's composition root: wiring of sources and sinks, start and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from annotate import __version__
from annotate.evidence import Device
from gpuwatch import clock
from gpuwatch.config.settings import Settings
from gpuwatch.daemon.flush import Flushing
from gpuwatch.daemon.gpu_overview import GpuOverview, report_to_manager
from gpuwatch.daemon.greeting import Greeting
from gpuwatch.daemon.judged_windows import JudgedWindows
from gpuwatch.daemon.judging import Judge
from gpuwatch.daemon.server import Answers, Server
from gpuwatch.daemon.tracked_window import WindowServices
from gpuwatch.daemon.user_turns import THREADS_COUNT, UserThreads, running_pool
from gpuwatch.daemon.watched_gpus import WatchedGpus
from gpuwatch.daemon.windows import Windows
from gpuwatch.errors import GpuwatchError
from gpuwatch.host import processes
from gpuwatch.host.suspend import SuspendWatch
from gpuwatch.interfaces import Sweep
from gpuwatch.store import Store, StoreLimits
from gpuwatch.systemd import notify
from gpuwatch.utf8 import clean_text
from gpuwatch.view import snapshot
from gpuwatch.wire import messages, store_owner

if TYPE_CHECKING:
    from gpuwatch.exporter.exporter import Exporter

_log = logging.getLogger("gpuwatch.daemon.daemon")

FIRST_SWEEP_S = 5.0  # the daemon serves after this time, even if a GPU has not answered
MEASURE_AFTER_S = 0.1  # the first window opens meanwhile: measuring would delay its greeting
IDLE_CHECK_S, IDLE_CHECKS_COUNT = 1.0, 15  # the shortest interval of idle checks, and checks per idle time
ATTENDED_S = 60.0  # a scrape counts as a client for this long
REACHABLE_S = 4.0  # interval of checks for a removed socket, shorter than a window's wait for a daemon
QUIET_S = 0.5  # a request to exit this soon after a welcome needs ``now``: the client may be about to open a window
FINISH_S = 8.0  # time limit for each of three shutdown steps: windows, server, judge
STORE_MODE, SHARED_STORE_MODE = 0o600, 0o640  # the system daemon's files are readable by their group


class Daemon:
    """A daemon, which a signal or a client stops; an on-demand one exits after its idle time without clients and windows."""

    def __init__(
        self,
        settings: Settings,
        ready: Callable[[], None],
        *,
        on_demand: bool,
        shared: bool = False,
        manager: notify.Manager | None = None,
        listener: socket.socket | None = None,
        leaving: Callable[[], None] = lambda: None,  # called when shutdown begins
    ) -> None:
        self.settings = settings
        self._ready = ready
        self._on_demand = on_demand
        self._manager = manager or notify.Manager()
        self._listener = listener
        self._mode = SHARED_STORE_MODE if shared else STORE_MODE
        self._leaving = leaving
        self._boot_id = processes.facts().boot_id or "unknown"
        self._begun_ns = clock.now_ns()
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        # Driver calls may hang, so they have their own pool: windows' reads of /proc and the store must not queue behind them.
        self._driver_threads = running_pool(16, "gpuwatch-edge")
        self._threads = running_pool(THREADS_COUNT, "gpuwatch-windows")
        self._serving = False
        self._exporter = self._export(settings) if settings.listen and not on_demand else None
        self._store = _store(settings, self._boot_id, self._mode)
        self._judge = Judge(settings.state, log=settings.log if on_demand else None)
        counting = (self._exporter.tallies,) if self._exporter else ()
        self._gpus = WatchedGpus(settings, self._store, sinks=(self._store, self, *counting), threads=self._driver_threads)
        self._overview = GpuOverview(self._gpus)
        self._suspensions = SuspendWatch(self._gpus.note_suspension, is_busy=lambda: self._windows.tracked_count > 0)
        services = WindowServices(
            gpus=self._gpus,
            store=self._store,
            judge=self._judge,
            flushing=Flushing(self._store),
            threads=UserThreads(self._threads),
            before_edge=self._suspensions.look_before_edge,
        )
        on_judged = self._exporter.outcomes.judged if self._exporter else None
        judged = JudgedWindows(settings.state, self._boot_id)
        if self._exporter:
            self._exporter.tallies.recall(judged.read_xids())
        self._windows = Windows(services, judged, boot_id=self._boot_id, on_judged=on_judged, is_shared=shared)
        self._server = Server(self._windows, Answers(self._greeting, self.status, self._now, self._leave), is_shared=shared)

    def _export(self, settings: Settings) -> Exporter:
        from gpuwatch.exporter.exporter import Exporter  # imported late: only for a metrics page

        return Exporter(settings, self._device)

    def _device(self, uuid: str) -> Device | None:
        return self._gpus.devices.get(uuid)  # a callback, because the exporter is created before the GPUs

    def _start_page(self) -> None:
        if self._exporter is not None:
            from gpuwatch.exporter.collector import DaemonFigures

            figures = DaemonFigures(
                self._store.statistics, lambda: self._windows.tracked_count, lambda: self._server.client_count
            )
            self._exporter.start(self._overview, figures, lambda: self._serving)

    def take(self, sweep: Sweep) -> None:
        """Pass process lists to the windows in the event loop's thread: changed lists at once, others every second (a sink)."""
        if self._windows.tracked_count and self._gpus.latest.is_news(sweep.observed):
            with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon is exiting
                self._loop.call_soon_threadsafe(self._windows.note, sweep.observed)

    async def run(self) -> None:
        """Serve until stopped.  Raises UsageError: when the socket or the metrics page's address cannot be bound."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop.set)
        self._loop.add_signal_handler(signal.SIGHUP, self.reload)
        watches: list[asyncio.Task[None]] = []
        try:
            self._start_page()
            self._gpus.start()
            watches = [asyncio.create_task(self._windows.recall())]
            await self._gpus.first_sweep(FIRST_SWEEP_S)
            # Objects made at start are never freed.  Freezing them shortens garbage collections, which pause the sampler.
            gc.freeze()
            gc.enable()
            if self._listener is not None:
                await self._server.serve(self._listener)
            else:
                await self._server.listen(self.settings.socket)
            self._record_socket()
            self._ready()
            self._loop.call_later(MEASURE_AFTER_S, self._gpus.has_answered.set)
            self._serving = True
            self._manager.ready(self._overview.summary())
            report = report_to_manager(self._manager, self._overview, self._windows, lambda: self.settings.idle_period_ns)
            watches += [asyncio.create_task(each) for each in (report, self._stay_reachable())]
            self._suspensions.look()
            _log.info("ready: %s, %d GPUs, %s", self._overview.source_name, len(self._gpus.uuids), self.settings.socket)
            await self._until_done()
        finally:
            self._leaving()
            self._manager.stopping()
            for watch in watches:
                watch.cancel()
            await self._end()
            _log.info("stopped")

    async def _end(self) -> None:
        """Shut down every part even if another fails; close the store before the page and the GPUs, which may block."""
        self._server.stop_listening()  # a window opened now would be cut off by the shutdown
        for part in (self._windows.finish, self._server.close, self._judge.close):
            try:
                await asyncio.wait_for(part(), FINISH_S)
            except Exception:  # noqa: BLE001 - shutdown: no failure may keep the store from the next daemon
                _log.exception("a part of the daemon failed to shut down")
        stops: list[Callable[[], object]] = [self._store.close]
        if self._listener is None:  # a service manager's socket outlives the daemon: clients must find it
            stops.insert(0, partial(store_owner.forget_socket, self.settings.state, self.settings.socket))
        if self._exporter is not None:
            stops.append(self._exporter.stop)
        stops.append(self._gpus.stop)
        for stop in stops:
            try:
                stop()
            except Exception:  # noqa: BLE001 - as above
                _log.exception("a part of the daemon failed to shut down")
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._driver_threads.shutdown(wait=False, cancel_futures=True)

    async def _until_done(self) -> None:
        last_client_ns = clock.now_ns()
        while not self._stop.is_set():
            idle_s = self._gpus.source.stay_s(self.settings.idle_exit_s)
            with contextlib.suppress(TimeoutError):
                check_s = max(IDLE_CHECK_S, idle_s / IDLE_CHECKS_COUNT)
                await asyncio.wait_for(self._stop.wait(), check_s if self._on_demand else None)
            if self._server.client_count or self._windows.tracked_count:
                last_client_ns = clock.now_ns()
            elif self._on_demand and clock.now_ns() - last_client_ns > idle_s * 1e9:
                _log.info("exiting: no client for %g s", idle_s)
                return

    def _leave(self, request: messages.Leave) -> messages.Reply:
        """Exit; without ``now``, refuse while a window is open or being judged, or just after a client has connected."""
        if (count := self._windows.tracked_count) and not request.now:
            return messages.Refused("windows-open", f"{count} window{'s are' if count > 1 else ' is'} open or being judged")
        if clock.now_ns() - self._server.last_greeted_ns() < QUIET_S * 1e9 and not request.now:
            return messages.Refused("client-came", "a client has just connected and may open a window")
        self._server.stop_listening()
        self._stop.set()
        _log.info("exiting: a client requested it")
        return messages.Leaving()

    async def _stay_reachable(self) -> None:
        while True:
            await asyncio.sleep(REACHABLE_S)
            self._gpus.attend(self._is_attended())
            await self._server.reappear()
            if not (self.settings.state / store_owner.NAME).exists():
                self._record_socket()

    def _is_attended(self) -> bool:
        scraped_ns = self._exporter.scraped_ns if self._exporter is not None else None
        is_scraped = scraped_ns is not None and clock.now_ns() - scraped_ns < ATTENDED_S * 1e9
        return is_scraped or self._server.client_count > 0 or self._windows.tracked_count > 0

    def _record_socket(self) -> None:
        """Record the socket for clients and new daemons that have another default socket; log a failure."""
        try:
            store_owner.record_socket(self.settings.state, self.settings.socket, mode=self._mode)
        except OSError as error:
            level = logging.DEBUG if self._serving else logging.WARNING
            _log.log(level, "the socket could not be recorded in %s: %s", self.settings.state, error.strerror or error)

    def reload(self) -> None:
        """Read the configuration again on SIGHUP; log and keep the settings that cannot change at run time."""
        self._manager.reloading()
        try:
            self._reread()
        finally:
            self._manager.ready(self._overview.summary())

    def _reread(self) -> None:
        try:
            fresh = self.settings.reread()
        except GpuwatchError as error:
            _log.error("the old configuration stays in force: %s", error)
            return
        for name in ("source", "state", "socket", "budget_ratio", "segment_bytes", "listen", "exporter_processes_count"):
            if getattr(fresh, name) != getattr(self.settings, name):
                _log.warning("%s changed in the configuration; the new value takes effect at the next start", name)
        self.settings = replace(fresh, source=self.settings.source, state=self.settings.state, socket=self.settings.socket)
        logging.getLogger("gpuwatch").setLevel(self.settings.log_level.upper())
        self._store.set_budget(self.settings.store_budget_bytes, self.settings.store_max_age_s)
        self._gpus.reconfigure(self.settings)
        if self._exporter is not None:
            self._exporter.reload(replace(self.settings, listen=self._exporter.listen))
        _log.info("configuration read again")

    def status(self) -> dict[str, Any]:
        """Return the daemon's description and state as JSON values."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": (clock.now_ns() - self._begun_ns) / 1e9,
            "boot_id": self._boot_id,
            "state": str(self.settings.state),
            "socket": str(self.settings.socket),
            "on_demand": self._on_demand,
            "started_by": self._started_by(),
            "clients_count": self._server.client_count,
            "windows_count": self._windows.tracked_count,
            "cpu_s": clock.process_cpu_s(),
            "store": self._store.statistics(),
            "metrics": self._exporter.url if self._exporter else None,
            **self._overview.status(),
        }

    def _started_by(self) -> str:
        if self._on_demand:
            return "window"
        return "service" if self._manager.listens or self._listener is not None else "person"

    def _now(self, uid: int, since_ns: int) -> messages.Readings:
        """Return the readings for this user's screens, from memory: no GPU is read; a resting GPU is now attended."""
        self._gpus.attend(attended=True)
        return snapshot.readings(self._overview.machine(), self._windows.shown(uid), at_ns=clock.now_ns(), since_ns=since_ns)

    def _greeting(self) -> Greeting:
        # Clients send the path in this form, because a message holds only UTF-8.
        state = Path(clean_text(str(self.settings.state)))
        return Greeting(self._overview.source_name, self._overview.simulated, state, self._boot_id)


def _store(settings: Settings, boot_id: str, mode: int) -> Store:
    limits = StoreLimits(
        budget_bytes=settings.store_budget_bytes, max_age_s=settings.store_max_age_s, segment_bytes=settings.segment_bytes
    )
    return Store(settings.state, source=settings.source, boot_id=boot_id, limits=limits, mode=mode)
