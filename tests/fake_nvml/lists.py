"""A program that reads a GPU's lists repeatedly through gpuwatch's source, and prints the last process list and all samples."""

from __future__ import annotations

import json
import sys

from gpuwatch.sources.nvml import Nvml


def main(gpu: int, times: int) -> None:
    source = Nvml()
    uuid = source.devices()[gpu].uuid
    sampled_w: list[float] = []
    for _ in range(times):
        process_list = source.read_process_list(uuid, utilization=True)
        sampled_w += source.power_record(uuid).sample_w
    source.close()
    processes = [[each.pid, each.memory_bytes, each.listed, each.graphics] for each in process_list.processes]
    print(json.dumps({"visibility": process_list.visibility, "processes": processes, "sampled_w": sampled_w}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
