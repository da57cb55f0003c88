"""The judge's worker process: it reads a closed window's evidence from the store, judges, and answers; it writes nothing.

Judging takes tens of milliseconds of a core and imports scipy: neither belongs into the process that samples.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from annotate.evidence import RecordedWindow
from gpuwatch.daemon.worker_patience import WorkerPatience

if TYPE_CHECKING:
    from annotate.evidence import Evidence
    from annotate.verdict import Verdict
    from gpuwatch.interfaces import Run
    from gpuwatch.signing import Signer

_log = logging.getLogger("gpuwatch.daemon.judge_worker")
_LENGTH = struct.Struct(">I")
WARM_S = 8.0  # a window waits 15 s for a daemon that starts; a worker that imports for longer is served without


class Judgement(msgspec.Struct, frozen=True):
    """What the worker answers: verdicts worst first as plain data, each GPU's evidence packed, and a signature under each.

    A signature is the public key (32 bytes) and what it signed with (64); there are none where the key cannot be used.
    ``recorded`` is what the run adds to the records of its work, by the digests of their keys.
    ``run`` is what was asked for: an answer that comes too late must not be taken for the next one's.
    """

    run: str = ""
    verdicts: list[dict[str, Any]] = []
    evidence: dict[str, bytes] = {}
    signatures: list[bytes] = []
    recorded: dict[str, RecordedWindow] = {}
    why: str = ""


class Judge:
    """The daemon's end: one request at a time, a dead worker is replaced and asked once more."""

    def __init__(self, state: Path, *, log: Path | None = None, patience: WorkerPatience | None = None) -> None:
        self._state = state
        self._patience = patience or WorkerPatience()
        self._log = log  # where the worker's last words go, if not to our own standard error
        self._worker: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def warm(self, patience_s: float = WARM_S) -> None:
        """Start the worker and wait until it has imported what it needs; one that takes longer goes on with it."""
        async with self._turn:
            try:
                await asyncio.wait_for(await self._asked(""), patience_s)
            except TimeoutError:
                _log.warning("the judge's worker needs longer than %g s to start; the first verdicts may be late", patience_s)
            except (OSError, EOFError, msgspec.DecodeError) as error:
                _log.warning("the judge's worker failed to start: %r", error)
                self.stop()

    async def judge(self, run: str, length_s: float = 0.0) -> Judgement:
        """Never raises for a failing worker: a judgement without verdicts says why."""
        async with self._turn:
            for _ in range(2):
                try:
                    return await self._exchange(run, length_s)
                except (OSError, EOFError, TimeoutError, msgspec.DecodeError) as error:
                    _log.warning("the judge's worker failed on %s: %r", run, error)
                    self.stop()
            return Judgement(run=run, why="the judge's worker failed twice; the evidence is kept: gpuwatch audit --rejudge")

    def stop(self) -> None:
        if self._worker is not None and self._worker.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._worker.kill()
        self._worker = None

    async def _exchange(self, run: str, length_s: float) -> Judgement:
        answer = await self._asked(run)
        try:
            return await self._patience.wait_for(answer, self._worker.pid if self._worker else 0, length_s)
        finally:
            answer.cancel()

    async def _asked(self, run: str) -> asyncio.Task[Judgement]:
        """Send a request to a worker that lives, and return what waits for its answer."""
        if self._worker is None or self._worker.returncode is not None:
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
                )
        stdin, stdout = self._worker.stdin, self._worker.stdout
        if stdin is None or stdout is None:
            raise EOFError("the worker has no pipes")
        request = run.encode()
        stdin.write(_LENGTH.pack(len(request)) + request)
        await stdin.drain()

        async def answer() -> Judgement:
            while True:  # what was not waited for, as the end of a slow start, is answered first
                (length,) = _LENGTH.unpack(await stdout.readexactly(_LENGTH.size))
                judgement = msgspec.msgpack.decode(await stdout.readexactly(length), type=Judgement)
                if judgement.run == run:
                    return judgement

        return asyncio.create_task(answer())


def serve(state: Path, requests: BinaryIO, answers: BinaryIO) -> None:
    """The worker's loop: a run id in, a judgement out, until the daemon closes the pipe.  An empty id only warms."""
    from gpuwatch.errors import StoreError
    from gpuwatch.signing import signer_of

    _import_judge()
    signer = signer_of(state)
    while len(head := requests.read(_LENGTH.size)) == _LENGTH.size:
        run = requests.read(_LENGTH.unpack(head)[0]).decode()
        try:
            judgement = judge_run(state, run, signer) if run else Judgement()
        except StoreError as error:
            judgement = Judgement(run=run, why=str(error))
        except Exception as error:  # noqa: BLE001 - one window must not cost the next ones their judge
            _log.exception("run %s could not be judged", run)
            why = f"the judge failed on this window ({type(error).__name__}); the daemon's log says where"
            judgement = Judgement(run=run, why=why)
        answer = msgspec.msgpack.encode(judgement)
        answers.write(_LENGTH.pack(len(answer)) + answer)
        answers.flush()


def _import_judge() -> None:
    import annotate.capsule.pack
    import annotate.judge  # noqa: F401 - imported early so that the first window does not wait for them
    import gpuwatch.store  # noqa: F401


def judge_run(state: Path, run_id: str, signer: Signer | None = None) -> Judgement:
    """Judge one stored run from its readings, and sign for it.  Raises StoreError."""
    from annotate.capsule.pack import pack
    from annotate.evidence import Evidence, WindowRecord
    from annotate.judge import judge
    from annotate.user_policy import Policy
    from gpuwatch.signing import statement
    from gpuwatch.store import Reader

    with Reader(state) as reader:
        run = reader.run(run_id)
        policy = Policy.from_dict(run.policy)
        evidence = {uuid: reader.evidence(run, uuid) for uuid in run.uuids}
    recorded: dict[str, RecordedWindow] = {}
    if not evidence:
        window = WindowRecord(
            begin_ns=run.begin_ns, end_ns=run.end_ns or run.begin_ns, label=run.label, pids=run.pids, program=run.program
        )
        nothing = Evidence(window=window, declared=run.declared, absence=run.why or "no GPU is covered by this window")
        verdicts = [judge(nothing, policy)]
    else:
        judged = [(piece, judge(piece, policy)) for piece in evidence.values()]
        recorded = {work: window for piece, verdict in judged for work, window in _recorded(run, piece, verdict)}
        verdicts = sorted((verdict for _, verdict in judged), key=lambda v: v.status.badness, reverse=True)
    log_failed_rules(run.id, verdicts)
    said = [verdict.to_dict() for verdict in verdicts]
    packed = {uuid: pack([piece]) for uuid, piece in evidence.items()}
    signed = []
    if signer is not None:
        for verdict in said:
            kept = packed.get(verdict["device"]["uuid"])
            signed.append(signer.sign(statement(verdict, kept, run=run.id, user=run.user, process=run.process)).packed)
    return Judgement(run=run_id, verdicts=said, evidence=packed, signatures=signed, recorded=recorded)


def _recorded(run: Run, piece: Evidence, verdict: Verdict) -> Iterator[tuple[str, RecordedWindow]]:
    """Yield what a GPU's window adds to which record: nothing unless it is VALID against itself as well.

    Otherwise a record that admits a window would admit the next one by it, and so drift away from the first five.
    """
    from annotate.judge import judge
    from annotate.user_policy import Policy
    from annotate.verdict import Status
    from annotate.work_record import recorded_window, work_key

    key, window = work_key(piece, run.policy), recorded_window(piece, verdict)
    if key is None or window is None:
        return
    if piece.record is None or judge(replace(piece, record=None), Policy.from_dict(run.policy)).status is Status.VALID:
        yield key.digest, window


def log_failed_rules(run_id: str, verdicts: Sequence[Verdict]) -> None:
    """Name the rules that failed, which their verdicts list as not checked: no limit and no evidence should do that."""
    for verdict in verdicts:
        if verdict.failed:
            failures = ", ".join(f"{finding.rule} ({finding.failure})" for finding in verdict.failed)
            _log.error("run %s: rules failed: %s", run_id, failures)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as with a terminal's Ctrl-C: the daemon ends us, by closing our pipe
    with contextlib.suppress(OSError):  # a service's or container's filter of system calls may refuse it
        os.nice(5)  # the benchmark's next window may already be running
    with contextlib.suppress(BrokenPipeError):  # the daemon died meanwhile: the next one says so of this window
        serve(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
    with contextlib.suppress(BrokenPipeError):  # what is left of an answer is for nobody
        sys.stdout.close()
