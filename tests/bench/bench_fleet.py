"""The cost of a fleet's windows: exporting a day, and the questions of `gpuwatch fleet` over a million synthetic rows."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from gpuwatch.fleet import export, fleet_questions
from gpuwatch.store import Reader
from tests.gpuwatch.fleet.warehouse import BEGIN_S, judged, write_windows
from tests.gpuwatch.store.stored import opened

_COUNT = 1_000_000


def _one_day(folder: Path, count: int = 200) -> None:
    """Export a synthetic machine's day with different windows, and print time and size per window."""
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
    with tempfile.TemporaryDirectory(prefix="gw") as folder:
        write_windows(Path(folder), count, seeds_count=20)
        parts = fleet_questions.list_parts([folder])
        size_bytes = sum(Path(path).stat().st_size for path in parts)
        print(f"\na fleet's windows, {count} rows, {size_bytes / count:.0f} bytes each, {len(os.sched_getaffinity(0))} cores")
        print(f"{'gpuwatch fleet':60}{'rows':>10}{'s, first':>10}{'s, again':>10}")
        for name, each in fleet_questions.questions().items():
            took_s = []
            for _ in range(2):
                begun_s = time.perf_counter()
                answer = fleet_questions.ask(
                    each, parts, since_wall_s=BEGIN_S, until_wall_s=BEGIN_S + 40 * 86_400.0, most_count=50
                )
                took_s.append(time.perf_counter() - begun_s)
            print(f"{name:60}{len(answer.rows):10}{took_s[0]:10.2f}{took_s[1]:10.2f}")


if __name__ == "__main__":
    main()
