"""Stores and runs for tests."""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from annotate.evidence import Evidence, Host, Lane, PowerRecord, Reading, signals
from gpuwatch.clock import VirtualClock
from gpuwatch.interfaces import Sweep
from gpuwatch.sampling.plan import PULSE
from gpuwatch.store import Run, Store, StoreLimits
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, DEVICE, UUID
from tests.waiting import PATIENCE_S

NEVER = threading.Event()
WALL_OFFSET_NS = 1_700_000_000_000_000_000


def opened(folder: Path, **changes: Any) -> Store:
    """Open a store that commits on request or after 60 s, with a clock at BEGIN_NS."""
    limits = {name: changes.pop(name) for name in ("budget_bytes", "segment_bytes") if name in changes}
    settings: dict[str, Any] = {
        "source": "synthetic",
        "boot_id": BOOT,
        "limits": StoreLimits(commit_s=60.0, **limits),
        "clock": VirtualClock(BEGIN_NS),
        "wall_offset_ns": lambda: WALL_OFFSET_NS,
    }
    return Store(folder, **settings | changes)


def feed(store: Store, sweeps: Iterable[Sweep], *, clock: VirtualClock | None = None, flush_ns: int = 500_000_000) -> None:
    """Give a store sweeps, with a commit every ``flush_ns`` and at the end."""
    due_ns = 0
    for sweep in sweeps:
        store.take(sweep)
        if sweep.due_ns >= due_ns:
            due_ns = sweep.due_ns + flush_ns
            if clock is not None:
                clock.wait_until(sweep.due_ns, NEVER)
            assert store.flush(PATIENCE_S)
    assert store.flush(PATIENCE_S)


def a_run(**changes: Any) -> Run:
    run = Run(
        id="0ca7f00d01", label="gemm", claim="sustained", policy={"claim": "sustained"}, boot_id=BOOT,
        begin_ns=BEGIN_NS + 5_000_000_000, end_ns=BEGIN_NS + 9_000_000_000, begun_wall_s=time.time(), pid=4242, uid=1000,
        user="me", process="python", uuids=(UUID,), pids=frozenset({4242, 4243}), declared={"tf32": True, "flops": 1.5},
        host=Host(boot_id=BOOT, cpu_s=3.5), status="valid", why="", parent=None, source="synthetic", simulated=False,
        verdicts=(),
    )  # fmt: skip
    return replace(run, **changes)


def verdict(status: str = "flagged", uuid: str = UUID, rules: Iterable[str] = ("power-limited",)) -> dict[str, Any]:
    found = [
        {"rule": rule, "answered": "found", "severity": "flag", "says": f"{rule} says so", "remedy": "stop it",
         "facts": {"x": 1}, "effect_ratio": 0.1, "span_ns": [1, 2], "basis": "telemetry", "required": False, "accepted": False}
        for rule in rules
    ]  # fmt: skip
    clear = {**(found[0] if found else {}), "rule": "sampler-gap", "answered": "clear", "severity": None}
    return {"schema": 1, "status": status, "device": {"uuid": uuid, "name": DEVICE.name}, "findings": [*found, clear]}


def sweeps_of(evidence: Evidence) -> list[Sweep]:
    """Reconstruct the sweeps behind the columns, process lists, power record and events of a piece of evidence."""
    trace = evidence.trace
    uuid = evidence.device.uuid if evidence.device else UUID
    out: list[Sweep] = []
    for lane in (Lane.FAST, Lane.SLOW, Lane.EDGE):
        rows: dict[int, dict[str, Any]] = {}
        for name in signals(lane):
            column = trace.column(name)
            for at_ns, value in zip(column.at_ns.tolist(), column.values.tolist(), strict=True):
                rows.setdefault(at_ns, {})[name] = None if math.isnan(value) else value
        for at_ns, values in rows.items():
            asked = Lane.PULSE if lane is Lane.FAST and values.keys() <= set(PULSE) else lane
            out.append(Sweep(uuid, asked, at_ns, 0, 0, Reading(uuid=uuid, lane=asked, at_ns=at_ns, took_ns=1, **values)))
    out += [Sweep(uuid, Lane.PROCESSES, process_list.at_ns, 0, 0, process_list) for process_list in trace.process_lists]
    dense = trace.dense_power
    for begin in range(0, len(dense), 50):
        part = slice(begin, begin + 50)
        times, watts = dense.at_ns[part].tolist(), dense.values[part].tolist()
        record = PowerRecord(uuid=uuid, at_ns=times[-1], took_ns=1, sample_at_ns=tuple(times), sample_w=tuple(watts))
        out.append(Sweep(uuid, Lane.POWER, times[-1], 0, 0, record))
    out += [Sweep(uuid, Lane.EVENTS, event.at_ns, 0, 0, event) for event in trace.events]
    # An edge's row follows the fast row of the same time.
    order = {Lane.EDGE: 1}
    return sorted(out, key=lambda sweep: (sweep.due_ns, order.get(sweep.lane, 0)))


def segments(folder: Path) -> list[Path]:
    """Return the segments of a store, the oldest first."""
    return sorted(folder.glob("readings-*.db"))


def rows_count(path: Path, table: str = "fast") -> int:
    connection = sqlite3.connect(path)
    try:
        count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return count
    finally:
        connection.close()


def execute(store: Store, sql: str) -> None:
    """Execute a statement on the live segment's connection, while the writer's thread waits."""
    store.flush(5.0)
    store.folder.segments.live.database.execute(sql)


def integrity(path: Path) -> str:
    """Return SQLite's findings about a database: ``ok`` if the database is whole."""
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        connection.close()
