"""The daemon's end of the judge: its worker is started when a window opens, and leaves after a minute without work.

At rest a worker would hold as much memory as the daemon itself.
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

_log = logging.getLogger("gpuwatch.daemon.judging")

WARM_S = 8.0  # a worker that imports for longer is not watched any more; the first verdicts may be late
REST_S = 60.0  # without work: a worker is there again within a second
_NICE = 5  # the benchmark's next window may already be running, and its first while the worker imports
# numpy's libraries would start a thread a processor for matrices, of which the judge multiplies none.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Judge:
    """The daemon's end: one request at a time, a dead worker is replaced and asked once more."""

    def __init__(
        self, state: Path, *, log: Path | None = None, patience: WorkerPatience | None = None, rest_s: float = REST_S
    ) -> None:
        self._state = state
        self._patience = patience or WorkerPatience()
        self._rest_s = rest_s
        self._resting: asyncio.TimerHandle | None = None
        self._log = log  # where the worker's last words go, if not to our own standard error
        self._worker: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def warm(self, patience_s: float = WARM_S) -> None:
        """Have a worker that lives, and wait until it has imported what it needs; one that takes longer goes on with it."""
        if self._turn.locked():  # it starts or works already
            return
        async with self._working():
            if self._lives:
                return
            try:
                await asyncio.wait_for(await self._asked(""), patience_s)
            except TimeoutError:
                _log.warning("the judge's worker needs longer than %g s to start; the first verdicts may be late", patience_s)
            except (OSError, EOFError, msgspec.DecodeError) as error:
                _log.warning("the judge's worker failed to start: %r", error)
                self.stop()

    async def judge(self, run: str, length_s: float = 0.0) -> Judgement:
        """Never raises for a failing worker: a judgement without verdicts says why."""
        async with self._working():
            for _ in range(2):
                try:
                    return await self._exchange(run, length_s)
                except (OSError, EOFError, TimeoutError, msgspec.DecodeError) as error:
                    _log.warning("the judge's worker failed on %s: %r", run, error)
                    self.stop()
            return Judgement(run=run, why="the judge's worker failed twice; the evidence is kept: gpuwatch audit --rejudge")

    def stop(self) -> None:
        """End the worker, which writes nothing and can be ended at any time."""
        if self._resting is not None:
            self._resting.cancel()
        if self._worker is not None and self._lives:
            with contextlib.suppress(ProcessLookupError):
                self._worker.kill()
        self._worker = None

    @property
    def _lives(self) -> bool:
        return self._worker is not None and self._worker.returncode is None

    @contextlib.asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        """Have the worker to oneself; nobody's after it, it leaves in a while."""
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
        """Send a request to a worker that lives, and return what waits for its answer."""
        if self._worker is None or not self._lives:
            with contextlib.ExitStack() as stack:
                said = stack.enter_context(self._log.open("ab")) if self._log else None
                # -P: nothing is imported from the folder the daemon was started in, which may be everybody's.  A group of its
                # own: a terminal's Ctrl-C is the daemon's to treat, and would meet the worker amid its imports.
                self._worker = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-P",
                    "-m",
                    "gpuwatch.daemon.judge_worker",
                    str(self._state),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=said,
                    process_group=0,
                    env={**os.environ, **_ONE_THREAD},
                )
            with contextlib.suppress(OSError):  # it ended already, or a filter of system calls refuses it
                os.setpriority(os.PRIO_PROCESS, self._worker.pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICE)
        stdin, stdout = self._worker.stdin, self._worker.stdout
        if stdin is None or stdout is None:
            raise EOFError("the worker has no pipes")
        request = run.encode()
        stdin.write(LENGTH.pack(len(request)) + request)
        await stdin.drain()

        async def answer() -> Judgement:
            while True:  # what was not waited for, as the end of a slow start, is answered first
                (length,) = LENGTH.unpack(await stdout.readexactly(LENGTH.size))
                judgement = msgspec.msgpack.decode(await stdout.readexactly(length), type=Judgement)
                if judgement.run == run:
                    return judgement

        return asyncio.create_task(answer())
