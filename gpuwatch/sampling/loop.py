"""The sampling loop on absolute deadlines: it records lateness, and skips and counts missed deadlines without queueing them."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from annotate.evidence import Event, Lane, Reading
from gpuwatch.clock import Signal
from gpuwatch.errors import DeviceLostError, SourceError, SourceGoneError
from gpuwatch.interfaces import Clock, Lost, Observed, Pass, Source, Sweep
from gpuwatch.sampling.pace import Pace
from gpuwatch.sampling.plan import HOLD_NS
from gpuwatch.sampling.wakeup import Wakeup

Passes: TypeAlias = tuple[Sequence[Pass], SourceError | None]

FIRST_RETRY_NS = 1_000_000_000
LONGEST_RETRY_NS = 30_000_000_000


@dataclass(eq=False, slots=True)
class LaneTurn:
    """One lane of one GPU, read repeatedly by one thread; other threads may hurry or watch the lane."""

    what: str
    uuid: str
    lane: Lane
    ask: Callable[[], Sequence[Observed]]
    period_ns: Callable[[], int]
    # Makes many passes, from a deadline until a time, with the source's own loop; returns None without such a loop.
    ask_on: Callable[[int, int], Passes | None] | None = None
    hold_ns: Callable[[], int] = lambda: HOLD_NS  # the longest time for which ``ask_on`` may hold a reading back
    spacing_ns: int = 0  # a hurried pass begins at least this long after the last pass began
    pace: Pace = field(default_factory=Pace)
    due_ns: int = 0
    begun_ns: int | None = None  # start of the last pass
    asking_since_ns: int | None = None  # set while a call of ``ask`` has not returned
    hurries_ns: deque[int] = field(default_factory=deque)  # times requested by other threads, of which the last counts
    lost: str | None = None
    gone: bool = False  # True if the whole source is lost, not only this GPU
    asked_of: Source | None = None  # the source of the last call, set by ``CurrentSource`` and by the fast lane
    hung: str | None = None
    hung_at_ns: int = 0
    retry_ns: int = FIRST_RETRY_NS

    def hurry(self, due_ns: int) -> None:
        """Request a pass at this time, if it is before the next deadline.  The caller then wakes the thread."""
        self.hurries_ns.append(due_ns)

    def _heed(self) -> None:
        due_ns = None
        while self.hurries_ns:
            due_ns = self.hurries_ns.popleft()  # only the last request counts
        if due_ns is not None and self.lost is None:
            earliest_ns = self.begun_ns + self.spacing_ns if self.begun_ns is not None else due_ns
            self.due_ns = min(self.due_ns, max(due_ns, earliest_ns))

    def _take_turn(self, clock: Clock) -> Iterator[Sweep]:
        now_ns, period_ns = clock.now_ns(), self.period_ns()
        missed_count, late_ns = divmod(now_ns - self.due_ns, period_ns)
        due_ns = now_ns - late_ns
        self.begun_ns = self.asking_since_ns = now_ns
        try:
            observed = self.ask()
        except SourceError as error:
            self.asking_since_ns = None
            yield from self._fail(error, clock.now_ns(), due_ns)
            return
        self.asking_since_ns = None
        answered_ns = clock.now_ns()
        self.due_ns = due_ns + period_ns
        self.pace.note(now_ns, late_ns, answered_ns - now_ns, missed_count)
        yield from self._back(due_ns, late_ns, answered_ns)
        for item in observed:  # a Reading names its own lane: the fast lane's call returns a row or a pulse
            lane = item.lane if isinstance(item, Reading) else self.lane
            yield Sweep(self.uuid, lane, due_ns, late_ns, missed_count, item)

    def _take_passes(self, found: Passes, clock: Clock) -> Iterator[Sweep]:
        """Yield the passes of a source's own loop as if they had been made one by one."""
        passes, error = found
        period_ns = self.period_ns()
        for each in passes:
            reading = each.reading
            self.begun_ns, self.due_ns = each.due_ns + each.late_ns, each.due_ns + period_ns
            self.pace.note(self.begun_ns, each.late_ns, reading.took_ns, each.missed_count)
            yield from self._back(each.due_ns, each.late_ns, reading.at_ns)
            yield Sweep(self.uuid, reading.lane, each.due_ns, each.late_ns, each.missed_count, reading)
        if error is not None:
            yield from self._fail(error, clock.now_ns(), self.due_ns)

    def _back(self, due_ns: int, late_ns: int, at_ns: int) -> Iterator[Sweep]:
        """Yield the event ``back`` at the first answer of a lost or hung lane.  Readings from before the hang do not count."""
        if (self.lost is not None or self.hung is not None) and at_ns > self.hung_at_ns:
            self.lost = self.hung = None
            self.gone, self.retry_ns = False, FIRST_RETRY_NS
            back = Event(uuid=self.uuid, at_ns=at_ns, kind="back", text=self.what)
            yield Sweep(self.uuid, self.lane, due_ns, late_ns, 0, back)

    def _fail(self, error: SourceError, now_ns: int, due_ns: int) -> Iterator[Sweep]:
        first = self.lost is None
        self.lost = error.reason if isinstance(error, DeviceLostError) else str(error)
        self.gone = isinstance(error, SourceGoneError)
        self.due_ns = now_ns + self.retry_ns
        self.retry_ns = min(2 * self.retry_ns, LONGEST_RETRY_NS)
        if first:
            yield Sweep(self.uuid, self.lane, due_ns, 0, 0, Lost(now_ns, self.lost))


def sweeps(
    turns: Sequence[LaneTurn],
    clock: Clock,
    stop: Signal,
    wake: Wakeup | None = None,
    *,
    woken: Callable[[], None] | None = None,  # called when ``wake`` was set, after all earlier passes have been taken
    nap_ns: int = 250_000_000,  # the longest time until ``stop`` is noticed, whose setter may not set ``wake``
) -> Iterator[Sweep]:
    """Yield every pass of these turns, in the order of their deadlines, forever or until ``stop``.

    If several deadlines have passed, only the last counts.  A turn that finds its GPU or source lost yields one Lost, and
    retries after 1, 2, 4 ... 30 s.  The first answer then yields one Event "back".
    """
    begin_ns = clock.now_ns()
    for turn in turns:
        turn.due_ns = begin_ns
    while not stop.is_set():
        if wake is not None and wake.is_set():
            wake.clear()
            for hurried in turns:
                hurried._heed()  # noqa: SLF001 - a turn and its loop share their state
            if woken is not None:
                woken()
        turn = min(turns, key=_due_ns)
        now_ns = clock.now_ns()
        if turn.ask_on is not None and turn.lost is None:
            # The first reading is passed on at once: the start of the daemon waits for it.
            until_ns = (
                min([now_ns + turn.hold_ns(), *(other.due_ns for other in turns if other is not turn)]) if turn.begun_ns else 0
            )
            if (found := turn.ask_on(turn.due_ns, until_ns)) is not None:
                yield from turn._take_passes(found, clock)  # noqa: SLF001 - as above
                continue
        if turn.due_ns > now_ns:
            clock.wait_until(min(turn.due_ns, now_ns + nap_ns), wake or stop)
            continue
        yield from turn._take_turn(clock)  # noqa: SLF001


def _due_ns(turn: LaneTurn) -> int:
    return turn.due_ns


class CurrentSource:
    """The source that the threads of one GPU share.  ``reopen`` gets the lost source before each retry."""

    def __init__(self, source: Source, reopen: Callable[[Source], Source] | None) -> None:
        self.source = source
        self._reopen = reopen
        self._reopening = threading.Lock()

    def reopened_for(self, turn: LaneTurn) -> Callable[[], Sequence[Observed]]:
        """Return the turn's call, which replaces a lost source by a fresh one."""
        ask = turn.ask

        def ask_current() -> Sequence[Observed]:
            if turn.gone and self._reopen is not None:
                failed = turn.asked_of
                with self._reopening:
                    if self.source is failed:  # the GPU's other thread has not replaced the source yet
                        self.source = self._reopen(failed)
            turn.asked_of = self.source
            return ask()

        return ask_current
