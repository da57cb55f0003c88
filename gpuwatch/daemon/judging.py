"""The daemon's side of the judge: it starts the worker when a window opens and ends the worker after a minute without work.

An idle worker would hold as much memory as the daemon itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from gpuwatch.daemon.judgement import LENGTH, Judgement
from gpuwatch.daemon.worker_patience import WorkerPatience
from gpuwatch.store.run import UNJUDGED

_log = logging.getLogger("gpuwatch.daemon.judging")

WARM_S = 8.0  # the daemon stops waiting for longer imports; the first verdicts may then be late
REST_S = 60.0  # idle time before the worker is killed
CLOSE_S = 2.0  # time limit for a killed worker to end
_NICE = 5  # a benchmark may run while the worker imports or judges
# numpy's libraries would start a thread per CPU for matrix products, of which the judge computes only a few.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Judge:
    """The owner of the worker: it sends one request at a time, and replaces a failed worker once per request."""

    def __init__(
        self, state: Path, *, log: Path | None = None, patience: WorkerPatience | None = None, rest_s: float = REST_S
    ) -> None:
        self._state = state
        self._patience = patience or WorkerPatience()
        self._rest_s = rest_s
        self._resting: asyncio.TimerHandle | None = None
        self._log = log  # receives the worker's standard error; None: the daemon's own
        self._worker: asyncio.subprocess.Process | None = None
        self._killed: list[asyncio.subprocess.Process] = []
        self._turn = asyncio.Lock()
        self._is_closed = False

    async def warm(self, patience_s: float = WARM_S) -> None:
        """Start a worker if none lives, and wait until its imports are done; a slower one continues in the background."""
        if self._turn.locked():  # a worker is already starting or judging
            return
        async with self._working():
            if self._lives or self._is_closed:
                return
            try:
                await asyncio.wait_for(await self._asked(""), patience_s)
            except TimeoutError:
                _log.warning("the judge's worker needs longer than %g s to start; the first verdicts may be late", patience_s)
            except (OSError, EOFError, msgspec.DecodeError) as error:
                if not self._is_closed:
                    _log.warning("the judge's worker failed to start: %r", error)
                    self.stop()

    async def judge(self, run: str, length_s: float = 0.0) -> Judgement:
        """Return a run's judgement, with a reason instead of verdicts if the worker failed twice or ``close`` was called."""
        async with self._working():
            for _ in range(2):
                if self._is_closed:
                    return Judgement(run=run, why=UNJUDGED)
                try:
                    return await self._exchange(run, length_s)
                except (OSError, EOFError, TimeoutError, msgspec.DecodeError) as error:
                    if not self._is_closed:
                        _log.warning("the judge's worker failed on %s: %r", run, error)
                        self.stop()
            return Judgement(
                run=run, why="the judge's worker failed twice; the evidence is stored; run: gpuwatch audit --rejudge"
            )

    def stop(self) -> None:
        """Kill the worker.  A kill is safe at any time: a worker writes only its log, and its keys atomically."""
        if self._resting is not None:
            self._resting.cancel()
        if self._worker is not None and self._lives:
            with contextlib.suppress(ProcessLookupError):
                self._worker.kill()
            self._killed = [each for each in self._killed if each.returncode is None] + [self._worker]
        self._worker = None

    async def close(self, patience_s: float = CLOSE_S) -> None:
        """Kill the worker and wait for its exit, which asyncio cannot collect after the loop has closed."""
        self._is_closed = True
        self.stop()
        with contextlib.suppress(TimeoutError):  # a process in uninterruptible sleep outlives its kill
            async with asyncio.timeout(patience_s):
                for worker in self._killed:
                    await worker.wait()

    @property
    def _lives(self) -> bool:
        return self._worker is not None and self._worker.returncode is None

    @contextlib.asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        """Hold the worker exclusively; after each use, schedule the worker's exit."""
        async with self._turn:
            if self._resting is not None:
                self._resting.cancel()
            try:
                yield
            finally:
                self._resting = asyncio.get_running_loop().call_later(self._rest_s, self.stop)

    async def _exchange(self, run: str, length_s: float) -> Judgement:
        answer = await self._asked(run)
        try:
            return await self._patience.wait_for(answer, self._worker.pid if self._worker else 0, length_s)
        finally:
            answer.cancel()

    async def _asked(self, run: str) -> asyncio.Task[Judgement]:
        """Send a request to a living worker, and return the task that waits for its answer.  Raises OSError, EOFError."""
        if self._worker is None or not self._lives:
            with contextlib.ExitStack() as stack:
                errors = stack.enter_context(self._log.open("ab")) if self._log else None
                # -P: import nothing from the daemon's start folder, which other users may be able to write.  The worker has its
                # own process group: Ctrl-C in a terminal is for the daemon, and would interrupt the worker's imports.
                self._worker = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-P",
                    "-m",
                    "gpuwatch.daemon.judge_worker",
                    str(self._state),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    process_group=0,
                    env={**os.environ, **_ONE_THREAD},
                )
            with contextlib.suppress(OSError):  # the worker ended already, or a seccomp filter refuses the call
                os.setpriority(os.PRIO_PROCESS, self._worker.pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICE)
        stdin, stdout = self._worker.stdin, self._worker.stdout
        if stdin is None or stdout is None:
            raise EOFError("the worker has no pipes")
        request = run.encode()
        stdin.write(LENGTH.pack(len(request)) + request)
        await stdin.drain()

        async def answer() -> Judgement:
            while True:  # late answers to earlier requests arrive first
                (length,) = LENGTH.unpack(await stdout.readexactly(LENGTH.size))
                judgement = msgspec.msgpack.decode(await stdout.readexactly(length), type=Judgement)
                if judgement.run == run:
                    return judgement

        return asyncio.create_task(answer())
