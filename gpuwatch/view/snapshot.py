"""The daemon's answer to `readings`, from memory, without a read of any GPU.

The limits in ``wire`` bound the answer: a thousand processes on a GPU still give less than a megabyte.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from annotate.evidence import Lane, ProcessList, Reading
from gpuwatch.interfaces import Run, Sweep, WatchedGpu
from gpuwatch.wire import messages
from gpuwatch.wire.shown import Shown, ShownGpu

_SEVERITIES = ("reject", "flag", "note")
_HAZARDS_COUNT = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedMachine:
    """The GPUs of a daemon and their latest readings."""

    source: str
    is_simulated: bool = False
    absence: str | None = None
    unanswered: Sequence[str] = ()
    gpus: Sequence[WatchedGpu] = ()
    latest: Mapping[tuple[str, Lane], Sweep] = field(default_factory=dict)


def readings(machine: WatchedMachine, runs: Iterable[Run], *, at_ns: int, since_ns: int = 0) -> messages.Readings:
    """Return the daemon's answer, without the readings up to ``since_ns``, because the screen already has them."""
    windows, windows_left_out_count = shown_windows(runs)
    return messages.Readings(
        at_ns=at_ns,
        source=_short(machine.source),
        simulated=machine.is_simulated,
        absence=machine.absence and machine.absence[:400],
        gpus=[_gpu(each, machine.latest, since_ns) for each in machine.gpus[: messages.SHOWN_GPUS_COUNT]],
        windows=windows,
        gpus_left_out_count=max(0, len(machine.gpus) - messages.SHOWN_GPUS_COUNT),
        windows_left_out_count=windows_left_out_count,
        unanswered=[each[:200] for each in machine.unanswered[: messages.SHOWN_GPUS_COUNT]],
    )


def shown_windows(runs: Iterable[Run]) -> tuple[list[Shown], int]:
    """Return the first windows for a screen, and the count of the others."""
    every = iter(runs)
    shown = [_shown(run) for run in itertools.islice(every, messages.SHOWN_WINDOWS_COUNT)]
    return shown, sum(1 for _ in every)


def _gpu(watched: WatchedGpu, latest: Mapping[tuple[str, Lane], Sweep], since_ns: int) -> ShownGpu:
    uuid = watched.device.uuid
    rows, processes, left_out_count = [], None, 0
    for lane in Lane:
        if lane is Lane.PULSE:  # contains only fields of a fast row that is at most slightly older
            continue
        sweep = latest.get((uuid, lane))
        observed = sweep.observed if sweep is not None else None
        if isinstance(observed, Reading) and observed.at_ns > since_ns:
            rows.append(_plain(observed))
        elif isinstance(observed, ProcessList) and observed.at_ns > since_ns:
            processes, left_out_count = _process_list(observed)
    return ShownGpu(
        device=_plain(watched.device),
        lost=watched.lost and watched.lost[:400],
        period_ns={lane.value: period_ns for lane, period_ns in watched.period_ns.items()},
        rows=rows,
        process_list=processes,
        processes_left_out_count=left_out_count,
    )


def _process_list(listed: ProcessList) -> tuple[dict[str, Any], int]:
    most = sorted(listed.processes, key=lambda process: -(process.memory_bytes or 0))
    shown = tuple(
        replace(process, name=process.name and _short(process.name), user=process.user and _short(process.user))
        for process in most[: messages.SHOWN_PROCESSES_COUNT]
    )
    data = _plain(replace(listed, processes=shown)) | {"processes": [_plain(process) for process in shown]}
    return data, len(listed.processes) - len(shown)


def _shown(run: Run) -> Shown:
    return Shown(
        run=run.id,
        claim=run.claim,
        status=run.status,
        begin_ns=run.begin_ns,
        label=run.label and _short(run.label),
        end_ns=run.end_ns,
        uuids=list(run.uuids[: messages.SHOWN_GPUS_COUNT]),
        pids=sorted(run.pids)[: messages.SHOWN_PIDS_COUNT],
        why=run.why[:200],
        hazards=_hazards(run.verdicts),
        simulated=run.simulated,
    )


def _hazards(verdicts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the rules with findings on the worst GPU, worst first, without rules that the policy accepts."""
    found = [
        (finding.get("severity") or "note", finding["rule"])
        for finding in (verdicts[0].get("findings", ()) if verdicts else ())
        if finding.get("answered") == "found" and not finding.get("accepted")
    ]
    ordered = sorted(found, key=lambda each: _SEVERITIES.index(each[0]) if each[0] in _SEVERITIES else len(_SEVERITIES))
    return [rule for _, rule in ordered[:_HAZARDS_COUNT]]


def _plain(record: object) -> dict[str, Any]:
    """Return a record's observed fields; decoding the record restores the others."""
    data: dict[str, Any] = msgspec.to_builtins(record)
    return {name: value for name, value in data.items() if value is not None}


def _short(text: str) -> str:
    return text if len(text) <= messages.SHOWN_LENGTH else text[: messages.SHOWN_LENGTH - 1] + "…"
