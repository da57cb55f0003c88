"""Windows of gpuwatch and of Zeus alternating in one process, for bench_peers and the hardware tests,
which pass the folder of Zeus's modules."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial

PAUSE_S = 0.02


def main() -> None:
    asked, count = json.loads(sys.argv[1]), int(sys.argv[2])
    import gpuwatch
    from gpuwatch.config.settings import load

    sys.path.append(asked["peers"])  # after gpuwatch's path: only missing modules come from there
    from zeus.monitor import ZeusMonitor  # type: ignore[import-not-found]  # only the peers' environment has it

    if asked.get("context"):  # with torch's context the windows have stamps
        import torch

        for device in range(len(asked["uuids"])):
            torch.zeros(1, device=f"cuda:{device}")
    warnings.simplefilter("ignore")  # Zeus warns in each short window that its counter did not change
    settings = load({"source": "nvml", "state": asked["state"], "socket": asked["socket"]})
    zeus = ZeusMonitor(gpu_indices=list(range(len(asked["uuids"]))))
    took: dict[str, tuple[list[float], list[float]]] = {"gpuwatch": ([], []), "zeus": ([], [])}

    def timed(name: str, edge: int, call: Callable[[], object]) -> None:
        begin_s = time.perf_counter()
        call()
        took[name][edge].append(time.perf_counter() - begin_s)
        time.sleep(PAUSE_S)

    for number in range(count):
        window = gpuwatch.window("cost", gpus=asked["uuids"], sync=False, settings=settings)
        timed("gpuwatch", 0, window.__enter__)
        timed("gpuwatch", 1, partial(window.__exit__, None, None, None))
        timed("zeus", 0, partial(zeus.begin_window, str(number), sync_execution=False))
        timed("zeus", 1, partial(zeus.end_window, str(number), sync_execution=False))
    print(json.dumps([(name, *times) for name, times in took.items()]))


if __name__ == "__main__":
    main()
