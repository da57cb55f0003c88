"""All windows of a daemon: their users, their limits, and the lookup of their verdicts.

The latest verdicts are in memory, earlier ones in the store.
"""

import asyncio
import functools
import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import replace

from annotate.errors import AnnotateError
from annotate.evidence import ProcessList
from annotate.status import Status
from annotate.user_policy import Policy
from gpuwatch import clock
from gpuwatch.daemon.judged_windows import JudgedWindows
from gpuwatch.daemon.tracked_window import TrackedWindow, WindowServices, is_untrusted
from gpuwatch.daemon.window_limits import OWN_COUNT, check_tags, check_times, check_windows
from gpuwatch.daemon.window_scope import WindowGpus, WindowHost, find_named
from gpuwatch.errors import UsageError
from gpuwatch.host import processes
from gpuwatch.host.mark_members import OwnProcesses
from gpuwatch.interfaces import Run
from gpuwatch.store.run import UNJUDGED
from gpuwatch.wire import run_ids
from gpuwatch.wire.messages import Close, FactValue, Open, Spans, Times

_log = logging.getLogger("gpuwatch.daemon.windows")

FOLLOW_S = 1.0
PAUSES_FOLLOWED_COUNT = 8  # with more windows at once, pauses are not followed: each window costs ten reads per second
FOLLOWED_COUNT = 32  # with more windows at once, reading every process tree would itself cause CPU pressure


class Windows:
    """All windows, each visible to its user and to root.  All methods run in the daemon's event loop."""

    def __init__(
        self,
        services: WindowServices,
        judged: JudgedWindows,
        *,
        boot_id: str,
        on_judged: Callable[[Run, float | None], None] | None = None,  # arguments: the run, and the duration of its judging
        is_shared: bool = False,
    ) -> None:
        self._services = services
        self._judged = judged
        self._boot_id = boot_id
        self._on_judged = on_judged
        self._is_shared = is_shared
        self._machine = processes.facts()
        self._tracked: dict[str, TrackedWindow] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def tracked_count(self) -> int:
        """Return the number of windows that are open or wait for their verdict."""
        return len(self._tracked)

    def open(self, request: Open, *, pid: int, uid: int, own: OwnProcesses | None = None) -> tuple[Run, str | None]:
        """Open a window, and return it with a warning, if any.  A mark passes ``own`` and then holds the window.

        Raises UsageError: for an invalid policy, and for too many windows.
        """
        try:
            stated = {**request.policy, "claim": request.claim}
            policy = Policy.from_dict(stated) if request.policy else _bare_policy(request.claim)
        except AnnotateError as error:
            raise UsageError(str(error)) from error
        if len(self._tracked) >= OWN_COUNT:
            check_windows((window.run.uid for window in self._tracked.values()), uid)
        self._services.before_edge()
        watched = self._services.gpus
        named, warning = find_named(request.gpus, watched.devices.values(), missing_count=len(watched.source.unanswered))
        gpus = WindowGpus(named)
        window = self._made(request, policy, gpus, warning, pid=pid, uid=uid, own=own)
        window.open()
        self._tracked[window.run.id] = window
        self._spawn(self._watch(window))
        return window.run, warning

    def add_times(self, piece: Times | Spans, *, uid: int) -> None:
        """Add times of iterations, or spans, to a window that is not closed yet.

        Raises UsageError: for an unknown or closed window, malformed data, and too many times.
        """
        window = self._own(piece.run, uid)
        if window.closed.is_set():
            raise UsageError(f"window {piece.run}: expected it open, found status {window.run.status}; send data earlier")
        count = window.count_times(piece) if isinstance(piece, Times) else window.beside.count(piece)
        by_uid: Counter[int] = Counter()
        for each in self._tracked.values():
            by_uid[each.run.uid] += each.times_count + each.beside.spans_count
        check_times(by_uid, window.run.uid, count, is_shared=self._is_shared)
        if isinstance(piece, Times):
            window.add_times(piece, count)
        else:
            window.beside.add(piece, count)

    def end(self, run_id: str, *, uid: int, begin_ns: int, end_ns: int) -> None:
        """End a window's interval; the judge starts after the window's close, or without a close after ``DECLARING_S``.

        Raises UsageError: for a window that is unknown or not open, and for impossible times.
        """
        window = self._own(run_id, uid)
        if not window.is_open:
            raise UsageError(f"window {run_id}: expected it open, found status {window.run.status}; end each window once")
        self._end(window, *window.settled(begin_ns, end_ns, clock.now_ns()))

    def close(self, request: Close, *, uid: int) -> None:
        """End a window if it is still open, and let the judge start.

        Raises UsageError: for an unknown or closed window, too many or long tags, and impossible times.
        """
        window = self._own(request.run, uid)
        if window.closed.is_set():
            raise UsageError(f"window {request.run}: expected it open, found status {window.run.status}; close it once")
        check_tags(tags := {**window.run.tags, **request.tags})
        if window.is_open:
            self.end(request.run, uid=uid, begin_ns=request.begin_ns, end_ns=request.end_ns)
        window.close(request.declared, tags)

    def abandon(self, run_id: str, why: str = "the client disconnected without closing the window") -> None:
        """End a window that no client will close."""
        window = self._tracked.get(run_id)
        if window is None or window.closed.is_set():
            return
        if window.is_open:
            self._end(window, window.run.begin_ns, clock.now_ns())
            window.close({"abandoned": why})
        else:  # the body has ended; undeclared facts are lost
            window.close({})

    def is_open(self, run_id: str) -> bool:
        """Return whether the body of this window still runs."""
        window = self._tracked.get(run_id)
        return window is not None and window.is_open

    async def verdicts(self, run_id: str, *, uid: int, wait_s: float) -> Run:
        """Return the run, with its verdict if the judge finishes within ``wait_s``.

        Raises UsageError: for an unknown window and another user's.
        Raises TimeoutError: when no thread reads the store in time.
        """
        window = self._tracked.get(run_id)
        if window is not None:
            self._own(run_id, uid)
            try:
                await asyncio.wait_for(window.done.wait(), wait_s)
            except TimeoutError:
                return window.run
        run = self._judged.get(run_id) or await self._services.threads.of(uid)(self._judged.read, run_id)
        if run is None or not _is_visible(run, uid):
            # One answer for an unknown window and another user's: the existence of the latter is private.
            raise UsageError(f"expected a window of your user, found no window {run_id!r}; list windows with: gpuwatch audit")
        return run

    async def recall(self) -> None:
        """Read the windows that earlier daemons of this boot judged, so that screens still show them."""
        self._judged.add_earlier(await self._services.threads.of(os.getuid())(self._judged.read_recent))

    def shown(self, uid: int) -> Iterator[Run]:
        """Yield the windows that this user may see, tracked ones first, then judged ones; the newest first in each."""
        tracked = (window.shown() for window in reversed(self._tracked.values()))
        yield from (run for run in itertools.chain(tracked, reversed(self._judged)) if _is_visible(run, uid))

    def note(self, listed: ProcessList) -> None:
        """Look for processes of open windows in a GPU's new process list."""
        for window in self._tracked.values():
            if window.is_open:
                window.note(listed)

    async def finish(self) -> None:
        """Abandon open windows, wait a few seconds for the judge, and store windows still being judged as unproven."""
        self._services.flushing.leave()
        for run_id in list(self._tracked):
            self.abandon(run_id, "the daemon stopped while the window was open")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)
        for run in (window.run for window in self._tracked.values() if window.run.status == "judging"):
            self._services.store.put_run(replace(run, status=Status.UNPROVEN.value, why=UNJUDGED))

    def _made(
        self,
        request: Open,
        policy: Policy,
        gpus: WindowGpus,
        warning: str | None,
        *,
        pid: int,
        uid: int,
        own: OwnProcesses | None,
    ) -> TrackedWindow:
        source, now_ns = self._services.gpus.source, clock.now_ns()
        parent, inherited = _around(request.parent, self._tracked.values(), pid, uid)
        run = Run(
            id=run_ids.new_id(clock.wall_s()),
            label=request.label,
            claim=policy.claim.value,
            policy=policy.to_dict(),
            boot_id=self._boot_id,
            begin_ns=now_ns,
            end_ns=None,
            begun_wall_s=clock.wall_s(),
            pid=pid,
            uid=uid,
            user=None,
            process=None,
            uuids=gpus.named or (),
            pids=frozenset({pid} if pid else ()),
            declared={**request.declared, **inherited},
            host=None,
            status="open",
            why=warning or "",
            parent=parent,
            tags=request.tags,
            source=source.name,
            simulated=source.is_simulated,
            verdicts=(),
        )
        host = WindowHost(pid, now_ns, self._machine, self._services.threads.of(uid), set(run.pids), request.thread, own)
        return TrackedWindow(run, gpus, host, self._services)

    async def _watch(self, window: TrackedWindow) -> None:
        """Read the opening edge; follow pauses and the process tree, as `gpuwatch run`'s command lives at neither edge."""
        await window.watch()
        self._spawn(self._services.judge.warm())  # the worker's imports run during the window's body, which is rarely shorter
        if window.run.pid and len(self._tracked) <= PAUSES_FOLLOWED_COUNT:
            self._spawn(window.host.follow_pauses(lambda: window.is_open, window.beside.see))
        while window.run.pid and window.is_open and len(self._tracked) <= FOLLOWED_COUNT:
            await window.host.look_again()
            await asyncio.sleep(FOLLOW_S)

    def _end(self, window: TrackedWindow, begin_ns: int, end_ns: int) -> None:
        window.end(begin_ns, end_ns)
        self._spawn(self._services.judge.warm())  # the worker may have exited during a long window
        self._spawn(self._finish(window))

    async def _finish(self, window: TrackedWindow) -> None:
        try:
            await window.finish()
        finally:
            self._judged.add(window.run)
            del self._tracked[window.run.id]
            if self._on_judged is not None:
                self._on_judged(window.run, window.judging_s)
            window.done.set()

    def _own(self, run_id: str, uid: int) -> TrackedWindow:
        window = self._tracked.get(run_id)
        if window is None or not _is_visible(window.run, uid):
            # One answer for an unknown window and another user's: the existence of the latter is private.
            raise UsageError(f"expected an open window of your user, found no window {run_id} open or being judged; open one")
        return window

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a window's task failed", exc_info=error)


@functools.lru_cache(maxsize=8)  # most policies hold only a claim, and the benchmark waits for this call
def _bare_policy(claim: str) -> Policy:
    return Policy.from_dict({"claim": claim})


def _is_visible(run: Run, uid: int) -> bool:
    return uid in (run.uid, 0)


def _around(
    parent: str | None, tracked: Iterable[TrackedWindow], pid: int, uid: int
) -> tuple[str | None, dict[str, FactValue]]:
    """Return a new window's parent (by default the latest mark or untrusted window around its process) and inherited facts.

    Every window below an untrusted window is untrusted, with any named parent.
    """
    inherited: dict[str, FactValue] = {}
    for window in reversed([each for each in tracked if each.run.uid == uid and each.is_open]):
        untrusted = is_untrusted(window.run.declared)
        is_asked = window.host.own is not None or untrusted
        if window.run.id == parent or (is_asked and window.host.holds(pid)):
            parent = parent or window.run.id
            inherited |= {"untrusted": True} if untrusted else {}
    return parent, inherited
