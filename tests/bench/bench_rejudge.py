"""The cost of `gpuwatch audit --rejudge` over a large store: seconds for ten thousand windows, on at most eight cores."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from annotate.capsule.pack import pack
from annotate.evidence import Fact
from gpuwatch.cli import rejudge
from gpuwatch.sources.simulated import simulate
from gpuwatch.store import Reader, Store
from tests.gpuwatch.store.stored import a_run

_COUNT = 10_000
_SCENES = ("steady-copy", "steady-gemm", "from-idle", "bursty", "neighbour", "attention", "thermal", "convolution")
_DECLARED: dict[str, Fact] = {"torch_version": "2.9.1", "sync_s": 0.002, "busy_ratio": 0.97}


def filled(folder: Path, count: int) -> None:
    """Fill a store with windows: the evidence of a few scenes repeated, without readings and verdicts."""
    pieces = [
        replace(simulate(scene, seed=seed, timings=False)[0], declared=_DECLARED) for scene in _SCENES for seed in range(3)
    ]
    packed = [pack([piece]) for piece in pieces]
    store = Store(folder, source="simulated", boot_id="boot")
    for i in range(count):
        piece, capsule = pieces[i % len(pieces)], packed[i % len(pieces)]
        assert piece.device is not None
        run = a_run(
            id=f"{i:08d}", begin_ns=piece.window.begin_ns, end_ns=piece.window.end_ns, label=piece.window.label,
            pids=piece.window.pids, uuids=(piece.device.uuid,), declared=piece.declared, begun_wall_s=1.7e9 + i, status="valid",
        )  # fmt: skip
        store.put_run(run, {piece.device.uuid: capsule})
        if i % 500 == 499:
            store.flush(60.0)
    store.flush(60.0)
    store.close()


def main(count: int = _COUNT) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="gw") as folder:
        filled(Path(folder), count)
        begun_s = time.perf_counter()
        with Reader(Path(folder)) as reader:
            runs = reader.runs()
            read_s = time.perf_counter() - begun_s
            verdicts = rejudge.all_again(reader, runs, None)
        whole_s = time.perf_counter() - begun_s
    assert len(verdicts) == count
    print("\njudging a store again      windows   cores    list s   whole s   ms each")
    print(f"{'':24}{count:10} {len(os.sched_getaffinity(0)):7} {read_s:9.2f} {whole_s:9.2f} {1e3 * whole_s / count:9.2f}")
    return {"count": count, "whole_s": whole_s}


if __name__ == "__main__":
    main()
