"""The windows in hand: opened, closed, given their tail, judged, stored.  What the daemon knows about each lies here."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from annotate.errors import AnnotateError
from annotate.evidence import ProcessList
from annotate.policy import Policy
from annotate.verdict import Status
from gpuwatch import clock
from gpuwatch.daemon import tracked_window
from gpuwatch.daemon.flush import Flushing
from gpuwatch.daemon.judge_worker import Judge
from gpuwatch.daemon.tracked_window import InThread, TrackedWindow
from gpuwatch.daemon.user_turns import UserTurns
from gpuwatch.daemon.watched_gpus import WatchedGpus
from gpuwatch.errors import StoreError, UsageError
from gpuwatch.host import processes
from gpuwatch.store import Reader, Run, Store
from gpuwatch.wire import run_ids
from gpuwatch.wire import timings as iterations
from gpuwatch.wire.messages import FactValue, Times

_log = logging.getLogger("gpuwatch.daemon.windows")
_T = TypeVar("_T")

# What a window's judge waits for after its end: one refresh of utilisation (208 ms), the slowest required signal.
TAIL_S = 0.25
TELL_S = 20.0  # how long an ended window may take to hand over its times
FOLLOW_S = 1.0
HOST_S = 60.0  # milliseconds of work behind that of a thousand windows; longer is a thread that could not be started
HOST_COUNT = 4  # threads that ask the operating system about windows
FOLLOWED_COUNT = 32  # with more windows at once, looking at every tree would itself be the pressure
TIMES_COUNT = 10_000_000  # of all windows in hand, a quarter of a gigabyte; with more, new ones are judged without
OWN_TIMES_COUNT = 2_500_000  # of one user's of a daemon that serves many, so that others' windows are judged with theirs
KEPT_COUNT = 200  # judged runs answered from memory, 60 kB each; older ones are asked of the store
IN_HAND_COUNT, OWN_COUNT = 4096, 2048  # 17 kB each; who opens windows faster than they are judged would fill any memory


class Windows:
    """Opens, closes and judges windows.  All methods run in the daemon's event loop."""

    def __init__(
        self, witness: WatchedGpus, store: Store, judge: Judge, *, state: Path, threads: Executor, boot_id: str,
        judged: Callable[[Run, float | None], None] | None = None, flushing: Flushing | None = None,
        host_s: float = HOST_S, shared: bool = False,
        at_edges: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self._witness = witness
        self._store = store
        self._judge = judge
        self._flushing = flushing or Flushing(store)
        self._host_s = host_s
        self._own_times_count = OWN_TIMES_COUNT if shared else TIMES_COUNT
        self._state = state
        self._threads = threads
        self._boot_id = boot_id
        self._at_edges = at_edges or _nothing  # before a window opens, and before it is judged
        self._tell_judged = judged  # given every window's end, and how long its judging took
        self._identities = processes.Identities()
        self._machine = processes.facts()
        self._in_hand: dict[str, TrackedWindow] = {}
        self._judged: dict[str, Run] = {}
        # Who opens windows faster than they are judged waits for them; other users do not.
        self._judging_turns, self._host_turns = UserTurns(), UserTurns(HOST_COUNT)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def busy_count(self) -> int:
        return len(self._in_hand)

    async def open(
        self,
        *,
        pid: int,
        uid: int,
        claim: str,
        label: str | None,
        policy: dict[str, Any],
        gpus: list[str] | None,
        parent: str | None,
        told: dict[str, FactValue],
    ) -> tuple[Run, str | None]:
        """A new open window and a warning, if any.  Raises UsageError for an unknown claim, rule or limit."""
        try:
            checked = Policy.from_dict({**policy, "claim": claim})
        except AnnotateError as error:
            raise UsageError(str(error)) from error
        self._check_room(uid)
        self._at_edges()
        named, warning = tracked_window.named(gpus, self._witness.uuids)
        run = Run(
            id=run_ids.new_id(clock.wall_s()), label=label, claim=checked.claim.value, policy=checked.to_dict(), boot_id=self._boot_id,
            begin_ns=clock.now_ns(), end_ns=None, begun_wall_s=clock.wall_s(), pid=pid, uid=uid, user=None, process=None, uuids=named or (),
            pids=frozenset({pid} if pid else ()), told=told, host=None, status="open", why=warning or "", parent=parent,
            source=self._witness.source_name, simulated=self._witness.simulated, verdicts=(),
        )  # fmt: skip
        held = TrackedWindow(run, named, self._machine, pids={pid} if pid else set(), opened_ns=run.begin_ns)
        self._in_hand[run.id] = held
        for uuid in named or self._witness.uuids[:1]:
            self._witness.adopt(uuid, pid)
        covered = named or tracked_window.hinted(told, self._witness.uuids)
        # The benchmark waits for the cheap part of the edge and for nothing else.
        try:
            await self._witness.mark(covered)
        except BaseException:  # no thread can be started, or the daemon leaves: nobody will ever close it
            del self._in_hand[run.id]
            raise
        held.run = replace(run, begin_ns=clock.now_ns())
        self._spawn(self._opened(held, covered))
        return held.run, warning

    def _check_room(self, uid: int) -> None:
        """Raises UsageError if this user, or all together, have more in hand than will be judged in time."""
        count = len(self._in_hand)
        if count < OWN_COUNT:
            return
        own_count = sum(held.run.uid == uid for held in self._in_hand.values())
        if count >= IN_HAND_COUNT or own_count >= OWN_COUNT:
            raise UsageError(
                f"expected at most {OWN_COUNT} windows of yours open or waiting for the judge, found {own_count} and {count} in"
                " all; ask each for its verdict before the next one begins"
            )

    def take_times(self, piece: Times, *, uid: int) -> None:
        """Times of iterations of a window not yet closed, in order.  Raises UsageError."""
        held = self._own(piece.run, uid)
        if held.told_all.is_set():
            raise UsageError(f"window {piece.run} is closed; it is {held.run.status}")
        count = held.checked(piece)
        self._check_room_for_times(count, uid=held.run.uid)
        held.take(piece, count)

    def _check_room_for_times(self, count: int, *, uid: int) -> None:
        """Raises UsageError if the windows of this user, or of all, would hold more times than the daemon keeps in memory."""
        by_uid: Counter[int] = Counter()
        for each in self._in_hand.values():
            by_uid[each.run.uid] += each.times_count
        if by_uid[uid] + count > self._own_times_count:
            raise UsageError(
                f"times: expected at most {self._own_times_count} of all your windows at once, found {by_uid[uid] + count};"
                " close some windows first"
            )
        if by_uid.total() + count > TIMES_COUNT:
            raise UsageError(
                f"times: expected at most {TIMES_COUNT} of all users' windows at once, found {by_uid.total() + count}; try later"
            )

    async def end(self, run_id: str, *, uid: int, begin_ns: int, end_ns: int) -> None:
        """Settle a window's interval; it is judged when it is closed.  Raises UsageError."""
        held = self._own(run_id, uid)
        if held.run.status != "open":
            raise UsageError(f"window {run_id} is not open; it is {held.run.status}")
        await self._end(held, *held.settled(begin_ns, end_ns, clock.now_ns()))

    async def close(self, run_id: str, *, uid: int, begin_ns: int, end_ns: int, told: dict[str, FactValue]) -> None:
        """End a window if it has not ended; with all told, its judging goes on by itself.  Raises UsageError."""
        held = self._own(run_id, uid)
        if held.told_all.is_set():
            raise UsageError(f"window {run_id} is not open; it is {held.run.status}")
        if held.run.status == "open":
            await self.end(run_id, uid=uid, begin_ns=begin_ns, end_ns=end_ns)
        held.tell_all(told)

    async def abandon(self, run_id: str) -> None:
        """The process that opened a window went away without closing it."""
        held = self._in_hand.get(run_id)
        if held is None or held.told_all.is_set():
            return
        if held.run.status == "open":
            await self._end(held, held.run.begin_ns, clock.now_ns())
            held.tell_all({"abandoned": "its process went away without closing it"})
        else:  # its body had ended; what it had to tell of it is lost
            held.tell_all({})

    def is_open(self, run_id: str) -> bool:
        """Tell whether the body of this window still runs."""
        held = self._in_hand.get(run_id)
        return held is not None and held.run.status == "open"

    async def verdicts(self, run_id: str, *, uid: int, wait_s: float) -> Run:
        """The run, judged if that happened within so many seconds.  Raises UsageError."""
        held = self._in_hand.get(run_id)
        if held is not None:
            self._own(run_id, uid)
            try:
                await asyncio.wait_for(held.done.wait(), wait_s)
            except TimeoutError:
                return held.run
        run = self._judged.get(run_id) or await self._threads_of(uid)(self._stored, run_id)
        if run is None or not _may(uid, run):
            # The same answer for both: whether another user has a window of this name is not ours to tell.
            raise UsageError(f"no window {run_id!r} of yours is known")
        return run

    def recall(self) -> None:
        """Show again what earlier daemons of this boot judged: a screen's recent windows outlive the daemon."""
        self._spawn(self._recalled())

    async def _recalled(self) -> None:
        before = await self._threads_of(os.getuid())(self._judged_before)
        self._judged = {run.id: run for run in before} | self._judged

    def _judged_before(self) -> list[Run]:
        """As many as are kept, so that one user's many leave room for another's, oldest first."""
        try:
            with Reader(self._state) as reader:
                runs = reader.runs(status=list(Status), limit=KEPT_COUNT)
        except StoreError:
            return []
        return [run for run in reversed(runs) if run.boot_id == self._boot_id]

    def _stored(self, run_id: str) -> Run | None:
        """A judged run from the store: its window may have closed under an earlier daemon."""
        try:
            with Reader(self._state) as reader:
                run = reader.run(run_id)
        except StoreError:
            return None
        return run if run.id == run_id and run.status in list(Status) else None

    def _threads_of(self, uid: int) -> InThread:
        """What asks the operating system or the store for a user's window, in that user's turn."""

        async def in_thread(work: Callable[..., _T], *arguments: object) -> _T:
            # A pool whose thread could not be started, for want of memory, keeps its work without ever doing it.
            async with asyncio.timeout(self._host_s), self._host_turns.turn(uid):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

        return in_thread

    def shown(self, uid: int) -> Iterator[Run]:
        """The windows this user may see, in hand first, then judged; newest first in each."""
        in_hand = (
            replace(held.run, pids=frozenset(held.pids), uuids=held.run.uuids or tuple(held.seen))
            for held in reversed(self._in_hand.values())
        )
        yield from (run for run in itertools.chain(in_hand, reversed(self._judged.values())) if _may(uid, run))

    def census_taken(self, census: ProcessList) -> None:
        """Every new list of processes is looked through for those of open windows."""
        for held in self._in_hand.values():
            if held.run.status == "open":
                held.note(census)

    async def finish(self) -> None:
        """End what is open as unproven and wait for what is being judged, at most a few seconds."""
        self._flushing.leave()
        for held in list(self._in_hand.values()):
            if held.run.status == "open":
                await self._end(held, held.run.begin_ns, clock.now_ns())
                held.tell_all({"abandoned": "the daemon was stopped meanwhile"})
            elif not held.told_all.is_set():  # its body had ended: it is judged without what it had still to tell
                held.tell_all({})
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)

    # The pieces

    async def _opened(self, held: TrackedWindow, covered: Sequence[str]) -> None:
        """What need not hold the benchmark up: the rest of the edge, who it is, its CPU pressure, the row in the store."""
        self._witness.window_opened(held.named)
        held.active = True
        await self._witness.edge(covered)
        self._note_all(held)
        if held.run.pid:
            await held.meet(self._identities, self._threads_of(held.run.uid))
        if held.run.status == "open":
            self._store.put_run(held.run)
            self._spawn(self._follow(held))

    async def _follow(self, held: TrackedWindow) -> None:
        """Look at the tree each second: a command under `gpuwatch run` begins after its window, and has ended before it."""
        while held.run.pid and held.run.status == "open" and len(self._in_hand) <= FOLLOWED_COUNT:
            await held.look_again(self._threads_of(held.run.uid))
            await asyncio.sleep(FOLLOW_S)

    def _note_all(self, held: TrackedWindow, since_ns: int = 0) -> None:
        for uuid in self._witness.uuids:
            census = self._witness.census(uuid)
            if census is not None and census.at_ns >= since_ns:
                held.note(census)

    async def _end(self, held: TrackedWindow, begin_ns: int, end_ns: int) -> None:
        """Ended: the rest goes on without the benchmark, which may itself end at once."""
        held.run = replace(held.run, status="closing", begin_ns=begin_ns, end_ns=end_ns)
        self._spawn(self._finished(held))

    async def _finished(self, held: TrackedWindow) -> None:
        """See a closed window to its end, whatever goes wrong on the way: nobody may wait for it for ever."""
        try:
            await self._finish_one(held)
        except Exception as error:  # noqa: BLE001 - the daemon's outermost loop, for one window
            _log.exception("window %s could not be judged", held.run.id)
            held.run = replace(
                held.run,
                status=Status.UNPROVEN.value,
                why=f"the daemon failed on this window: {type(error).__name__}; see its log",
            )
            self._store.put_run(held.run)
        finally:
            if held.active:
                self._sample_less(held)
            self._judged[held.run.id] = held.run
            while len(self._judged) > KEPT_COUNT:
                del self._judged[next(iter(self._judged))]
            del self._in_hand[held.run.id]
            if self._tell_judged is not None:
                self._tell_judged(held.run, held.judging_s)
            held.done.set()

    def _sample_less(self, held: TrackedWindow) -> None:
        held.active = False
        self._witness.window_closed(held.named)

    async def _finish_one(self, held: TrackedWindow) -> None:
        covered = (
            held.named
            if held.named is not None
            else tuple(held.seen) or tracked_window.hinted(held.run.told, self._witness.uuids)
        )
        _, after = await asyncio.gather(self._witness.edge(covered), held.pressed(self._threads_of(held.run.uid)))
        if held.before:
            await held.look_for_profilers(self._threads_of(held.run.uid))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(held.told_all.wait(), TELL_S)
        held.told_all.set()  # who is later than this is refused
        self._note_all(held, held.run.begin_ns)
        uuids, why = held.covered(self._witness.uuids, self._witness.absence)
        held.run = replace(
            held.run, status="judging", uuids=uuids, why=held.run.why or why, pids=frozenset(held.pids),
            host=held.on_host(after),
        )  # fmt: skip
        self._store.put_run(held.run)
        if (timings := iterations.decode(held.times)) is not None:
            self._store.put_timings(held.run.id, timings)
            held.times.clear()
            held.times_count = 0
        await self._judge_later(held)

    async def _judge_later(self, held: TrackedWindow) -> None:
        await asyncio.sleep(TAIL_S)
        self._sample_less(held)
        self._at_edges()
        untold = await self._witness.hand_over(held.run.uuids)
        refusal = await self._flushing.refusal()
        if untold:
            refusal = f"what was read of {', '.join(untold)} is held up by a driver that does not answer"
        if refusal is not None:
            # Evidence with pieces missing would be judged as if the GPU had not been read, or nobody had been there.
            why = f"its readings could not be stored: {refusal}; `gpuwatch audit --rejudge` judges what is stored by then"
            held.run = replace(held.run, status=Status.UNPROVEN.value, why=why)
            self._store.put_run(held.run)
            return
        asked_ns = clock.now_ns()
        length_s = ((held.run.end_ns or held.run.begin_ns) - held.run.begin_ns) / 1e9
        async with self._judging_turns.turn(held.run.uid):
            judgement = await self._judge.judge(held.run.id, length_s)
        held.judging_s = (clock.now_ns() - asked_ns) / 1e9
        verdicts = tuple(judgement.verdicts)
        status = verdicts[0]["status"] if verdicts else Status.UNPROVEN.value
        why = judgement.why or (verdicts[0]["why"] if verdicts else "") or held.run.why
        held.run = replace(held.run, status=status, why=why, verdicts=verdicts)
        self._store.put_run(held.run, judgement.evidence, judgement.signatures)

    def _own(self, run_id: str, uid: int) -> TrackedWindow:
        held = self._in_hand.get(run_id)
        if held is None or not _may(uid, held.run):
            # The same answer for both: whether another user has a window of this name is not ours to tell.
            raise UsageError(f"no window {run_id} of yours is in hand")
        return held

    def _spawn(self, work: Any) -> None:  # a coroutine of None; typing it needs a generic alias for no gain
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a window's task failed", exc_info=error)


def _nothing() -> None: ...


def _may(uid: int, run: Run) -> bool:
    return uid in (run.uid, 0)


__all__ = ["HOST_COUNT", "OWN_TIMES_COUNT", "TAIL_S", "Windows"]
