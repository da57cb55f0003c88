"""Judged runs to export, and synthetic windows for the queries in docs/FLEET.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from annotate.judge import judge
from annotate.rules import RULES
from gpuwatch.fleet import parquet
from gpuwatch.fleet.rows import rows
from gpuwatch.sources.simulated import simulate
from gpuwatch.store import Run
from tests.gpuwatch.store.stored import a_run
from tests.gpuwatch.store.streams import DEVICE

PAGE = Path(__file__).parents[3] / "docs" / "FLEET.md"
HOSTS_COUNT, DRIVERS = 1000, ("550.163.01", "570.172.08", "575.57.08", "580.95.05")
_DAY_S, BEGIN_S = 86400.0, 1_790_000_000.0


def judged(scene: str, seed: int = 0, *, blind: bool = False, **changes: Any) -> Run:
    """Return a run like the daemon's, judged from a simulated window; ``blind`` omits the process lists."""
    evidence = simulate(scene, seed=seed, timings=False)[0]
    if blind:
        evidence = replace(evidence, trace=replace(evidence.trace, process_lists=()))
    assert evidence.device is not None
    verdict = judge(evidence)
    return a_run(
        begin_ns=evidence.window.begin_ns, end_ns=evidence.window.end_ns, label=scene, uuids=(evidence.device.uuid,),
        host=evidence.host, status=verdict.status.value, why=verdict.why, verdicts=(verdict.to_dict(),),
        source=f"simulated:{scene}", simulated=True, **changes,
    )  # fmt: skip


def write_windows(folder: Path, count: int, *, parts_count: int = 30, seeds_count: int = 1) -> None:
    """Write ``count`` rows in one part per day: judged rows with random times, hosts, drivers, rules and statuses."""
    scenes = ("steady-copy", "steady-gemm", "from-idle", "bursty", "neighbour", "thermal")
    runs = [judged(scene, seed=seed) for scene in scenes for seed in range(seeds_count)] + [judged("steady-copy", blind=True)]
    pattern = parquet.table([row for run in runs for row in rows(run, {run.uuids[0]: DEVICE}, "a")])
    random = np.random.default_rng(0)
    names = np.array([rule.name for rule in RULES])
    for day in range(parts_count):
        size = count // parts_count + (day < count % parts_count)
        part = pattern.take(pa.array(random.integers(0, len(pattern), size)))
        found_count = random.choice(4, size, p=(0.6, 0.25, 0.1, 0.05))
        offsets = np.concatenate(([0], np.cumsum(found_count)))
        rules = pa.array(names[random.integers(0, len(names), int(offsets[-1]))])
        hosts = pc.binary_join_element_wise("node", pc.cast(pa.array(random.integers(0, HOSTS_COUNT, size)), pa.string()), "")
        begun_us = ((BEGIN_S + day * _DAY_S + np.sort(random.uniform(0, _DAY_S, size))) * 1e6).astype(np.int64)
        statuses = np.where(found_count == 0, "valid", np.where(found_count == 1, "flagged", "rejected"))
        for name, values in {
            "run": pc.cast(pa.array(np.arange(size) + day * 10_000_000), pa.string()),
            "hostname": hosts,
            "begun_utc": pa.array(begun_us, pa.timestamp("us", tz="UTC")),
            "found": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), rules),
            "gpu_driver_version": pa.array(np.array(DRIVERS)[random.integers(0, len(DRIVERS), size)]),
            "status": pa.array(statuses),
            "window_status": pa.array(statuses),
            "simulated": pa.array(np.zeros(size, bool)),
        }.items():
            at = part.schema.get_field_index(name)
            part = part.set_column(at, part.schema.field(at), values)
        where = folder / "windows" / "schema=1" / f"date=2026-10-{day + 1:02d}" / "host=many"
        where.mkdir(parents=True)
        pq.write_table(part, where / "part-0.parquet", compression="zstd", row_group_size=parquet.GROUP_ROWS_COUNT)


def queries() -> dict[str, str]:
    """Return the queries in docs/FLEET.md, keyed by the comment in the first line."""
    found = re.findall(r"```sql\n-- (.*?)\n(.*?)```", PAGE.read_text(), re.S)
    return dict(found)


def run_queries(folder: Path, texts: Iterable[str]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of each text's last statement, with ``folder`` in place of the page's DIR."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for query in texts:
            for statement in query.replace("DIR", str(folder)).split(";"):
                if statement.strip():
                    answer = db.execute(statement).fetchall()
            yield answer
