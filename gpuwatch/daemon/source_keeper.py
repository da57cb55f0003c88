"""The lifetime of a daemon's source: opened, retried while absent, and reopened after a loss."""

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from annotate.evidence import Device
from gpuwatch.errors import SourceError, UsageError
from gpuwatch.host import pci
from gpuwatch.interfaces import Clock, Sink, Source
from gpuwatch.sampling.sampler_thread import EventWatch
from gpuwatch.sources import open_source

_MISNAMED_STAY_S = 15.0  # enough for the answer to the window that started the daemon

_log = logging.getLogger("gpuwatch.daemon.watched_gpus")


class SourceKeeper:
    """One open source and the GPUs that it listed.  Threads that open it may hang in a driver; other threads only read."""

    def __init__(
        self, spec: str, clock: Clock, *, on_new: Callable[[Source, Device], None], sinks: Callable[[], Sequence[Sink]]
    ) -> None:
        # "auto" never means simulated GPUs here: without a driver, the daemon reports that no GPU is present.
        self._spec = "nvml" if spec == "auto" else spec
        self._clock = clock
        self._on_new = on_new
        self._sinks = sinks
        self._source: Source | None = None
        self._reopening = threading.Lock()
        self._deaf = threading.Event()  # once set, the daemon ignores the driver's events of the current source
        self._looked = threading.Event()
        self.devices: Mapping[str, Device] = {}  # each with the facts of its first listing
        self.absence: str | None = None
        self._is_misnamed = False  # no such scene, or an unreadable recording: retries do not help
        # GPUs that the driver lists but that never answered, each with the reason.
        self.unanswered: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self._source.name if self._source else self._spec

    @property
    def current(self) -> Source | None:
        """Return the open source; None while no source is open."""
        return self._source

    @property
    def is_simulated(self) -> bool:
        return bool(self._source and self._source.simulated)

    @property
    def is_nvml(self) -> bool:
        return self._spec == "nvml"

    @property
    def has_looked(self) -> bool:
        """Return whether the first attempt to open the source has ended."""
        return self._looked.is_set()

    def stay_s(self, idle_s: float) -> float:
        """Return an on-demand daemon's idle time: 15 s at most before the first look at the source, and for a misnamed one."""
        return idle_s if self.has_looked and not self._is_misnamed else min(idle_s, _MISNAMED_STAY_S)

    @property
    def epoch_ns(self) -> int | None:
        """Return the start time of a simulated source's scene, or None for other sources."""
        found: int | None = getattr(self._source, "epoch_ns", None)
        return found

    def adopt(self, uuid: str, pid: int) -> None:
        """Make a real process take the place of the scene's process on a simulated GPU."""
        adopt = getattr(self._source, "adopt", None)
        if adopt is not None and pid:
            adopt(uuid, pid)

    def look(self) -> None:
        """Open the source if it is absent; otherwise check the listed GPUs that have not answered."""
        source = self._source
        if source is None:
            self._open()
            self._looked.set()
        elif self.unanswered:
            with contextlib.suppress(SourceError):  # the lanes report this failure
                self._join(source, source.devices())

    def reopen(self, failed: Source) -> Source:
        """Return a fresh source for a sampler that lost its source.

        The first caller closes the old source; the others share the new one.  NVML counts its users, so the driver is
        attached again only after all users have released it.

        Raises SourceError: when the source cannot be opened.
        """
        with self._reopening:
            current = self._source
            if current is None or current is failed:
                if current is not None:
                    self._deaf.set()
                    current.close()
                current = self._attach()
            return current

    def deafen(self) -> None:
        """Stop waiting for the driver's events."""
        self._deaf.set()

    def close(self) -> None:
        if self._source is not None:
            self._source.close()

    def _open(self) -> None:
        try:
            self._attach()
        except (SourceError, UsageError) as error:  # UsageError: an unknown scene, or an unreadable recording
            if self.absence != str(error):
                _log.warning("no GPU to watch: %s", error)
            self.absence, self._is_misnamed = str(error), isinstance(error, UsageError)
        else:
            self.absence, self._is_misnamed = None, False

    def _attach(self) -> Source:
        """Open the source and watch its GPUs.  Raises SourceError, after releasing the driver: NVML counts its users."""
        source = open_source(self._spec, self._clock)
        try:
            devices = source.devices()
        except SourceError:
            source.close()
            raise
        self.absence, self._source = None, source
        self._join(source, devices)
        self._deaf.set()
        self._deaf = threading.Event()
        EventWatch(source, self._sinks(), self._clock, self._deaf).start()
        return source

    def _join(self, source: Source, devices: Sequence[Device]) -> None:
        """Start to watch the boards that are not watched yet."""
        known, boards = self.devices, [device for device in devices if device.parent_uuid is None]
        self.devices = _in_order(known, boards)
        for device in (board for board in boards if board.uuid not in known):
            self._on_new(source, device)
        unanswered: tuple[str, ...] = getattr(source, "unanswered", ())  # only a driver has unanswered GPUs
        # Lost GPUs that were watched before need no report here: their lanes report the loss and retry.
        if len(unanswered) <= len(known.keys() - {board.uuid for board in boards}):
            unanswered = ()
        if unanswered != self.unanswered:
            self.unanswered = unanswered
            _log.warning("listed, but not answering: %s", "; ".join(unanswered) or "none any more")


def _in_order(known: Mapping[str, Device], boards: Sequence[Device]) -> dict[str, Device]:
    """Return all GPUs, listed or lost: in the order of the first listing, from the second one on sorted by bus address."""
    found = {**known, **{board.uuid: board for board in boards if board.uuid not in known}}
    return found if not known else {device.uuid: device for device in pci.in_order(found.values())}
