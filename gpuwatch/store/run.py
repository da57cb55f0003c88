"""One stored window, without its readings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from annotate.evidence import Host
from annotate.status import Status
from gpuwatch.interfaces import Run

OPEN, JUDGING = "open", "judging"
UNFINISHED = (OPEN, "closing", JUDGING)
DIED = "the daemon ended while the window was open"
UNJUDGED = "the daemon ended before it had judged; the evidence is kept: gpuwatch audit --rejudge"

# For sorting worst first; windows without a verdict come last.
BADNESS: Mapping[str, int] = {**{status.value: status.badness for status in Status}, **dict.fromkeys(UNFINISHED, -1)}

# Made here: two threads that use a type for the first time together would crash (annotate/verdict.py).
_host: msgspec.json.Decoder[Host] = msgspec.json.Decoder(Host)


@dataclass(frozen=True, slots=True)
class Ended:
    """The id, boot, start and host of a finished run; ``hostname`` is None if none is stored."""

    id: str
    boot_id: str
    begun_wall_s: float
    hostname: str | None


PLAIN = (
    "id", "label", "claim", "boot_id", "begin_ns", "end_ns", "begun_wall_s", "pid", "uid", "user", "process", "status",
    "why", "parent", "source",
)  # fmt: skip
COLUMNS = (*PLAIN, "policy", "uuids", "pids", "told", "host", "simulated")


def to_row(run: Run) -> dict[str, Any]:
    """Return a run as a row of table ``runs``; other tables hold its verdicts."""
    return {
        **{name: getattr(run, name) for name in PLAIN},
        "policy": as_json(dict(run.policy)),
        "uuids": as_json(run.uuids),
        "pids": as_json(sorted(run.pids)),
        "told": as_json(dict(run.declared)),
        "host": as_json(run.host) if run.host else None,
        "simulated": int(run.simulated),
        "program": run.program,
        "tags": as_json(dict(run.tags)) if run.tags else None,
        "badness": BADNESS.get(run.status, -1),
    }


def from_row(row: Mapping[str, Any], verdicts: tuple[Mapping[str, Any], ...]) -> Run:
    return Run(
        **{name: row[name] for name in PLAIN},
        policy=msgspec.json.decode(row["policy"]),
        uuids=tuple(msgspec.json.decode(row["uuids"])),
        pids=frozenset(msgspec.json.decode(row["pids"])),
        declared=msgspec.json.decode(row["told"]),
        host=_host.decode(row["host"]) if row["host"] else None,
        simulated=bool(row["simulated"]),
        verdicts=verdicts,
        program=row.get("program"),  # stores of older versions lack this column
        tags=msgspec.json.decode(row["tags"], type=dict[str, str]) if row.get("tags") else {},
    )


def reason_without_verdict(status: str, end_ns: int | None) -> str:
    """Return the reason why an unfinished run of an ended daemon gets no verdict."""
    return DIED if status == OPEN or end_ns is None else UNJUDGED


def as_json(value: Any) -> str:  # anything that msgspec can encode
    return msgspec.json.encode(value).decode()
