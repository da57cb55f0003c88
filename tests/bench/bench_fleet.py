"""What asking a fleet's windows costs: DuckDB over a million rows of the contract, made up; bytes a row on the disk."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import duckdb

from gpuwatch.fleet import export
from gpuwatch.store import Reader
from tests.gpuwatch.fleet.warehouse import judged, made_up, queries
from tests.gpuwatch.store.stored import opened

_COUNT = 1_000_000


def _one_day(folder: Path, count: int = 200) -> None:
    """A machine's day: how long its export takes, and how large its part is; every window is another."""
    scenes = ("steady-copy", "steady-gemm", "from-idle", "bursty", "neighbour", "thermal", "attention", "convolution")
    store = opened(folder / "state")
    for i in range(count):
        store.put_run(judged(scenes[i % len(scenes)], seed=i, id=f"{i:010d}", begun_wall_s=1.79e9 + i), {})
    store.flush(60.0)
    store.close()
    with Reader(folder / "state") as reader:
        begun_s = time.perf_counter()
        done = export.to_parquet(reader, folder / "out")
        took_s = time.perf_counter() - begun_s
        begun_s = time.perf_counter()
        export.to_parquet(reader, folder / "out")
        again_s = time.perf_counter() - begun_s
    size_bytes = done.parts[0].stat().st_size
    print("\nexporting a machine's day   windows   bytes each   ms each   again, ms")
    print(f"{'':24}{count:10}{size_bytes / count:13.0f}{1e3 * took_s / count:10.2f}{1e3 * again_s:12.1f}")


def main(count: int = _COUNT) -> None:
    with tempfile.TemporaryDirectory(prefix="gw") as folder:
        _one_day(Path(folder))
    with tempfile.TemporaryDirectory(prefix="gw") as folder, duckdb.connect() as db:
        made_up(Path(folder), count, seeds_count=20)
        size_bytes = sum(path.stat().st_size for path in Path(folder).rglob("*.parquet"))
        print(f"\na fleet's windows, {count} rows, {size_bytes / count:.0f} bytes each, {len(os.sched_getaffinity(0))} cores")
        print(f"{'query':60}{'rows':>10}{'s, first':>10}{'s, again':>10}")
        for name, sql in queries().items():
            if sql.startswith("COPY"):  # writes all of it anew: a minute
                continue
            took_s = []
            for _ in range(2):
                begun_s = time.perf_counter()
                answer = db.execute(sql.replace("DIR", folder)).fetchall()
                took_s.append(time.perf_counter() - begun_s)
            print(f"{name[:59]:60}{len(answer):10}{took_s[0]:10.2f}{took_s[1]:10.2f}")


if __name__ == "__main__":
    main()
