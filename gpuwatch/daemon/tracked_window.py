"""A tracked window, from its opening to its verdict, in the order of events."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from annotate.budget_data import CLAIM_FACTS
from annotate.evidence import ProcessList
from annotate.status import Status
from gpuwatch import clock
from gpuwatch.daemon.beside_times import BesideTimes
from gpuwatch.daemon.flush import Flushing
from gpuwatch.daemon.judging import Judge
from gpuwatch.daemon.user_turns import UserThreads, UserTurns
from gpuwatch.daemon.watched_gpus import WatchedGpus
from gpuwatch.daemon.window_scope import WindowGpus, WindowHost
from gpuwatch.errors import UsageError
from gpuwatch.host import processes
from gpuwatch.host.processes import Identities
from gpuwatch.interfaces import Run
from gpuwatch.store import Store
from gpuwatch.wire import packed_times
from gpuwatch.wire.messages import FactValue, Times

_log = logging.getLogger("gpuwatch.daemon.windows")

# The largest difference between client's and daemon's time of an edge: long enough for a descheduled process.  A client can
# cut off at most this much of the benchmark at each edge.
EDGE_SLACK_NS = 100_000_000
DECLARING_S = 20.0  # time limit for a client to hand over its times after the window ended
IDENTIFYING_S = 1.0  # time limit for naming the window's process on a busy machine
STORING_S = 1.0  # time limit for storing a verdict before the client gets it
# Wait between the end and the judging: longer than one refresh of utilisation, the slowest required signal.
TAIL_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowServices:
    """Parts of the daemon that every window uses."""

    gpus: WatchedGpus
    store: Store
    judge: Judge
    flushing: Flushing
    threads: UserThreads
    before_edge: Callable[[], None] = lambda: None  # called before a window opens, and before it is judged
    identities: Identities = field(default_factory=Identities)
    # A user whose windows open faster than the judge works waits for verdicts; other users do not.
    judging_turns: UserTurns = field(default_factory=UserTurns)


class TrackedWindow:
    """One window between its opening and its verdict.  All methods run in the daemon's event loop."""

    def __init__(self, run: Run, gpus: WindowGpus, host: WindowHost, services: WindowServices) -> None:
        self.run = run
        self.gpus = gpus
        self.host = host
        self.times_count = 0
        self.beside = BesideTimes()
        self.judging_s: float | None = None
        self.done = asyncio.Event()  # set when the window has its verdict and is no longer tracked
        self._services = services
        self._opened_ns = run.begin_ns  # when the client requested the window: earlier start times are refused
        self._times: list[Times] = []
        self.closed = asyncio.Event()  # set when the window accepts no more declarations
        self._identified = asyncio.Event()  # set when the window's process is named
        self._is_sampled = False  # True while this window requests the full sampling rate
        self._is_stored = False

    @property
    def is_open(self) -> bool:
        """Return whether the window's body runs."""
        return self.run.status == "open"

    def shown(self) -> Run:
        """Return the window for screens, with the GPUs and processes found until now."""
        return replace(self.run, pids=frozenset(self.host.pids), uuids=self.run.uuids or tuple(self.gpus.seen))

    # Opening

    def open(self) -> None:
        """Begin the window.  No reading delays the benchmark: the last one is recent, and ``watch`` reads everything next."""
        watched = self._services.gpus
        for uuid in self.gpus.named or watched.uuids[:1]:
            watched.source.adopt(uuid, self.run.pid)
        self.run = replace(self.run, begin_ns=clock.now_ns())

    async def watch(self) -> None:
        """Sample at the full rate, and read the opening edge, the process and its CPU pressure, while the benchmark runs."""
        watched = self._services.gpus
        watched.window_opened(self.gpus.named)
        self._is_sampled = True
        await watched.edges.edge(self.gpus.at_edges(self.run.declared, watched.uuids))
        self._note_latest()
        if self.run.pid:
            identity = await self.host.in_thread(self._services.identities.of, self.run.pid)
            program = await self.host.in_thread(processes.program, self.run.pid)
            if self.run.status in ("open", "closing"):  # the verdict's signature covers these fields
                self.run = replace(self.run, user=identity.user, process=identity.name, program=program)
            self._identified.set()
            await self.host.begin()
        self._is_stored = True
        if self.is_open:
            self._store_known()

    # While the window is open

    def note(self, listed: ProcessList) -> None:
        """Find the window's processes in a GPU's process list; store new ones, which the judging of parallel windows needs."""
        known_counts = len(self.gpus.seen), len(self.host.pids)
        self.gpus.note(listed, self.host)
        if self._is_stored and self.is_open and known_counts != (len(self.gpus.seen), len(self.host.pids)):
            self._store_known()

    def count_times(self, piece: Times) -> int:
        """Return the number of times in a message.

        Raises UsageError: for a malformed message, or too many times.
        """
        return packed_times.check(piece, self._times[0] if self._times else None, self.times_count)

    def add_times(self, piece: Times, count: int) -> None:
        self._times.append(piece)
        self.times_count += count

    # The end

    def settled(self, begin_ns: int, end_ns: int, now_ns: int) -> tuple[int, int]:
        """Return the interval to judge, from the client's and the daemon's times.

        Raises UsageError: for impossible times.
        """
        if not self._opened_ns <= begin_ns <= end_ns <= now_ns:
            raise UsageError(
                f"times of {self.run.id}: expected begin and end between {self._opened_ns} and {now_ns} ns, "
                f"found {begin_ns} and {end_ns} ns; use the monotonic clock"
            )
        if is_untrusted(self.run.declared):
            return self.run.begin_ns, now_ns
        # The client times the edges, because only the client observes when the body runs.  Its times must stay close to the
        # daemon's, so that a client rewarded for a good verdict cannot cut off the bad part.
        return min(begin_ns, self.run.begin_ns + EDGE_SLACK_NS), max(end_ns, now_ns - EDGE_SLACK_NS)

    def end(self, begin_ns: int, end_ns: int) -> None:
        """Set the interval to judge; the benchmark continues, and may exit at once."""
        self.run = replace(self.run, status="closing", begin_ns=begin_ns, end_ns=end_ns)
        # Stored now: sending the times may take long, and windows that open meanwhile must not count as overlapping.
        self._store_known()

    def close(self, declared: dict[str, FactValue], tags: dict[str, str] | None = None) -> None:
        """Add the last declared facts, and replace the tags if ``tags`` holds any."""
        if is_untrusted(self.run.declared):
            # Claims made before the untrusted code ran cannot change.  Facts that can only be observed later, such as a
            # replaced timer, are added.
            late = {name: fact for name, fact in declared.items() if name not in CLAIM_FACTS}
            declared = {**late, **{name: fact for name, fact in self.run.declared.items() if fact}}
        self.run = replace(self.run, declared={**self.run.declared, **declared}, tags=tags or self.run.tags)
        self.closed.set()

    # The verdict

    async def finish(self) -> None:
        """Complete an ended window's evidence and judge it.  A failure becomes an UNPROVEN verdict: the client waits for one."""
        try:
            await self._read_end()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.closed.wait(), DECLARING_S)
            self.closed.set()  # later facts are refused
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._identified.wait(), IDENTIFYING_S if self.run.pid else 0.0)
            self._store_evidence()
            await asyncio.sleep(TAIL_S)
            await self._services.gpus.edges.read_power(self.run.uuids)
            self._sample_less()
            self._services.before_edge()
            refusal = await self._missing_evidence()
            if refusal is None:
                await self._judge()
                with contextlib.suppress(TimeoutError):  # a script that reads the store next finds the verdict it was told
                    await asyncio.wait_for(self._services.flushing.refusal(), STORING_S)
            else:
                # Missing evidence would be judged as if the GPU had not been read, or as if no other process had used it.
                why = f"readings could not be stored: {refusal}; `gpuwatch audit --rejudge` judges the stored readings"
                self._put(status=Status.UNPROVEN.value, why=why)
        except Exception as error:  # noqa: BLE001 - the outermost handler of one window's errors
            _log.exception("window %s could not be judged", self.run.id)
            why = f"the daemon failed on this window: {type(error).__name__}; see the daemon's log"
            self._put(status=Status.UNPROVEN.value, why=why)
        finally:
            self._sample_less()

    async def _read_end(self) -> None:
        watched = self._services.gpus
        await asyncio.gather(watched.edges.edge(self.gpus.at_edges(self.run.declared, watched.uuids)), self.host.end())

    def _store_evidence(self) -> None:
        watched = self._services.gpus
        self._note_latest(since_ns=self.run.begin_ns)
        uuids, why = self.gpus.covered(self.run.declared, watched.uuids, watched.source.absence, is_visible=bool(self.run.pid))
        self._put(
            status="judging",
            uuids=uuids,
            why=self.run.why or why,
            pids=frozenset(self.host.pids),
            host=self.host.between_edges(),
        )
        if (times := packed_times.joined(self._times)) is not None:
            self._services.store.put_timings(self.run.id, times)
            self._times.clear()
            self.times_count = 0
        for what, spans in self.beside.take(self.run).items():
            self._services.store.put_spans(self.run.id, what, spans)

    async def _missing_evidence(self) -> str | None:
        """Return the reason why the store lacks evidence, or None when it is complete."""
        late = await self._services.gpus.edges.hand_over(self.run.uuids)
        refusal = await self._services.flushing.refusal()
        return f"a driver call that has not returned holds up the readings of {', '.join(late)}" if late else refusal

    async def _judge(self) -> None:
        asked_ns = clock.now_ns()
        length_s = ((self.run.end_ns or self.run.begin_ns) - self.run.begin_ns) / 1e9
        async with self._services.judging_turns.turn(self.run.uid):
            judgement = await self._services.judge.judge(self.run.id, length_s)
        self.judging_s = (clock.now_ns() - asked_ns) / 1e9
        verdicts = tuple(judgement.verdicts)
        status = verdicts[0]["status"] if verdicts else Status.UNPROVEN.value
        why = judgement.why or (verdicts[0]["why"] if verdicts else "") or self.run.why
        self.run = replace(self.run, status=status, why=why, verdicts=verdicts)
        self._services.store.put_run(self.run, judgement.evidence, judgement.signatures)
        self._services.store.put_recorded(self.run, judgement.recorded)

    def _store_known(self) -> None:
        """Store the window's interval with the GPUs and processes found until now."""
        watched = self._services.gpus
        uuids, _ = self.gpus.covered(self.run.declared, watched.uuids, watched.source.absence, is_visible=bool(self.run.pid))
        self._services.store.put_run(replace(self.run, uuids=uuids, pids=frozenset(self.host.pids)))

    def _put(self, **changes: Any) -> None:  # with the types of the fields
        self.run = replace(self.run, **changes)
        self._services.store.put_run(self.run)

    def _note_latest(self, since_ns: int = 0) -> None:
        watched = self._services.gpus
        for listed in map(watched.latest.process_list, watched.uuids):
            if listed is not None and listed.at_ns >= since_ns:
                self.note(listed)

    def _sample_less(self) -> None:
        if self._is_sampled:
            self._is_sampled = False
            self._services.gpus.window_closed(self.gpus.named)


def is_untrusted(declared: Mapping[str, FactValue]) -> bool:
    """Return whether these facts, declared or inherited from a parent window, mark the window's code as untrusted."""
    return declared.get("untrusted") is True
