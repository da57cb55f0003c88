"""The judge's worker process: it reads a closed window's evidence from the store and returns a judgement.

Judging imports scipy and uses tens of milliseconds of CPU: both would disturb the process that samples.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from annotate.evidence import RecordedWindow
from gpuwatch.daemon.judgement import LENGTH, Judgement

if TYPE_CHECKING:
    from annotate.evidence import Evidence
    from annotate.verdict import Verdict
    from gpuwatch.interfaces import Run
    from gpuwatch.signing import Signer

_log = logging.getLogger("gpuwatch.daemon.judge_worker")


def serve(state: Path, requests: BinaryIO, answers: BinaryIO) -> None:
    """Read run ids and write judgements until the daemon closes the pipe; answer an empty id with an empty judgement."""
    from gpuwatch.errors import StoreError
    from gpuwatch.signing import signer_of

    _import_judge()
    signer = signer_of(state)
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        run = requests.read(LENGTH.unpack(head)[0]).decode()
        try:
            judgement = judge_run(state, run, signer) if run else Judgement()
        except StoreError as error:
            judgement = Judgement(run=run, why=str(error))
        except Exception as error:  # noqa: BLE001 - a failure on one window must not end the worker
            _log.exception("run %s could not be judged", run)
            why = f"the judge failed on this window ({type(error).__name__}); see the daemon's log"
            judgement = Judgement(run=run, why=why)
        answer = msgspec.msgpack.encode(judgement)
        answers.write(LENGTH.pack(len(answer)) + answer)
        answers.flush()


def _import_judge() -> None:
    import annotate.capsule.pack
    import annotate.judge  # noqa: F401 - imported early so that the first window does not wait for the imports
    import gpuwatch.store  # noqa: F401

    gc.freeze()  # collections while judging then skip the imported objects


def judge_run(state: Path, run_id: str, signer: Signer | None = None) -> Judgement:
    """Judge one run from its stored evidence; with a ``signer``, sign each verdict.

    Raises StoreError: when the run or its evidence cannot be read.
    """
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
    plain = [verdict.to_dict() for verdict in verdicts]
    packed = {uuid: pack([piece]) for uuid, piece in evidence.items()}
    signed = []
    if signer is not None:
        for verdict in plain:
            kept = packed.get(verdict["device"]["uuid"])
            signed.append(signer.sign(statement(verdict, kept, run=run.id, user=run.user, process=run.process)).packed)
    return Judgement(run=run_id, verdicts=plain, evidence=packed, signatures=signed, recorded=recorded)


def _recorded(run: Run, piece: Evidence, verdict: Verdict) -> Iterator[tuple[str, RecordedWindow]]:
    """Yield the entries that a window of one GPU adds to the records of its work, if the window is VALID without the record.

    Otherwise each admitted window could admit a slower one, and the record would drift away from its first five windows.
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
    """Log the rules that raised an exception; the verdicts list these rules as not checked."""
    for verdict in verdicts:
        if verdict.failed:
            failures = ", ".join(f"{finding.rule} ({finding.failure})" for finding in verdict.failed)
            _log.error("run %s: rules failed: %s", run_id, failures)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the daemon, which then ends the worker
    with contextlib.suppress(BrokenPipeError):  # the daemon died meanwhile
        serve(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
    with contextlib.suppress(BrokenPipeError):  # the daemon no longer reads
        sys.stdout.close()
