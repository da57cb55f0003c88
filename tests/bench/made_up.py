"""Large synthetic stores, made fast: SQLite multiplies a few judged windows and an hour of readings in the store's tables."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from annotate.capsule.pack import pack
from annotate.judge import judge
from annotate.verdict import worst
from gpuwatch.clock import VirtualClock
from gpuwatch.host import processes
from gpuwatch.sources.simulated import simulate
from gpuwatch.store import Store, StoreLimits, files
from gpuwatch.store.segment import Segment
from gpuwatch.store.store_options import WriterFacts
from tests.bench.bench_store import unwatched
from tests.gpuwatch.store.stored import WALL_OFFSET_NS, a_run, feed
from tests.gpuwatch.store.streams import BEGIN_NS, BOOT, stream

HOUR_NS = 3_600_000_000_000
HOURS_IN_SEGMENT = 24
SCENES = ("steady-copy", "steady-gemm", "from-idle", "bursty", "neighbour", "thermal", "attention", "convolution")
_ROW_TABLES = ("fast", "pulse", "slow", "edge", "census", "power")
_PERIOD_S = 60.0  # distance of two windows' start times


def windows(folder: Path, begun_wall_s: float, counts: tuple[int, ...]) -> Iterator[int]:
    """Yield each count once the store holds as many judged windows.  Only the first eight windows have evidence."""
    boot_id = processes.facts().boot_id or "unknown"  # screens of the past read the stored boot
    store = Store(folder, source="simulated:steady-copy", boot_id=boot_id)
    for number, scene in enumerate(SCENES):
        evidence = simulate(scene, seed=number, timings=False)[0]
        verdict = judge(evidence)
        assert evidence.device is not None
        store.put_device(evidence.device)
        run = a_run(
            id=f"{number:08x}0000000000", boot_id=boot_id, label=f"{scene}-{number}", uuids=(evidence.device.uuid,),
            begun_wall_s=begun_wall_s + number * _PERIOD_S, begin_ns=BEGIN_NS + number * HOUR_NS // 60,
            end_ns=BEGIN_NS + number * HOUR_NS // 60 + evidence.window.end_ns - evidence.window.begin_ns,
            status=worst([verdict]).status.value, verdicts=(verdict.to_dict(),), simulated=True, source="simulated",
        )  # fmt: skip
        store.put_run(run, {evidence.device.uuid: pack([evidence])})
    store.flush(60.0)
    store.close()
    there = len(SCENES)
    for count in counts:
        with sqlite3.connect(folder / files.DATABASE) as db:
            _multiply(db, there, count)
        db.close()
        there = count
        yield count


def _multiply(db: sqlite3.Connection, first: int, last: int) -> None:
    """Insert copies of the judged runs, numbered from ``first`` to ``last`` - 1, with verdicts and findings."""
    db.execute("PRAGMA synchronous = OFF")
    db.execute("CREATE TEMP TABLE made (of TEXT, id TEXT, n INTEGER)")
    db.execute(
        f"""INSERT INTO made WITH RECURSIVE numbers (n) AS
            (SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {last})
        SELECT printf('%08x0000000000', n % {len(SCENES)}), printf('%08x%010x', n, (n * 2654435761) % 1099511627776), n FROM numbers"""
    )
    runs = _names(db, "runs")
    period_ns = HOUR_NS // 60
    later = f"(made.n - made.n % {len(SCENES)})"
    made = {
        "id": "made.id", "label": "runs.label || '-' || (made.n % 50)", "begun_wall_s": f"begun_wall_s + {later} * {_PERIOD_S}",
        "begin_ns": f"begin_ns + {later} * {period_ns}", "end_ns": f"end_ns + {later} * {period_ns}",
    }  # fmt: skip
    for table, changed in (("runs", made), ("verdicts", {"run": "made.id"}), ("findings", {"run": "made.id"})):
        columns = runs if table == "runs" else _names(db, table)
        key = "id" if table == "runs" else "run"
        values = ", ".join(changed.get(name, f'{table}."{name}"') for name in columns)
        named = ", ".join(f'"{name}"' for name in columns)
        # CROSS JOIN keeps the order: rows are written in a real store's order.
        source = f"made CROSS JOIN {table} ON {table}.{key} = made.of"
        db.execute(f"INSERT INTO {table} ({named}) SELECT {values} FROM {source} ORDER BY made.n")
    db.execute("DROP TABLE made")


def days(folder: Path, count: int) -> Iterator[int]:
    """Yield each number of days once the store holds them: one loaded GPU without windows, one segment per day."""
    clock = VirtualClock(BEGIN_NS)
    store = Store(
        folder,
        source="synthetic",
        boot_id=BOOT,
        limits=StoreLimits(commit_s=60.0),
        clock=clock,
        wall_offset_ns=lambda: WALL_OFFSET_NS,
    )
    feed(store, unwatched(stream(HOUR_NS / 1e9, loaded=True)), clock=clock, flush_ns=20_000_000_000)
    store.close()
    (hour,) = folder.glob(files.SEGMENTS)
    facts = WriterFacts(
        source="synthetic", boot_id=BOOT, mode=0o600, now_ns=clock.now_ns, wall_offset_ns=lambda: WALL_OFFSET_NS
    )
    template = hour.replace(folder / "hour")  # no segment has this name, so the store ignores the file
    for day in range(count):
        begin_ns = BEGIN_NS + day * 24 * HOUR_NS
        began = dt.datetime.fromtimestamp((begin_ns + WALL_OFFSET_NS) / 1e9, dt.UTC)
        path = folder / f"readings-{began:%Y%m%dT%H%M%S}.db"
        segment = Segment.create(path, facts, begin_ns=begin_ns, wall_offset_ns=WALL_OFFSET_NS, wal=True)
        db = segment.database.conn
        db.execute("ATTACH ? AS hour", (str(template),))
        db.execute("BEGIN")
        for table in ("gpus", "processes"):
            db.execute(f"INSERT INTO main.{table} SELECT * FROM hour.{table}")
        for table in _ROW_TABLES:
            names = [name for name in _names(db, table) if name != "id"]
            named = ", ".join(f'"{name}"' for name in names)
            for number in range(HOURS_IN_SEGMENT):
                shift = (day * 24 + number) * HOUR_NS << 6
                db.execute(f"INSERT INTO main.{table} (id, {named}) SELECT id + {shift}, {named} FROM hour.{table} ORDER BY id")
        db.execute("COMMIT")
        db.execute("DETACH hour")
        segment.close()
        yield day + 1


def _names(db: sqlite3.Connection, table: str) -> list[str]:
    """Return the columns to copy, without generated columns."""
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
