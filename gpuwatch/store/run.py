"""Run: one window, kept; and its form as a row of the permanent database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from annotate.evidence import Fact, Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One window as it stands in the store; ``status`` is open, judging, or what the worst verdict says."""

    id: str  # sorts by time; any unique beginning of four or more characters names it
    label: str | None = None
    claim: str
    policy: Mapping[str, Any]
    boot_id: str
    begin_ns: int
    end_ns: int | None
    begun_wall_s: float
    pid: int
    uid: int
    user: str | None = None
    process: str | None = None  # its name, never its command line: those hold secrets
    uuids: tuple[str, ...] = ()
    pids: frozenset[int] = frozenset()
    told: Mapping[str, Fact]
    host: Host | None = None
    status: str
    why: str = ""
    parent: str | None = None
    source: str
    simulated: bool
    verdicts: tuple[Mapping[str, Any], ...] = ()  # as Verdict.to_dict gives them, worst first


_JSON = ("policy", "told", "host", "uuids", "pids", "verdicts")


def to_row(run: Run) -> dict[str, Any]:
    row = asdict(run)
    row["pids"] = sorted(run.pids)
    row["simulated"] = int(run.simulated)
    return {name: json.dumps(value) if name in _JSON else value for name, value in row.items()}


def from_row(row: Mapping[str, Any]) -> Run:
    values = {field.name: row[field.name] for field in fields(Run)}
    for name in _JSON:
        values[name] = json.loads(values[name])
    host = values["host"]
    known = {field.name for field in fields(Host)}
    return Run(**{
        **values,
        "simulated": bool(values["simulated"]),
        "uuids": tuple(values["uuids"]),
        "pids": frozenset(values["pids"]),
        "verdicts": tuple(values["verdicts"]),
        "host": Host(**{name: value for name, value in host.items() if name in known}) if host else None,
    })
