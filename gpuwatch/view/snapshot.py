"""The daemon's answer to `readings`, made of what it holds already: no GPU is asked for a screen.

Bounded by the limits in ``wire``: a machine with a thousand processes on a GPU is still one line of less than a megabyte.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from annotate.evidence import Lane, Process, ProcessList, Reading
from gpuwatch.interfaces import Run, Sweep, WatchedGpu
from gpuwatch.wire import messages

_SEVERITIES = ("reject", "flag", "note")
_HAZARDS_COUNT = 12


def readings(
    watched: Sequence[WatchedGpu],
    latest: Mapping[tuple[str, Lane], Sweep],
    runs: Iterable[Run],
    *,
    at_ns: int,
    source: str,
    since_ns: int = 0,
    simulated: bool = False,
    absence: str | None = None,
    unanswered: Sequence[str] = (),
) -> messages.Readings:
    """The daemon's answer, from what it holds already."""
    every = iter(runs)
    shown = [_shown(run) for run in itertools.islice(every, messages.SHOWN_WINDOWS_COUNT)]
    return messages.Readings(
        at_ns=at_ns, source=_short(source), simulated=simulated, absence=absence and absence[:400],
        gpus=[_gpu(each, latest, since_ns) for each in watched[: messages.SHOWN_GPUS_COUNT]], windows=shown,
        gpus_left_out_count=max(0, len(watched) - messages.SHOWN_GPUS_COUNT),
        windows_left_out_count=sum(1 for _ in every),
        unanswered=[each[:200] for each in unanswered[: messages.SHOWN_GPUS_COUNT]],
    )  # fmt: skip


def _gpu(watched: WatchedGpu, latest: Mapping[tuple[str, Lane], Sweep], since_ns: int) -> messages.ShownGpu:
    uuid = watched.device.uuid
    rows, census, left_out_count = [], None, 0
    for lane in Lane:
        if lane is Lane.PULSE:  # some fields of a fast row that is hardly older
            continue
        sweep = latest.get((uuid, lane))
        said = sweep.observed if sweep is not None else None
        if isinstance(said, Reading) and said.at_ns > since_ns:
            rows.append(_plain(said))
        elif isinstance(said, ProcessList) and said.at_ns > since_ns:
            census, left_out_count = _census(said)
    return messages.ShownGpu(
        device=_plain(watched.device), lost=watched.lost and watched.lost[:400],
        period_ns={lane.value: period_ns for lane, period_ns in watched.period_ns.items()}, rows=rows, census=census,
        processes_left_out_count=left_out_count,
    )  # fmt: skip


def _census(census: ProcessList) -> tuple[dict[str, Any], int]:
    most = sorted(census.processes, key=lambda process: -(process.memory_bytes or 0))
    kept = tuple(map(_cut, most[: messages.SHOWN_PROCESSES_COUNT]))
    data = _plain(replace(census, processes=kept)) | {"processes": [_plain(process) for process in kept]}
    return data, len(census.processes) - len(kept)


def _cut(process: Process) -> Process:
    return replace(process, name=process.name and _short(process.name), user=process.user and _short(process.user))


def _shown(run: Run) -> messages.Shown:
    return messages.Shown(
        run=run.id, claim=run.claim, status=run.status, begin_ns=run.begin_ns, label=run.label and _short(run.label),
        end_ns=run.end_ns, uuids=list(run.uuids[: messages.SHOWN_GPUS_COUNT]), pids=sorted(run.pids)[: messages.SHOWN_PIDS_COUNT],
        why=run.why[:200], hazards=_hazards(run.verdicts), simulated=run.simulated,
    )  # fmt: skip


def _hazards(verdicts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The rules that found something on the GPU that was worst, worst first; those a policy accepts are not among them."""
    found = [
        (finding.get("severity") or "note", finding["rule"])
        for finding in (verdicts[0].get("findings", ()) if verdicts else ())
        if finding.get("answered") == "found" and not finding.get("accepted")
    ]
    ordered = sorted(found, key=lambda each: _SEVERITIES.index(each[0]) if each[0] in _SEVERITIES else len(_SEVERITIES))
    return [rule for _, rule in ordered[:_HAZARDS_COUNT]]


def _plain(record: object) -> dict[str, Any]:
    """A record without what was not observed, which its type fills in again."""
    data: dict[str, Any] = msgspec.to_builtins(record)
    return {name: value for name, value in data.items() if value is not None}


def _short(text: str) -> str:
    return text if len(text) <= messages.SHOWN_LENGTH else text[: messages.SHOWN_LENGTH - 1] + "…"
