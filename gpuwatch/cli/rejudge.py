"""Judgement of a stored run, an interval without a window, or a recording, without writing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from annotate.claims import Claim
from annotate.errors import AnnotateError
from annotate.evidence import Evidence, WindowRecord
from annotate.user_policy import Policy
from annotate.verdict import Status, Verdict
from gpuwatch import clock
from gpuwatch.cli import chosen_gpus, times
from gpuwatch.config import quantities
from gpuwatch.config.quantities import QuantityError
from gpuwatch.errors import UsageError
from gpuwatch.interfaces import Run

if TYPE_CHECKING:
    from gpuwatch.store import Reader

# Larger times in a recording are nanoseconds since 1970 (2001 and later); smaller ones are since the machine's boot.
_WALL_NS = 1_000_000_000_000_000_000

# A worker process pays off only for many windows: it must first import scipy.
_WORTH_SHARING, _MOST_WORKERS, _CHUNK = 400, 8, 50

# "Now" is this long ago: while a GPU works, the daemon commits every 0.5 s, and the judge needs 0.5 s of later readings.
_WRITTEN_S = 1.5


def stored(run: Run) -> tuple[Verdict, ...]:
    """Return the stored verdicts; without any, an unproven one with the reason."""
    if run.verdicts:
        return tuple(Verdict.from_dict(verdict) for verdict in run.verdicts)
    return (
        Verdict(
            status=Status.UNPROVEN,
            findings=(),
            claim=run.claim,
            label=run.label,
            begin_ns=run.begin_ns,
            end_ns=run.end_ns or run.begin_ns,
            simulated=run.simulated,
            policy=run.policy,
            why=run.why or f"the window is {run.status}: it has no verdict yet",
        ),
    )


def again(store: Reader, run: Run, policy: Policy | None) -> tuple[Verdict, ...]:
    """Judge a run's stored evidence under this policy (None: the run's), worst first; without GPUs, return ``stored``.

    Raises StoreError: when the evidence cannot be read.
    """
    if not run.uuids:
        return stored(run)
    return judged([store.evidence(run, uuid) for uuid in run.uuids], policy_of(run) if policy is None else policy)


def policy_of(run: Run) -> Policy:
    """Return a run's policy, or only its claim's policy if this version lacks a rule or limit that the run's policy names."""
    try:
        return Policy.from_dict(run.policy)
    except AnnotateError:
        return Policy(claim=Claim.of(run.claim))


def all_again(
    store: Reader, runs: Sequence[Run], policy: Policy | None, *, shared_count: int = _WORTH_SHARING
) -> list[tuple[Verdict, ...]]:
    """Judge these runs with ``again``, in several processes if there are many.

    Raises StoreError: when evidence cannot be read.
    """
    workers_count = min(len(os.sched_getaffinity(0)), _MOST_WORKERS)
    if len(runs) < shared_count or workers_count < 2:
        return [again(store, run, policy) for run in runs]
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # Spawned processes: a fork would share the open database.  Stored verdicts are not needed there.
    bare = [replace(run, verdicts=()) if run.uuids else run for run in runs]
    with ProcessPoolExecutor(workers_count, multiprocessing.get_context("spawn"), _open, (store.state,)) as pool:
        shared = pool.map(_again_there, bare, [policy] * len(bare), chunksize=_CHUNK)
        return [tuple(Verdict.from_dict(msgspec.msgpack.decode(each)) for each in verdicts) for verdicts in shared]


_opened: list[Reader] = []  # one per worker, for its lifetime


def _open(state: Path) -> None:
    from gpuwatch.store import Reader

    _opened.append(Reader(state))


def _again_there(run: Run, policy: Policy | None) -> list[bytes]:
    return [msgspec.msgpack.encode(verdict.to_dict()) for verdict in again(_opened[0], run, policy)]


def judged(pieces: Iterable[Evidence], policy: Policy | None) -> tuple[Verdict, ...]:
    """Return the verdicts on these pieces of evidence, worst first."""
    from annotate.judge import judge

    return tuple(sorted((judge(each, policy) for each in pieces), key=lambda verdict: verdict.status.badness, reverse=True))


def recorded(
    path: Path, begin: str | None, end: str | None, gpus: Sequence[str], *, query: str | None = None
) -> tuple[Evidence, ...]:
    """Return the windows of a recording, or the named interval of it.

    Raises UsageError: for another file, an unknown GPU, and an interval outside the recording.

    ``begin`` and ``end`` are seconds since the start, "-5s" before the end, or times.  The start is the window's if the
    recording has one window per GPU, else the first reading.
    """
    from gpuwatch.sources import recordings

    pieces = _of_gpus(recordings.load(path, query=query), gpus)
    if begin is None and end is None:
        return pieces
    if len({piece.device.uuid if piece.device else None for piece in pieces}) < len(pieces):
        pieces = _of_gpus(recordings.whole(path), gpus)
    return tuple(_part(piece, path, begin, end) for piece in pieces)


def _part(piece: Evidence, path: Path, begin: str | None, end: str | None) -> Evidence:
    whole = piece.window
    begin_ns = whole.begin_ns if begin is None else _within(begin, "--from", whole)
    end_ns = whole.end_ns if end is None else _within(end, "--to", whole)
    if not whole.begin_ns <= begin_ns < end_ns <= whole.end_ns:
        length = f"0 to {whole.length_s:.3f} s"
        if whole.begin_ns >= _WALL_NS:
            length += f" ({times.text(whole.begin_ns / 1e9)} to {times.text(whole.end_ns / 1e9)})"
        found = f"{(begin_ns - whole.begin_ns) / 1e9:.3f} to {(end_ns - whole.begin_ns) / 1e9:.3f} s"
        raise UsageError(f"{path}: expected --from and --to within {length}, found {found}")
    return replace(piece.part(begin_ns, end_ns), timings=None)


def _within(text: str, option: str, whole: WindowRecord) -> int:
    begin_ns = whole.begin_ns
    try:
        if text.startswith("-"):
            return whole.end_ns - quantities.lapse_ns(text[1:])
        return begin_ns + (round(float(text) * 1e9) if _is_number(text) else quantities.duration_ns(text))
    except QuantityError:
        pass
    if begin_ns < _WALL_NS:
        raise UsageError(f"{option}: expected seconds since the start, because the recording has no wall times, found {text!r}")
    # A time of day means the recording's day, not today.
    return round(times.wall_s(text, option, now_s=begin_ns / 1e9 + 86_340.0) * 1e9)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isascii() and text.replace(".", "", 1).isdigit()


def _of_gpus(pieces: Sequence[Evidence], gpus: Sequence[str]) -> tuple[Evidence, ...]:
    if not gpus:
        return tuple(pieces)
    wanted = chosen_gpus.choose(gpus, (piece.device for piece in pieces if piece.device is not None))
    return tuple(piece for piece in pieces if piece.device is not None and piece.device.uuid in wanted)


def interval(store: Reader, begin: str, end: str | None, gpus: Sequence[str], pids: Sequence[int]) -> tuple[Evidence, ...]:
    """Return stored evidence of an interval without a window, one piece per GPU.

    Raises UsageError, StoreError: for an invalid interval, an unknown GPU, and a store without readings.
    """
    now_s = clock.wall_s()
    begin_s = times.wall_s(begin, "--from", now_s=now_s)
    end_s = times.wall_s(end, "--to", now_s=now_s) if end is not None else now_s - _WRITTEN_S
    if not begin_s < end_s <= now_s + 1:
        found = f"{times.text(begin_s)} to {times.text(end_s)}"
        raise UsageError(f"--from, --to: expected a start before an end in the past, found {found}")
    boot_id, begin_ns = store.to_monotonic(begin_s)
    end_boot_id, end_ns = store.to_monotonic(end_s)
    if boot_id != end_boot_id:
        raise UsageError("--from, --to: expected an interval within one boot of the machine, found a restart between them")
    known = {device.uuid: device for device in store.devices()}
    if not known:
        raise UsageError(
            "--from: expected readings in the store, found none; create some with `gpuwatch run -- COMMAND`, or check with `gpuwatch doctor`"
        )
    wanted = chosen_gpus.choose(gpus, known.values()) if gpus else tuple(known)
    unwrapped = Run(
        id="",
        label="interval",
        claim=Claim.SUSTAINED.value,
        policy={},
        boot_id=boot_id,
        begin_ns=begin_ns,
        end_ns=end_ns,
        begun_wall_s=begin_s,
        pid=0,
        uid=os.getuid(),
        user=None,
        process=None,
        uuids=wanted,
        pids=frozenset(pids),
        declared={},
        host=None,
        status="judging",
        why="",
        parent=None,
        source="store",
        verdicts=(),
        simulated=any(known[uuid].simulated for uuid in wanted),
    )
    return tuple(_as_if_wrapped(store, unwrapped, uuid) for uuid in wanted)


def _as_if_wrapped(store: Reader, unwrapped: Run, uuid: str) -> Evidence:
    """Return one GPU's evidence of the interval.

    If no process is named and only one process used the GPU, that process counts as measured.
    """
    found = store.evidence(unwrapped, uuid)
    if unwrapped.pids:
        return found
    near = (
        process_list
        for process_list in found.trace.process_lists
        if unwrapped.begin_ns <= process_list.at_ns <= found.window.end_ns
    )
    seen = frozenset(process.pid for process_list in near for process in process_list.processes)
    return store.evidence(replace(unwrapped, pids=seen), uuid) if len(seen) == 1 else found
