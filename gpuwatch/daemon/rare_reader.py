"""The thread for readings that only the metrics page shows: rare, within a CPU budget, while scraped."""

import logging
import threading
from collections.abc import Callable, Iterable

from gpuwatch import clock
from gpuwatch.errors import DeviceLostError, SourceError
from gpuwatch.interfaces import RareReading, Source

_log = logging.getLogger("gpuwatch.daemon.rare_reader")

PERIOD_S = 10.0
BUDGET_RATIO = 0.002  # part of one CPU core, for all GPUs together; many GPUs lengthen the pause
ATTENDED_S = 300.0  # reads continue for this long after a scrape; most scrape intervals are a minute or shorter
STALE_PERIODS_COUNT = 3
RETRY_S = 1.0


class RareReader:
    """A thread that reads every live board rarely, and the last readings.  The first scrape starts the thread.

    A hanging driver blocks only this thread; old readings are no longer returned.
    """

    def __init__(
        self,
        source: Callable[[], Source | None],
        answering: Callable[[], Iterable[str]],
        stop: threading.Event,
        *,
        period_s: float = PERIOD_S,
        cpu_ns: Callable[[], int] = clock.thread_cpu_ns,
    ) -> None:
        self._source = source
        self._answering = answering
        self._stop = stop
        self._period_s = period_s
        self._cpu_ns = cpu_ns
        self.pause_s = period_s
        self._readings: dict[str, RareReading] = {}
        self._scraped_ns = 0
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def latest(self, uuid: str) -> RareReading | None:
        """Return a board's last reading unless it is stale; each call keeps the thread reading."""
        now_ns = clock.now_ns()
        self._attend(now_ns)
        reading = self._readings.get(uuid)
        stale_ns = STALE_PERIODS_COUNT * self.pause_s * 1e9
        return reading if reading is not None and now_ns - reading.at_ns <= stale_ns else None

    def read_all(self) -> None:
        """Read every board once, and set the pause that keeps the thread within its budget."""
        begun_ns = self._cpu_ns()
        source = self._source()
        read_rare: Callable[[str], RareReading] | None = getattr(source, "read_rare", None)
        for uuid in self._answering() if read_rare is not None else ():
            try:
                self._readings[uuid] = read_rare(uuid)  # type: ignore[misc]  # not None: otherwise there are no boards to read
            except DeviceLostError:
                self._readings.pop(uuid, None)
            except SourceError as error:
                _log.debug("no rare reading: %s", error)
                self._readings.clear()
                break
        self.pause_s = max(self._period_s, (self._cpu_ns() - begun_ns) / 1e9 / BUDGET_RATIO)

    def _attend(self, now_ns: int) -> None:
        self._scraped_ns = now_ns
        with self._starting:
            if self._thread is None:
                # Daemonic: a thread inside a hung driver call can never be joined, and must not keep the process alive.
                self._thread = threading.Thread(target=self._run, name="gpuwatch-rare", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if clock.now_ns() - self._scraped_ns <= ATTENDED_S * 1e9:
                self.read_all()
            # Without a reading, retry soon: a page may be requested before the first GPU is watched.
            self._stop.wait(self.pause_s if self._readings else min(RETRY_S, self.pause_s))
